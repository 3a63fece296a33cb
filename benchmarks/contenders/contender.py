"""The definition of a contender."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.cases import Case, Inputs
from benchmarks.contenders.prepared import Prepared

# A peer that needs more bytes than this in addition to its inputs is skipped.
MEMORY_LIMIT = 6e9


@dataclass(frozen=True)
class Contender:
    """An implementation that can compute cases.

    Attributes
    ----------
    name : str
    prepare : callable
        ``prepare(case, passes, inputs)`` does all work that is done once, outside of the timing.
    applies : callable
        ``applies(case, passes)`` returns whether the contender supports a case of its kinds.
    needs : callable
        ``needs(case, passes)`` estimates the memory in bytes in addition to the inputs.
    package : str, optional
        The package that has to be installed.
    kinds : tuple of str
        Kinds of cases that the contender supports.
    compiled : bool
        Whether the first call for a shape compiles.
    has_span_gradient : bool
        Whether the contender computes the gradient of the span in a backward pass.
    note : str
        Remark about the measurements, which is printed with them.
    """

    name: str
    prepare: Callable[[Case, str, Inputs], Prepared]
    applies: Callable[[Case, str], bool] = lambda case, passes: True
    needs: Callable[[Case, str], float] = lambda case, passes: 0.0
    package: str | None = None
    kinds: tuple[str, ...] = ("attention",)
    compiled: bool = False
    has_span_gradient: bool = False
    note: str = ""

    @property
    def installed(self) -> bool:
        """Whether the package of the contender is installed."""
        return self.package is None or importlib.util.find_spec(self.package) is not None

    def takes(self, case: Case, passes: str) -> bool:
        """Return whether the contender supports a case."""
        return case.kind in self.kinds and self.applies(case, passes)

    def obstacle(self, case: Case, passes: str) -> str:
        """Return the reason to skip the contender on a case, or an empty string."""
        if not self.installed:
            return "not installed"
        needed = self.needs(case, passes)
        if needed > MEMORY_LIMIT:
            return f"skipped: would need about {needed / 1e9:.1f} GB beyond the inputs"
        return ""
