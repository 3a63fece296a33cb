"""The interactive view: ``pip install 'headspan[widget]'``.

`explore` checks its arguments here; the widget is in ``widget.py`` and imported when it is made. ``data.py`` holds the
heads, ``part.py`` what of them is on the picture. What the browser runs is in ``browser/``, the same for the widget and
for a saved page: ``allowed.js`` knows who sees whom, ``numbers.js`` computes, ``bill.js`` counts, ``paint.js`` draws,
``parts.js`` makes elements, ``heads.js`` shows all heads, ``reading.js`` reads out what is pointed at, ``zoom.js``
chooses a part, ``input.js`` listens, ``view.js`` ties them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy.typing as npt

from headspan.explorer.data import ViewData
from headspan.ops.arguments.options import DEFAULTS, Options
from headspan.patterns.base import Pattern

if TYPE_CHECKING:
    from headspan.explorer.widget import Explorer

__all__ = ["explore"]


def explore(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    *,
    value: npt.ArrayLike | None = None,
    span: npt.ArrayLike | None = None,
    ramp: float = DEFAULTS["ramp"],
    causal: bool | None = None,
    pattern: Pattern | Sequence[Pattern] | None = None,
    key_begin: npt.ArrayLike | None = None,
    key_lengths: npt.ArrayLike | None = None,
    key_ranges: npt.ArrayLike | None = None,
    prefix_lengths: npt.ArrayLike | None = None,
    segment_ids: npt.ArrayLike | None = None,
    key_bias: npt.ArrayLike | None = None,
    tokens: Sequence[str] | None = None,
    heads: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    max_tokens: int = 512,
    unit: str = "tokens",
) -> Explorer:
    """Look at attention and move its spans: an interactive view for notebooks and for a page of its own.

    It shows the map of one head, all heads as small maps, the mask and what the pairs cost. Sliders for span, ramp and
    temperature recompute the weights in the browser; of long inputs the browser gets maps pooled in blocks, and Python
    recomputes them. Zooming into a part of these gives its pairs, and the sliders of a page that is saved then move.

    Parameters
    ----------
    query : array_like, shape (heads, tokens, head_dim) or (tokens, head_dim)
        float32 or float64; a batch axis of length 1 is allowed.
    key : array_like, shape (key heads, key tokens, head_dim)
        As for `headspan.attention`.
    value : array_like, shape (key heads, key tokens, value_dim), optional
        With it the view tells the weight times the length of the value, too.
    span : array_like, shape () or (heads,), optional
        In tokens. None: without limit.
    ramp : float
        In tokens; `headspan.attention` says how it is chosen.
    causal, pattern, key_begin, key_lengths, key_ranges, prefix_lengths, segment_ids, key_bias
        As for `headspan.attention`; the sliders work inside them.
    tokens : sequence of str, optional
        The text of every key; shown as text, whatever it holds.
    heads : sequence of int, optional
        Indices of the heads to show, from 0; all unless given.
    names : sequence of str, optional
        What each head of the query is called, such as "layer 3, head 4"; "head 0" and so on unless given.
    max_tokens : int
        More queries or keys at once are shown as pooled maps.
    unit : str
        What the model reads, as it stands in the view.

    Returns
    -------
    Explorer
        A widget with the traits ``head`` (an index from 0), ``span``, ``ramp``, ``temperature``, ``selected`` (a query,
        or None) and ``zoom`` (None, or ``[[first, end], [first, end]]`` of queries and keys), which can be read, set
        and observed; ``save("view.html")`` writes the view as one file.

    Raises
    ------
    ValueError
        For a wrong shape or value.
    TypeError
        For a wrong or mixed type.
    ModuleNotFoundError
        Without anywidget.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k = np.random.default_rng(0).standard_normal((2, 4, 100, 16))
    >>> view = hs.explore(q, k, span=[4, 8, 16, 32], ramp=8)
    >>> view.span
    [4.0, 8.0, 16.0, 32.0]
    """
    options = Options(span=span, ramp=ramp, causal=causal, pattern=pattern)
    options |= Options(key_begin=key_begin, key_lengths=key_lengths, key_ranges=key_ranges)
    options |= Options(prefix_lengths=prefix_lengths, segment_ids=segment_ids, key_bias=key_bias)
    data = ViewData.checked(
        query, key, options, value=value, tokens=tokens, heads=heads, names=names, max_tokens=max_tokens, unit=unit
    )
    from headspan.explorer.widget import Explorer

    return Explorer(data)
