"""The interactive part of the report, which shows for each character of a passage where each head attends."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan.explorer import page
from headspan.explorer.data import ViewData
from headspan.explorer.layers import ViewLayer
from headspan.explorer.part import full_part
from headspan.lab.model.heads import characters, head_names, side_by_side
from headspan.lab.report.measure import Layer
from headspan.ops.spans import farthest

Array = NDArray[Any]

# Maximum size in bytes of the queries and keys on a page; their base64 encoding is a third larger.
MOST_BYTES = 2_500_000
MOST_TOKENS = 512
LEAST_TOKENS = 32
LEGIBLE_TOKENS = 128


def view_section(layers: list[Layer], spans: Array, ramp: float, data: NDArray[np.uint8]) -> str:
    """Return an HTML view of a passage in which the browser computes the attention of all heads.

    Parameters
    ----------
    layers : list of (query, key, value)
        Each array has the shape (batch, heads, tokens, head_dim). The view shows the first sequence of the batch.
    spans : ndarray, shape (layers, heads)
    ramp : float
    data : ndarray of uint8, shape (tokens,)
        The characters of the passage.
    """
    view = _view_data(layers, spans, ramp, data)
    widest = view.heads[int(spans.argmax())]
    state = {"head": widest, "span": view.span, "ramp": view.ramp, "temperature": 1.0, "selected": None, "zoom": None}
    part = full_part(view)
    fragment = page.embedded({"meta": part.meta, **state}, {**part.arrays, "maps": b""})
    return (
        '<div class="interactive"><h2>Where does each character look?</h2>'
        f"<p>The first {len(view.tokens or ()):,} characters of a held-out passage, whose pairs the bill counts. "
        "Point at a character, or click on it, to see where every head looks from there. Stronger shades are larger "
        "weights, and the underline shows how far the span reaches. The sliders change the learned spans.</p>"
        "<noscript><p>The browser computes this part and needs JavaScript; the maps above do not.</p></noscript>"
        f"{fragment}</div>"
    )


def _view_data(layers: list[Layer], spans: Array, ramp: float, data: NDArray[np.uint8]) -> ViewData:
    query, key, _ = (array.astype(np.float32) for array in side_by_side(layers))
    heads, context, head_dim = query.shape
    room = MOST_BYTES // (heads * head_dim * query.itemsize * 2)
    # The map and its small pictures show whole passages, on which a short reach would be too thin to see.
    legible = max(LEGIBLE_TOKENS, 4 * int(farthest(float(spans.max()), ramp)))
    tokens = min(context, MOST_TOKENS, legible, max(LEAST_TOKENS, room))
    # Attention is causal, so the first tokens do not depend on the rest of the passage.
    layer = ViewLayer(
        query=query[:, :tokens],
        key=key[:, :tokens],
        norms=None,
        value_dim=layers[0][2].shape[-1],
        span=np.minimum(spans.astype(np.float64).ravel(), tokens).tolist(),
        ramp=float(ramp),
    )
    names = head_names(*spans.shape)
    return ViewData.of(layer, tokens=characters(data[:tokens]), names=names, max_tokens=tokens, unit="characters")
