"""The best rival of headspan on each case, beside the dense mask that is usual."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.cases import FORWARD, Case
from benchmarks.contenders import PEERS
from benchmarks.measure.results import Row

USUAL = "torch-sdpa-mask"
_LINE = "{:<14} {:<16} {:>10}  {:<24}  {}"


def best(rows: Sequence[Row], case: str, passes: str, *, with_span_gradient: bool = False) -> Row | None:
    """Return the row of the fastest peer other than the usual one, or None.

    Parameters
    ----------
    rows : sequence of Row
    case : str
        Name of a case.
    passes : str
    with_span_gradient : bool
        Whether to choose among the peers that compute the gradient of the span.
    """
    names = {peer.name for peer in PEERS if peer.name != USUAL and (peer.has_span_gradient or not with_span_gradient)}
    return min(
        (row for row in _measured(rows, case, passes) if row.contender in names),
        key=lambda row: row.ratio or 0,
        default=None,
    )


def _measured(rows: Sequence[Row], case: str, passes: str) -> list[Row]:
    return [row for row in rows if (row.case, row.passes) == (case, passes) and row.ratio is not None]


def lines(cases: Sequence[Case], rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table of rivals for the cases on which the usual one was measured."""
    body = [line for case in cases for passes in case.passes for line in _line(case, passes, rows)]
    if body:
        yield from ("", "Time relative to headspan's in the same round: the usual dense mask, and the best rival", "")
        yield _LINE.format("case", "passes", "dense mask", "best rival", "best with the gradient of the span")
        yield "-" * 120
        yield from body
        yield from (f"{case.name}: no reshape for {case.no_reshape}" for case in cases if case.no_reshape)


def _line(case: Case, passes: str, rows: Sequence[Row]) -> Iterator[str]:
    usual = next((row for row in _measured(rows, case.name, passes) if row.contender == USUAL), None)
    if usual is None:
        return
    rival = best(rows, case.name, passes)
    with_gradient = best(rows, case.name, passes, with_span_gradient=True) if case.span and passes != FORWARD else None
    yield _LINE.format(case.name, passes, f"{usual.ratio:.3g}", _text(rival), _text(with_gradient)).rstrip()


def _text(row: Row | None) -> str:
    return "-" if row is None else f"{row.ratio:.3g} {row.contender}"
