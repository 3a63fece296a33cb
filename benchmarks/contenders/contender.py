"""What a contender is."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.cases import Case, Inputs
from benchmarks.contenders.prepared import Prepared

# A peer that would need more bytes than this beyond its inputs is not started.
MEMORY_LIMIT = 4e9


@dataclass(frozen=True)
class Contender:
    """Someone who can compute a case.

    Attributes
    ----------
    name : str
    prepare : callable
        ``prepare(case, passes, inputs)``: everything that is done once, outside of the timing.
    applies : callable
        ``applies(case, passes)``: whether it computes such a case of its kinds at all.
    needs : callable
        ``needs(case, passes)``: about how many bytes beyond the inputs.
    package : str, optional
        The package that has to be installed.
    kinds : tuple of str
        Of cases.
    compiled : bool
        Whether the first call of a shape compiles.
    note : str
        What to know about its numbers.
    """

    name: str
    prepare: Callable[[Case, str, Inputs], Prepared]
    applies: Callable[[Case, str], bool] = lambda case, passes: True
    needs: Callable[[Case, str], float] = lambda case, passes: 0.0
    package: str | None = None
    kinds: tuple[str, ...] = ("attention",)
    compiled: bool = False
    note: str = ""

    @property
    def installed(self) -> bool:
        """Whether its package can be imported."""
        return self.package is None or importlib.util.find_spec(self.package) is not None

    def takes(self, case: Case, passes: str) -> bool:
        """Whether it computes such a case at all."""
        return case.kind in self.kinds and self.applies(case, passes)

    def obstacle(self, case: Case, passes: str) -> str:
        """Why it should not be started on a case; empty if nothing speaks against it."""
        if not self.installed:
            return "not installed"
        needed = self.needs(case, passes)
        if needed > MEMORY_LIMIT:
            return f"skipped: would need about {needed / 1e9:.1f} GB beyond the inputs"
        return ""
