"""The interactive view (the extra ``widget``).

`explore` checks its arguments and then imports the widget from ``widget.py``. ``layers.py`` checks the arguments of
each attention, ``data.py`` holds the heads, and ``part.py`` the queries and keys in the picture. ``browser/`` holds the
code of the browser, which the widget and saved pages share, see ``page.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from headspan.explorer.data import ViewData
from headspan.explorer.layers import ViewLayer, checked_layers
from headspan.ops.arguments.options import DEFAULTS, Options
from headspan.patterns.base import Pattern

if TYPE_CHECKING:
    from headspan.explorer.widget import Explorer

__all__ = ["explore"]


def explore(
    query: npt.ArrayLike | None = None,
    key: npt.ArrayLike | None = None,
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
    softcap: float | None = None,
    sinks: npt.ArrayLike | None = None,
    alibi_slopes: npt.ArrayLike | None = None,
    layers: Mapping[int, Mapping[str, Any]] | Sequence[Mapping[str, Any]] | None = None,
    tokens: Sequence[str] | None = None,
    heads: Sequence[int] | Sequence[tuple[int, int]] | None = None,
    names: Sequence[str] | None = None,
    max_tokens: int = 512,
    unit: str = "tokens",
) -> Explorer:
    """Make an interactive view of attention and its spans, for notebooks and for saved HTML pages.

    Attention is causal by default: pass ``causal=False`` to let queries see later keys. The view shows the map of one
    head, small maps of all heads, the mask and the cost of the pairs. Sliders change span, ramp and temperature, and
    the browser recomputes the weights. For long inputs, Python computes pooled maps. After zooming into such a map, the
    browser has single pairs, and the sliders of a saved page work too.

    For a model of several layers, pass `layers` in place of `query` and `key`. A table of all layers and heads then
    selects the head with the large map. If the queries and keys of all heads take more than 20 MB, the browser holds
    those of the selected layer, and shows pooled maps of the others. In a saved page this is the layer that was
    selected when you saved it.

    Parameters
    ----------
    query : array_like, shape (heads, tokens, head_dim) or (tokens, head_dim), optional
        float32 or float64; a batch axis of length 1 is allowed. Required without `layers`.
    key : array_like, shape (key heads, key tokens, head_dim), optional
        As for `headspan.attention`.
    value : array_like, shape (key heads, key tokens, value_dim), optional
        With values, the view also shows the weight times the length of the value.
    span : array_like, shape () or (heads,), optional
        The spans in tokens; inf means no limit. By default there is none.
    ramp : float
        The ramp in tokens, see `headspan.attention`.
    causal, pattern, key_start, key_stop, key_ranges, prefix_lengths, segment_ids
        As for `headspan.attention`. The sliders act within these limits.
    key_bias, softcap, sinks, alibi_slopes
        As for `headspan.attention`. The view computes with them and names those of the selected head.
    layers : mapping of int to dict, or sequence of dict, optional
        The layers of a model: for each layer a dict with the arguments above, such as ``{"query": q, "key": k, "span":
        4}``, so that every layer has its own options. A mapping has the numbers of the layers, from 0. Layers may
        differ in the number of heads, but not in the numbers of tokens and channels, and spans have one ramp.
    tokens : sequence of str, optional
        The text of every key. It is shown as plain text, never as HTML.
    heads : sequence of int, or of (int, int), optional
        The indices of the heads to show, from 0; with `layers`, pairs of a layer and a head. By default all heads.
    names : sequence of str, optional
        The names of all heads. By default "head 0" and so on, or "layer 0, head 0" with `layers`.
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
        If the arrays differ in type, or if neither `layers` nor both `query` and `key` are passed.
    ValueError
        If `layers` is combined with arguments of one layer, or if layers differ in what the view has only once.
    ModuleNotFoundError
        If anywidget is not installed.

    See Also
    --------
    attention_weights : The weights of the same attention, for inspection.
    headspan.plot.attention_map : Draws the weights of a head.
    headspan.torch.record : Records a transformers model; ``record.trace()`` has all of its layers.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k = np.random.default_rng(0).standard_normal((2, 4, 100, 16))
    >>> view = hs.explore(q, k, span=[4, 8, 16, 32], ramp=8)
    >>> view.span
    [4.0, 8.0, 16.0, 32.0]

    Two layers; the second has a window:

    >>> view = hs.explore(layers=[{"query": q, "key": k}, {"query": q, "key": k, "pattern": hs.patterns.Window(16)}])
    >>> view.head = [1, 3]
    """
    options = Options(span=span, ramp=ramp, causal=causal, pattern=pattern)
    options |= Options(key_start=key_start, key_stop=key_stop, key_ranges=key_ranges)
    options |= Options(prefix_lengths=prefix_lengths, segment_ids=segment_ids, key_bias=key_bias)
    options |= Options(softcap=softcap, sinks=sinks, alibi_slopes=alibi_slopes)
    if layers is not None:
        single = {"query": query, "key": key, "value": value, **options}
        passed = [name for name, option in single.items() if option is not None and option is not DEFAULTS.get(name)]
        if passed:
            raise ValueError(f"{' and '.join(passed)} must be in the dict of each layer, because layers is passed")
    elif query is None or key is None:
        raise TypeError("explore must have query and key, or layers")
    data = ViewData.of(
        ViewLayer.checked(query, key, value, options) if layers is None else checked_layers(layers),
        tokens=tokens, heads=heads, names=names, max_tokens=max_tokens, unit=unit,
    )  # fmt: skip
    from headspan.explorer.widget import Explorer

    return Explorer(data)
