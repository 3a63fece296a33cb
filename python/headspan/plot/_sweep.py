"""The plot of quality and cost against the limit of the span."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from headspan import _check
from headspan.plot import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SWEEP = {"bits": "bits per character", "span": "mean span (tokens)", "flops": "FLOPs per token"}


def limit_sweep(sweeps: Mapping[str, Mapping[str, npt.ArrayLike]]) -> Figure:
    """Draw quality, mean span and work against the limit of the span.

    Parameters
    ----------
    sweeps : mapping of str to mapping
        The lines by name. Each maps ``limit`` and one or more of ``bits`` (per character), ``span`` (the mean, in
        tokens) and ``flops`` (per token) to arrays of shape (models,).

    Returns
    -------
    matplotlib.figure.Figure
        One panel for each of the three quantities that the sweeps hold.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.

    See Also
    --------
    span_history : Draws spans during training.
    span_fit : Draws the result of `headspan.fit_spans`.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, figure 3.

    Examples
    --------
    >>> import headspan as hs
    >>> learned = {"limit": [64, 256, 1024], "bits": [1.3, 1.2, 1.1], "span": [20, 40, 70]}
    >>> len(hs.plot.limit_sweep({"learned": learned}).axes)
    2
    """
    checked = {name: _sweep(name, columns) for name, columns in _items("sweeps", sweeps, "names to mappings")}
    shown = [column for column in _SWEEP if any(column in sweep for sweep in checked.values())]
    if not shown:
        raise ValueError(f"sweeps must contain at least one of {', '.join(_SWEEP)} besides limit, got none")
    figure: Figure
    figure, panels = style.matplotlib("pyplot").subplots(
        1, len(shown), figsize=(0.6 + 3.2 * len(shown), 3.2), layout="constrained", squeeze=False
    )
    for ax, column in zip(panels[0], shown, strict=True):
        style.plain(ax)
        for (name, sweep), colour, marker in zip(
            checked.items(), style.colours(len(checked)), _markers(), strict=False
        ):
            if column in sweep:
                ax.plot(sweep["limit"], sweep[column], color=colour, marker=marker, label=name)
        if column != "bits" and all(sweep[column].min() > 0 for sweep in checked.values() if column in sweep):
            ax.set_yscale("log")
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(style.matplotlib("ticker").FuncFormatter(lambda x, _: f"{x:g}"))
        ax.set_xlabel("span limit (tokens)")
        ax.set_ylabel(_SWEEP[column])
    if len(checked) > 1:
        handles, names = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=min(len(names), 4), frameon=False)
    return figure


def _markers() -> list[str]:
    return list("osD^vPX*") * 8


def _items(what: str, mapping: Any, of: str) -> Iterable[tuple[str, Any]]:
    """Return the items of a mapping or a table with named columns, or raise an error that names its contents."""
    if not hasattr(mapping, "items"):
        raise TypeError(f"{what} must be a mapping of {of}, not {_check.describe(mapping)}")
    items: Iterable[tuple[str, Any]] = mapping.items()
    return items


def _sweep(name: str, columns: Mapping[str, npt.ArrayLike]) -> dict[str, Any]:
    sweep = dict(_items(f"the sweep {name!r}", columns, f"limit and of {', '.join(_SWEEP)} to arrays"))
    if sweep.keys() - {"limit", *_SWEEP} or "limit" not in sweep:
        raise ValueError(
            f"the sweep {name!r} must hold limit and of {', '.join(_SWEEP)}, not {_check.describe(list(sweep))}"
        )
    arrays = {column: style.numbers(column, values, 1) for column, values in sweep.items()}
    if arrays["limit"].min() <= 0:
        raise ValueError(f"limit must be greater than 0, got {arrays['limit'].min():g}")
    for column, array in arrays.items():
        if array.shape != arrays["limit"].shape:
            raise ValueError(f"{column} of the sweep {name!r} must have the shape of limit, not {array.shape}")
    return arrays
