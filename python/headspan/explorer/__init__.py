"""The interactive view: ``pip install 'headspan[widget]'``.

`explore` checks its arguments here; the widget is in ``widget.py`` and imported when it is made. What the browser runs
is in ``browser/``, the same for the widget and for a saved page: ``allowed.js`` knows the pairs of a pattern,
``numbers.js`` computes, ``paint.js`` draws, ``parts.js`` makes elements, ``heads.js`` shows all heads, ``input.js``
listens, ``view.js`` ties them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy.typing as npt

from headspan.explorer.data import ViewData
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
    ramp: float = 32,
    tokens: Sequence[str] | None = None,
    heads: Sequence[int] | None = None,
    max_tokens: int = 512,
    pattern: Pattern | Sequence[Pattern] | None = None,
    unit: str = "tokens",
) -> Explorer:
    """Look at causal attention and move its spans: an interactive view for notebooks and for a page of its own.

    It shows the map of one head, all heads as small maps, the mask and what the pairs cost. Sliders for span, ramp and
    temperature recompute the weights in the browser; of long inputs the browser gets maps pooled in blocks, and Python
    recomputes them.

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
    tokens : sequence of str, optional
        The text of every key; shown as text, whatever it holds.
    heads : sequence of int, optional
        Indices of the heads to show, from 0; all unless given. The view calls the first "head 1", as all pictures do.
    max_tokens : int
        Longer inputs are shown as pooled maps.
    pattern : Pattern or sequence of Pattern, optional
        As for `headspan.attention`; the sliders work inside it.
    unit : str
        What the model reads, as it stands in the view.

    Returns
    -------
    Explorer
        A widget with the traits ``head`` (an index from 0), ``span``, ``ramp``, ``temperature`` and ``selected``, which
        can be read, set and observed; ``save("view.html")`` writes the view as one file.

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
    data = ViewData.checked(query, key, value, span, ramp, tokens, heads, max_tokens, pattern, unit)
    try:
        from headspan.explorer.widget import Explorer
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "headspan.explore needs anywidget: pip install 'headspan[widget]'", name=error.name
        ) from error
    return Explorer(data)
