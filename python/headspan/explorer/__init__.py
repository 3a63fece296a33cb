"""The interactive view (the extra ``widget``).

`explore` checks its arguments and then imports the widget from ``widget.py``. ``data.py`` holds the heads, and
``part.py`` the queries and keys in the picture. ``browser/`` holds the code of the browser, which the widget and saved
pages share: ``allowed.js`` decides which pairs are allowed, ``numbers.js`` computes weights, ``cost.js`` counts costs,
``paint.js`` draws, ``parts.js`` makes elements, ``heads.js`` shows all heads, ``reading.js`` describes the pair under
the pointer, ``zoom.js`` selects a part, ``input.js`` handles input, and ``view.js`` connects all of them.
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
    key_start: npt.ArrayLike | None = None,
    key_stop: npt.ArrayLike | None = None,
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
    """Make an interactive view of attention and its spans, for notebooks and for saved HTML pages.

    Attention is causal by default: pass ``causal=False`` to let queries see later keys. The view shows the map of one
    head, small maps of all heads, the mask and the cost of the pairs. Sliders change span, ramp and temperature, and
    the browser recomputes the weights. For long inputs, Python computes pooled maps. After zooming into such a map, the
    browser has single pairs, and the sliders of a saved page work too.

    Parameters
    ----------
    query : array_like, shape (heads, tokens, head_dim) or (tokens, head_dim)
        float32 or float64; a batch axis of length 1 is allowed.
    key : array_like, shape (key heads, key tokens, head_dim)
        As for `headspan.attention`.
    value : array_like, shape (key heads, key tokens, value_dim), optional
        With values, the view also shows the weight times the length of the value.
    span : array_like, shape () or (heads,), optional
        The spans in tokens; inf means no limit. By default there is none.
    ramp : float
        The ramp in tokens, see `headspan.attention`.
    causal, pattern, key_start, key_stop, key_ranges, prefix_lengths, segment_ids, key_bias
        As for `headspan.attention`. The sliders act within these limits.
    tokens : sequence of str, optional
        The text of every key. It is shown as plain text, never as HTML.
    heads : sequence of int, optional
        The indices of the heads to show, from 0. By default all heads.
    names : sequence of str, optional
        The names of all heads of the query, such as "layer 3, head 4". By default "head 0" and so on.
    max_tokens : int
        The largest number of queries or keys that are shown without pooling.
    unit : str
        The name of what the model reads, in the plural.

    Returns
    -------
    Explorer
        A widget. You can read, set and observe its traits ``head`` (an index from 0), ``span``, ``ramp``,
        ``temperature``, ``selected`` (a query, or None) and ``zoom`` (None, or ``[[first, end], [first, end]]`` for
        queries and keys). ``save("view.html")`` writes the view to one file.

    Raises
    ------
    TypeError
        If the arrays differ in type.
    ModuleNotFoundError
        If anywidget is not installed.

    See Also
    --------
    attention_weights : The weights of the same attention, for inspection.
    headspan.plot.attention_map : Draws the weights of a head.
    headspan.torch.record : Records queries and keys of a model, to inspect its heads.

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
    options |= Options(key_start=key_start, key_stop=key_stop, key_ranges=key_ranges)
    options |= Options(prefix_lengths=prefix_lengths, segment_ids=segment_ids, key_bias=key_bias)
    data = ViewData.checked(
        query, key, options, value=value, tokens=tokens, heads=heads, names=names, max_tokens=max_tokens, unit=unit
    )
    from headspan.explorer.widget import Explorer

    return Explorer(data)
