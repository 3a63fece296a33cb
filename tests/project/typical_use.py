"""What editors and type checkers make of typical use; checked by mypy, and never run."""

from collections.abc import Callable
from typing import Any, assert_type

import headspan as hs
import numpy as np
import numpy.typing as npt
from headspan.patterns import Global, Pattern, Window
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Array = npt.NDArray[np.floating[Any]]
Doubles = npt.NDArray[np.float64]


def attention(q: Array, k: Array, v: Array) -> None:
    assert_type(hs.attention(q, k, v, span=[8, 32], ramp=8), Array)
    assert_type(hs.attention(q, k, v, return_lse=True), tuple[Array, Array])
    assert_type(hs.attention_weights(q, k, rows=slice(3)), Array)
    assert_type(hs.reference.attention(q, k, v, span=8), Doubles)
    assert_type(hs.reference.attention(q, k, v, return_lse=True), tuple[Doubles, Doubles])
    out, vjp = hs.attention_vjp(q, k, v, span=8.0)
    assert_type(out, Array)
    assert_type(vjp, Callable[..., hs.Gradients])
    gradients = vjp(out)
    assert_type(gradients.query, Array)
    assert_type(gradients.span, Array | None)
    assert_type(hs.attention_vjp(q, k, v, return_lse=True)[0], tuple[Array, Array])
    assert_type(hs.span_penalty([8.0, 32.0], 1e-3), float)


def caches(q: Array) -> None:
    cache = hs.SpanCache(1, 2, 4, span=8)
    assert_type(cache.attend(q, q, q), Array)
    assert_type(cache.attend(q, span=4.0, return_lse=True), tuple[Array, Array])
    stream = hs.memory.StreamingAttention(1, 2, 4, slots=8, window=4, decay=0.9)
    assert_type(stream.attend(q, q, q), Array)
    assert_type(stream.attend(q, q, q, return_lse=True), tuple[Array, Array])
    store = hs.memory.KeyValueStore("store", 2, 4)
    assert_type(store.attend(q), Array)
    assert_type(store.attend(q, return_lse=True), tuple[Array, Array])
    assert_type(hs.memory.retrieval_attention(q, q, q, q, q, q), Array)
    assert_type(hs.sparse.hierarchical_attention(q, q, q, return_lse=True), tuple[Array, Array])


def pictures(q: Array) -> None:
    assert_type(hs.plot.spans(q), Axes)
    assert_type(hs.plot.pattern(Window(4), 8), Axes | Figure)
    assert_type(hs.plot.mean_by_distance(q), npt.NDArray[Any])


def patterns(q: Array) -> None:
    pattern = Window(4) | Global(0)
    assert_type(pattern, Pattern)
    assert_type(pattern.mask(8), npt.NDArray[np.bool_])
    cost = hs.cost(pattern=pattern, tokens=128, num_heads=4, head_dim=16)
    assert_type(cost, hs.Cost)
    assert_type(cost.pairs, int)
    assert_type(cost.head_pairs, npt.NDArray[np.int64])
    assert_type(hs.cost(tokens=128, num_heads=4, head_dim=16, span=8, segment_ids=[0] * 128), hs.Cost)


def hybrid(x: Array, parameters: hs.hybrid.HybridParameters) -> None:
    assert_type(hs.hybrid.hybrid_attention(x, parameters, num_heads=4, max_span=50), Array)
    out, vjp = hs.hybrid.hybrid_attention_vjp(x, parameters, num_heads=4, max_span=50)
    assert_type(out, Array)
    assert_type(vjp(out).parameters, hs.hybrid.HybridParameters)
    assert_type(
        hs.hybrid.hybrid_attention_vjp(x, parameters, num_heads=4, max_span=50, return_span=True)[0],
        tuple[Array, Array, Array],
    )
