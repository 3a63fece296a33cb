"""The plot of spans fitted to a trained model: loss against pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headspan import _check
from headspan.fitting import Point, SpanFit
from headspan.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def span_fit(fit: SpanFit, *, ax: Axes | None = None) -> Axes:
    """Draw the loss of fitted spans against their pairs, compared with one span for all heads.

    The lines show the data to which the spans were fitted: the best measured points, and one span for all heads. The
    rings show held-out data: the resulting spans, and one span for all heads with the same number of pairs.

    Parameters
    ----------
    fit : SpanFit
        The result of `headspan.fit_spans` or `headspan.torch.fit_spans`.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        If `fit` is not a `SpanFit`.
    ModuleNotFoundError
        If matplotlib is not installed.

    See Also
    --------
    headspan.fit_spans : The result that the function draws.
    limit_sweep : Draws quality against the limit of the span.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> def loss(spans):
    ...     return 2 + np.maximum(1 - spans / [[100, 3], [30, 3]], 0).sum()
    >>> sizes = {"tokens": 256, "num_layers": 2, "num_heads": 2, "head_dim": 16}
    >>> fit = hs.fit_spans(loss, loss, **sizes, tolerance=0.001, ramp=1)
    >>> hs.plot.span_fit(fit).get_xlabel()
    'pairs (% of full attention)'
    """
    if not isinstance(fit, SpanFit):
        raise TypeError(f"fit must be a SpanFit from fit_spans, not {_check.describe(fit)}")
    ax = style.axes(ax)
    best, uniform = style.COLOURS[:2]
    for points, colour, label in ((fit.uniform_curve, uniform, "one span for all heads"), (fit.curve, best, "fitted")):
        x, y = _percent(fit, points)
        ax.plot(x, y, "o-", color=colour, markersize=3, linewidth=1.2, label=label)
    rings = ((fit.pairs, fit.excess, best), (fit.uniform.pairs, fit.uniform_excess, uniform))
    for at, (pairs, excess, colour) in enumerate(rings):
        if at == 0 or not fit.uniform_wins:
            named = "held out, at equal pairs" if at == 0 else None
            ring: dict[str, Any] = {"markersize": 10, "markerfacecolor": "none", "markeredgewidth": 2}
            ax.plot(100 * pairs / fit.full_pairs, 100 * excess, "o", color=colour, label=named, **ring)
    ax.axhline(0, color=style.GREY, linewidth=1, linestyle=":")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(style.matplotlib("ticker").FuncFormatter(lambda x, _: f"{x:.3g}"))
    height = max(100 * fit.uniform_excess, 100 * fit.excess, 1.0)
    ax.set_ylim(-0.1 * height, 1.5 * height)  # points above this height would flatten the rest
    ax.set_xlabel("pairs (% of full attention)")
    ax.set_ylabel("loss above full attention (%)")
    ax.set_title(f"{fit.share:.1%} of the pairs, held out {fit.excess:+.2%}", size=10)
    ax.legend(frameon=False)
    return ax


def _percent(fit: SpanFit, points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return (
        [100 * point.pairs / fit.full_pairs for point in points],
        [100 * (point.loss / fit.fitted_before - 1) for point in points],
    )
