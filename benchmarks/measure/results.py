"""How cases are measured, and what is measured of each."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes
    ----------
    threads, rounds : int
    fewest : int
        Rounds of a contender that is slow.
    budget : float, optional
        Seconds of timing for a contender on one case; where it does not suffice it takes part in fewer rounds.
    memory : str
        Whose memory is measured: "all", "own" (not that of peers) or "none".
    """

    threads: int
    rounds: int
    fewest: int
    budget: float | None
    memory: str = "all"


@dataclass
class Row:
    """One contender on one case.

    Attributes
    ----------
    case, passes, contender : str
    absent : str
        Why there are no numbers; empty if there are.
    repeats : int
        Calls in a sample.
    median, first_quartile, last_quartile : float, optional
        Seconds of a call.
    ratio : float, optional
        To headspan's time: the median over the rounds.
    work : int, optional
        Floating-point operations of the pairs with a mask above 0.
    peak : float, optional
        FLOP/s of pure multiply-adds around the calls, the median.
    share : float, optional
        Of the peak: work by time by peak, the median over the rounds.
    per_pair : list of float
        Time of a pair that the pattern allows, relative to that of full attention in the same round: the quartiles.
    memory : int, optional
        Bytes beyond the inputs at the highest.
    error : float, optional
        The largest, relative to the largest value of its array.
    seconds, peaks : list of float
        All samples.
    retaken : int
        Samples taken again since the host took the processors away.
    """

    case: str
    passes: str
    contender: str
    absent: str = ""
    repeats: int = 0
    median: float | None = None
    first_quartile: float | None = None
    last_quartile: float | None = None
    ratio: float | None = None
    work: int | None = None
    peak: float | None = None
    share: float | None = None
    per_pair: list[float] = field(default_factory=list)
    memory: int | None = None
    error: float | None = None
    seconds: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    retaken: int = 0
