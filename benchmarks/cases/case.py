"""The cases: what is measured, in one table, and the arrays and the useful work of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import headspan as hs
import numpy as np
from headspan.patterns import Pattern
from numpy.typing import NDArray

from benchmarks.cases.patterns import PATTERNS

Array = NDArray[Any]

FORWARD = "forward"
BACKWARD = "backward"
BOTH = "forward+backward"


@dataclass(frozen=True)
class Case:
    """One problem.

    Attributes
    ----------
    name, group : str
        Unique; and the table that it is printed in.
    batch, heads, queries, keys, head_dim : int
    dtype : str
    causal : bool
    span : None, float or (float, float)
        Without limit; of every head; or of every token, uniform between the two.
    ramp : float
    pattern : str, optional
        A name in PATTERNS; only without a span.
    at_most : float, optional
        What the time of an allowed pair is meant to be, relative to that of full attention.
    max_span : float, optional
        Of the local branch of a hybrid layer, which the case is then: its channels are those of all heads.
    passes : tuple of str
        Some of FORWARD, BACKWARD and BOTH.
    threads : int, optional
        Where it must be this number, whatever the command says.
    quick : bool
        Whether ``--quick`` runs it.
    """

    name: str
    group: str
    batch: int = 1
    heads: int = 8
    queries: int = 2048
    keys: int = 2048
    head_dim: int = 64
    dtype: str = "float32"
    causal: bool = True
    span: float | tuple[float, float] | None = None
    ramp: float = 32
    pattern: str | None = None
    at_most: float | None = None
    max_span: float | None = None
    passes: tuple[str, ...] = (FORWARD, BOTH)
    threads: int | None = None
    quick: bool = False

    def __post_init__(self) -> None:
        # JSON knows no tuples, and a case comes back from it.
        object.__setattr__(self, "passes", tuple(self.passes))
        if isinstance(self.span, list):
            object.__setattr__(self, "span", tuple(self.span))

    @property
    def kind(self) -> str:
        """What there is to compute: "attention", "pattern" or "layer"."""
        if self.max_span is not None:
            return "layer"
        return "attention" if self.pattern is None else "pattern"

    @property
    def allowed(self) -> Pattern | None:
        """The pattern itself."""
        return None if self.pattern is None else PATTERNS[self.pattern](self.keys)

    @property
    def widest(self) -> float:
        """The largest span there can be; infinite without a limit."""
        if self.span is None:
            return math.inf
        return max(self.span) if isinstance(self.span, tuple) else self.span

    @property
    def scores(self) -> int:
        """Pairs of a query and a key, seen or not: the numbers in a dense matrix of scores."""
        return self.batch * self.heads * self.queries * self.keys

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return np.dtype(self.dtype).itemsize


GROUPS = {
    "span": "Spans: 8 heads, 2048 tokens, head_dim 64, float32, causal, ramp 32",
    "kind": "Other kinds: as above but for what the name says (one-head: 4096 tokens; 16384 tokens: 2 heads)",
    "length": "Lengths at span 256: 4 heads, head_dim 64, float32, causal, ramp 32",
    "head-dim": "Head dimensions: 8 heads, 2048 tokens, float32, causal, full span",
    "tiny": "Many small problems: batch 64, 8 heads, head_dim 64, float32, causal, full span",
    "decode": "Decoding: 1 or 16 queries against many keys, 8 heads (1 head at 1M keys), head_dim 64, float32, causal",
    "pattern": "Patterns: 4 heads, 8192 tokens (neighborhood: 64 x 64), head_dim 64, float32, not causal",
    "hybrid": "Hybrid layer: 256 channels in 4 heads, float32, not causal, max_span 256, ramp 32",
    "call": "A call that computes next to nothing: 1 head, 16 tokens, head_dim 16, one thread",
}


def _length(name: str, tokens: int, **others: Any) -> Case:
    return Case(f"length-{name}", "length", heads=4, queries=tokens, keys=tokens, span=256, **others)


def _decode(queries: int, name: str, keys: int, **others: Any) -> Case:
    return Case(f"decode-{queries}x{name}", "decode", queries=queries, keys=keys, passes=(FORWARD,), **others)


def _pattern(name: str, at_most: float, tokens: int = 8192) -> Case:
    sizes: dict[str, Any] = {"heads": 4, "queries": tokens, "keys": tokens, "causal": False}
    return Case(name, "pattern", **sizes, pattern=name, at_most=at_most, passes=(FORWARD, BACKWARD, BOTH))


def _hybrid(tokens: int) -> Case:
    return Case(f"hybrid-{tokens}", "hybrid", heads=4, queries=tokens, keys=tokens, causal=False, max_span=256)


CASES = (
    Case("span-full", "span", quick=True),
    Case("span-1000", "span", span=1000),
    Case("span-256", "span", span=256, quick=True),
    Case("span-64", "span", span=64),
    Case("span-dynamic", "span", span=(0, 512), quick=True),
    Case("not-causal", "kind", causal=False),
    Case("float64", "kind", dtype="float64", quick=True),
    Case("one-head", "kind", heads=1, queries=4096, keys=4096),
    Case("tokens-16384", "kind", heads=2, queries=16384, keys=16384),
    *(_length(f"{2**k}k", 1024 * 2**k) for k in range(7)),
    _length("1M", 2**20),
    *(Case(f"head-dim-{d}", "head-dim", head_dim=d) for d in (32, 64, 80, 96, 128, 256)),
    *(Case(f"tiny-{n}", "tiny", batch=64, queries=n, keys=n, quick=n == 64) for n in (32, 64, 128)),
    _decode(1, "4k", 4096),
    _decode(16, "4k", 4096),
    _decode(1, "64k", 65536, quick=True),
    _decode(16, "64k", 65536),
    _decode(1, "1M", 2**20, heads=1),
    _decode(16, "1M", 2**20, heads=1),
    _pattern("local", 1.6),
    _pattern("strided-32", 1.4),
    _pattern("strided-128", 2.0),
    _pattern("blockwise-256", 1.25),
    _pattern("longformer", 1.5),
    _pattern("blocks-25", 1.2),
    _pattern("neighborhood-7", 3.5, 64 * 64),
    *(_hybrid(2**k) for k in range(9, 14)),
    Case("call", "call", heads=1, queries=16, keys=16, head_dim=16, threads=1, quick=True),
)


@dataclass(frozen=True)
class Inputs:
    """The arrays of a case, each (batch, heads, tokens, head_dim) but for the span.

    Attributes
    ----------
    query, key, value, grad_out : ndarray
    span : ndarray, optional
        (batch, heads), so that every head has a gradient of its own; or (batch, heads, queries).
    """

    query: Array
    key: Array
    value: Array
    grad_out: Array
    span: Array | None


def make_inputs(case: Case, passes: str) -> Inputs:
    """Draw the arrays of a case, the same ones every time."""
    rng = np.random.default_rng(0)
    dtype: Any = np.dtype(case.dtype)

    def normal(tokens: int) -> Array:
        return rng.standard_normal((case.batch, case.heads, tokens, case.head_dim), dtype=dtype)

    span: Array | None = None
    if isinstance(case.span, tuple):
        span = rng.uniform(*case.span, (case.batch, case.heads, case.queries)).astype(dtype)
    elif case.span is not None:
        span = np.full((case.batch, case.heads), case.span, dtype)
    query, key, value = normal(case.queries), normal(case.keys), normal(case.keys)
    return Inputs(query, key, value, normal(0 if passes == FORWARD else case.queries), span)


def useful_work(case: Case, passes: str, inputs: Inputs) -> int:
    """Count the floating-point operations that the pairs with a mask above 0 need."""
    cost = hs.cost(
        tokens=case.queries,
        key_tokens=case.keys,
        heads=case.heads,
        head_dim=case.head_dim,
        batch=case.batch,
        span=inputs.span,
        ramp=case.ramp,
        causal=case.causal,
        pattern=case.allowed,
    )
    return {
        FORWARD: cost.forward_flops,
        BACKWARD: cost.backward_flops,
        BOTH: cost.forward_flops + cost.backward_flops,
    }[passes]


def mask_rows(case: Case, span: Any, rows: Array, keys: Array) -> tuple[Array, Array]:
    """Distances of pairs and their soft mask, in float64 unless the span is of another type.

    Parameters
    ----------
    case : Case
    span : array_like
        Against (..., rows, keys); infinite for no limit.
    rows, keys : ndarray
        Positions of both, of which a key's may be negative: it is then none.
    """
    x = rows[:, None] - keys
    allowed = (keys >= 0) & ((x >= 0) | (not case.causal))
    if (pattern := case.allowed) is not None:
        places = rows.astype(np.int64) - (case.keys - case.queries), keys.astype(np.int64)
        allowed &= pattern.mask(case.queries, case.keys)[np.ix_(*places)]
    x = np.abs(x)
    return x, np.where(allowed, np.clip((case.ramp + span - x) / case.ramp, 0, 1), 0)


def log_mask(case: Case, inputs: Inputs) -> Array:
    """Logarithm of the dense soft mask, of shape (1, 1, queries, keys) where all heads share it."""
    rows = np.arange(case.queries, dtype=case.dtype) + (case.keys - case.queries)
    keys = np.arange(case.keys, dtype=case.dtype)
    if inputs.span is None:
        span = np.array(np.inf, case.dtype)
    elif inputs.span.ndim == 3:
        span = inputs.span[..., None]
    else:
        span = inputs.span[:1, :1, None, None]
    mask = mask_rows(case, span, rows, keys)[1].astype(case.dtype, copy=False)
    with np.errstate(divide="ignore"):
        np.log(mask, out=mask)
    return mask.reshape((1,) * (4 - mask.ndim) + mask.shape)


def log_mask_bytes(case: Case) -> int:
    """Bytes of `log_mask`."""
    heads = case.batch * case.heads if isinstance(case.span, tuple) else 1
    return heads * case.queries * case.keys * case.itemsize
