"""The settings of measurements and their results."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """The settings of a measurement.

    Attributes
    ----------
    threads, rounds : int
    fewest : int
        Minimum number of rounds of a slow contender.
    budget : float, optional
        Time limit in seconds for a contender on one case. A contender that needs more takes part in fewer rounds.
    memory : str
        Contenders whose memory is measured: "all", "own" (without peers) or "none".
    """

    threads: int
    rounds: int
    fewest: int
    budget: float | None
    memory: str = "all"


@dataclass
class Row:
    """The results of one contender on one case.

    Attributes
    ----------
    case, passes, contender : str
    absent : str
        Reason why there are no results, or an empty string.
    repeats : int
        Number of calls in a sample.
    median, first_quartile, last_quartile : float, optional
        Time of a call in seconds.
    ratio : float, optional
        Time relative to headspan's, the median over the rounds.
    work : int, optional
        Floating-point operations of the pairs with a mask above 0.
    peak : float, optional
        FLOP/s of pure multiply-adds before and after the calls, the median over the rounds.
    share : float, optional
        Share of the peak, ``work / time / peak``, the median over the rounds.
    per_pair : list of float
        Quartiles of the time per allowed pair, relative to full attention in the same round.
    memory : int, optional
        Peak memory in bytes in addition to the inputs.
    error : float, optional
        Largest error, relative to the largest value of its array.
    seconds, peaks : list of float
        All samples of the time of a call and of the peak.
    retaken : int
        Number of samples that were repeated because the host took the processors away.
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
