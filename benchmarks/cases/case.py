"""What a case is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from headspan.patterns import Pattern
from numpy.typing import NDArray

from benchmarks.cases.patterns import PATTERNS

Array = NDArray[Any]

FORWARD = "forward"
BACKWARD = "backward"
BOTH = "forward+backward"


@dataclass(frozen=True)
class Case:
    """One problem.

    Attributes
    ----------
    name, group : str
        Unique; and the table that it is printed in.
    batch, heads, queries, keys, head_dim : int
    dtype : str
    causal : bool
    span : None, float or (float, float)
        Without limit; of every head; or of every token, uniform between the two.
    ramp : float
    pattern : str, optional
        A name in PATTERNS; only without a span.
    at_most : float, optional
        What the time of an allowed pair is meant to be, relative to that of full attention.
    limit : float, optional
        Of the local branch of a hybrid layer, which the case is then: its channels are those of all heads.
    passes : tuple of str
        Some of FORWARD, BACKWARD and BOTH.
    threads : int, optional
        Where it must be this number, whatever the command says.
    quick : bool
        Whether ``--quick`` runs it.
    """

    name: str
    group: str
    batch: int = 1
    heads: int = 8
    queries: int = 2048
    keys: int = 2048
    head_dim: int = 64
    dtype: str = "float32"
    causal: bool = True
    span: float | tuple[float, float] | None = None
    ramp: float = 32
    pattern: str | None = None
    at_most: float | None = None
    limit: float | None = None
    passes: tuple[str, ...] = (FORWARD, BOTH)
    threads: int | None = None
    quick: bool = False

    def __post_init__(self) -> None:
        # JSON knows no tuples, and a case comes back from it.
        object.__setattr__(self, "passes", tuple(self.passes))
        if isinstance(self.span, list):
            object.__setattr__(self, "span", tuple(self.span))

    @property
    def kind(self) -> str:
        """What there is to compute: "attention", "pattern" or "layer"."""
        if self.limit is not None:
            return "layer"
        return "attention" if self.pattern is None else "pattern"

    @property
    def allowed(self) -> Pattern | None:
        """The pattern itself."""
        return None if self.pattern is None else PATTERNS[self.pattern](self.keys)

    @property
    def widest(self) -> float:
        """The largest span there can be; infinite without a limit."""
        if self.span is None:
            return math.inf
        return max(self.span) if isinstance(self.span, tuple) else self.span

    @property
    def scores(self) -> int:
        """Pairs of a query and a key, seen or not: the numbers in a dense matrix of scores."""
        return self.batch * self.heads * self.queries * self.keys

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return np.dtype(self.dtype).itemsize
