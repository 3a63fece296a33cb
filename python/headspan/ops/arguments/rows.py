"""The columns of the table of options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from enum import Enum, Flag, auto
from typing import Any, Literal

from headspan.ops.arguments.parameters import Parameter
from headspan.ops.arguments.sizes import Sizes
from headspan.ops.arguments.terms import Term


class Group(Enum):
    """The groups of options in the documentation."""

    SPANS = "spans"
    CAUSALITY = "causality and positions"
    PACKING = "padding and packing"
    PATTERNS = "patterns"
    SCORES = "biases and other score terms"
    PERSISTENT = "persistent keys"
    DROPOUT = "dropout"


class In(Flag):
    """Features that take only some of the options. A feature refuses an option whose row does not name it."""

    NONE = 0
    CACHE = auto()  # SpanCache.attend
    STREAM = auto()  # StreamingAttention.attend
    STORE = auto()  # KeyValueStore.attend, for each piece of the keys
    STORE_ONCE = auto()  # KeyValueStore.attend, once in the softmax, however many pieces there are
    HALO = auto()  # halo_attention: computable from a slice of the tokens and its halo
    NESTED = auto()  # nested tensors: the same for all sequences
    RETRIEVAL = auto()  # retrieval_attention, for both parts
    VIEW = auto()  # explore
    RECORD = auto()  # Recorded.trace
    CUDA = auto()  # tensors on a GPU
    SCORES = CACHE | STREAM | STORE | HALO | NESTED  # options of the score of a pair


@dataclass(frozen=True)
class Row:
    """What headspan needs to know about any option."""

    group: Group
    _: KW_ONLY
    default: Any = None
    features: In = In.NONE  # the features that take the option
    by: Literal["distance", "index"] | None = None  # depends on distances of positions, or on indices of tokens
    neutral: float = 0.0  # a valid value, for tokens and arrays whose values are unknown


@dataclass(frozen=True)
class PatternRow(Row):
    """An option that is a pattern."""


@dataclass(frozen=True)
class PlainRow(Row):
    """An option that is a number or a flag."""

    check: Callable[[str, Any], object]  # returns the value for the core, or raises an error
    _: KW_ONLY
    each_call: bool = False  # differs from call to call, so that compiled functions take it as an array


@dataclass(frozen=True)
class ArrayRow(Row):
    """An option that is an array.

    `axes` has a letter per axis: b for batch items, h for heads, q for queries, k for keys, and . for others. Leading
    axes may be omitted.
    """

    axes: str
    _: KW_ONLY
    parameter: Callable[[str, Any, Sizes], Parameter] | None = None  # checks a differentiable option
    term: type[Term] | None = None  # the same for a score term with a number per pair
    modifies: str | None = None  # the option without which this one is invalid
    query_type: bool = False  # must have the type of the query
    static: Callable[[str, Any], object] | None = None  # checks values that determine shapes, for JAX

    @property
    def differentiable(self) -> bool:
        """Whether the option has a gradient."""
        return self.parameter is not None or self.term is not None

    @property
    def per_head(self) -> bool:
        """Whether the option has a value per head."""
        return self.axes.startswith("bh")

    @property
    def per_token(self) -> bool:
        """Whether the option may have a value per query instead of one per head."""
        return self.axes == "bhq"
