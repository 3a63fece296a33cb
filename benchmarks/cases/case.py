"""The definition of a case."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from headspan.patterns import Pattern, Window
from numpy.typing import NDArray

from benchmarks.cases.patterns import PATTERNS

Array = NDArray[Any]

FORWARD = "forward"
BACKWARD = "backward"
BOTH = "forward+backward"


@dataclass(frozen=True)
class Case:
    """One attention problem to measure.

    Attributes
    ----------
    name, group : str
        The unique name of the case, and the table in which it is printed.
    batch, heads, queries, keys, head_dim : int
    dtype : str
    causal : bool
    span : None, float or (float, float)
        None for no limit, the span of every head, or the range from which the span of each token is drawn uniformly.
    head_spans : tuple of float
        The span of each head, of which `span` is the largest. Empty if all heads have `span`.
    ramp : float
    pattern : str, optional
        A name in PATTERNS. Only for cases without a span.
    at_most : float, optional
        Upper bound for the time per allowed pair, relative to full attention.
    max_span : float, optional
        Span limit of the local branch. Makes the case a hybrid layer with ``heads * head_dim`` channels.
    passes : tuple of str
        Some of FORWARD, BACKWARD and BOTH.
    threads : int, optional
        Fixed number of threads, which overrides that of the command.
    quick : bool
        Whether ``--quick`` runs the case.
    no_reshape : str
        What plain torch can only compute with a mask, because no reshape separates it from the other pairs.
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
    head_spans: tuple[float, ...] = ()
    ramp: float = 32
    pattern: str | None = None
    at_most: float | None = None
    max_span: float | None = None
    passes: tuple[str, ...] = (FORWARD, BOTH)
    threads: int | None = None
    quick: bool = False
    no_reshape: str = ""

    def __post_init__(self) -> None:
        # Cases are also read from JSON, which has lists instead of tuples.
        object.__setattr__(self, "passes", tuple(self.passes))
        object.__setattr__(self, "head_spans", tuple(self.head_spans))
        if isinstance(self.span, list):
            object.__setattr__(self, "span", tuple(self.span))

    @property
    def kind(self) -> str:
        """The kind of problem: "attention", "pattern" or "layer"."""
        if self.max_span is not None:
            return "layer"
        return "attention" if self.pattern is None else "pattern"

    @property
    def allowed(self) -> Pattern | None:
        """The pattern of the case, or None."""
        return None if self.pattern is None else PATTERNS[self.pattern](self.keys)

    @property
    def widest(self) -> float:
        """The largest possible span, infinite without a limit."""
        if self.span is None:
            return math.inf
        return max(self.span) if isinstance(self.span, tuple) else self.span

    @property
    def spans_vary(self) -> bool:
        """Whether heads or tokens have different spans."""
        return bool(self.head_spans) or isinstance(self.span, tuple)

    @property
    def window(self) -> tuple[int, int] | None:
        """The numbers of keys before and after each query's own key in the same window for all queries, or None."""
        if isinstance(self.allowed, Window) and self.allowed.dilation == 1:
            before, after = self.allowed.size - 1, self.allowed.ahead
        elif self.pattern is None and self.span is not None and not self.spans_vary:
            before = after = max(0, math.ceil(self.widest + self.ramp) - 1)
        else:
            return None
        return before, 0 if self.causal else after

    @property
    def scores(self) -> int:
        """The size of a dense matrix of scores: the number of pairs of a query and a key, allowed or not."""
        return self.batch * self.heads * self.queries * self.keys

    @property
    def itemsize(self) -> int:
        """Number of bytes per element."""
        return np.dtype(self.dtype).itemsize
