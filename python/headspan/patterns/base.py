"""Base classes of patterns, and expressions of patterns."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from headspan import _check, _compiled
from headspan.patterns.spec import read_spec

MAX_TOKENS = 2**40  # exceeds every real input, and keeps sums of indices within 64 bits
_MOST_PAIRS = 2**26  # limit for dense masks
_MOST_CONJUNCTIONS = 64
_LONGEST_NAME = 44


class Pattern(ABC):
    """A primitive or an expression of primitives.

    See Also
    --------
    headspan.attention : Takes a pattern as `pattern`.
    headspan.plot.pattern : Draws a pattern.
    """

    def __or__(self, other: Pattern) -> Pattern:
        """Return the union: pairs that either pattern allows."""
        return _Union((self, other)) if isinstance(other, Pattern) else NotImplemented

    def __and__(self, other: Pattern) -> Pattern:
        """Return the intersection: pairs that both patterns allow."""
        return _Intersection((self, other)) if isinstance(other, Pattern) else NotImplemented

    def __bool__(self) -> bool:
        raise ValueError(f"{self.short_name()} has no truth value; combine patterns with | and &, not with or and and")

    @property
    def items(self) -> int | None:
        """Number of batch items for which the pattern has separate parts; None if all items share it."""
        return next((p.items for p in self.primitives() if p.items is not None), None)

    @property
    def heads(self) -> int | None:
        """Number of heads for which the pattern has separate parts; None if all heads share it."""
        return next((p.heads for p in self.primitives() if p.heads is not None), None)

    @property
    def _differs_by_head(self) -> bool:
        return any(p._differs_by_head for p in self.primitives())

    @property
    def grid(self) -> tuple[int, ...]:
        """Shape of the grid on which distances are measured; empty if they are measured along the tokens."""
        return next((p.grid for p in self.primitives() if p.grid), ())

    @property
    def grid_start(self) -> int:
        """Number of tokens before the grid."""
        return next((p.grid_start for p in self.primitives() if p.grid), 0)

    @property
    def grid_tokens(self) -> range:
        """Range of the tokens on the grid; empty without a grid."""
        return range(self.grid_start, self.grid_start + math.prod(self.grid)) if self.grid else range(0)

    @property
    def global_tokens(self) -> tuple[int, ...]:
        """Tokens whose pairs no span limits, in ascending order."""
        return tuple(sorted({token for p in self.primitives() for token in p.global_tokens}))

    @property
    def alternatives(self) -> tuple[Pattern, ...]:
        """The parts of a union; for other patterns, the pattern itself."""
        return (self,)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without cached values such as the pattern of the core."""
        return {name: value for name, value in self.__dict__.items() if name not in ("core", "is_shared")}

    @cached_property
    def is_shared(self) -> bool:
        """Whether all batch items and heads share the pattern."""
        return self.items is None and not self._differs_by_head

    @abstractmethod
    def part(self, item: int, head: int) -> Pattern:
        """Return the pattern of one batch item and head."""

    def with_globals_below(self, keys: int) -> Pattern:
        """Return the pattern with only those global tokens that are below a number of keys."""
        return self

    def check_batch(self, items: int, heads: int) -> None:
        """Raise ValueError if the pattern is for another number of batch items or heads."""
        if self.items not in (None, items):
            kind = next(type(p).__name__ for p in self.primitives() if p.items is not None)
            hint = "; per_head=True is for a mask of each head" if kind != "Global" and self.heads is None else ""
            raise ValueError(f"pattern must be for a batch of {items}, but has {kind} for one of {self.items}{hint}")
        if self.heads not in (None, heads):
            kind = next(type(p).__name__ for p in self.primitives() if p.heads is not None)
            raise ValueError(f"pattern must be for {heads} heads, but has {kind} for {self.heads}")

    @abstractmethod
    def primitives(self) -> list[Primitive]:
        """Return the primitives of the expression."""

    @abstractmethod
    def conjunctions(self) -> list[tuple[Primitive, ...]]:
        """Return the expression as a union of conjunctions."""

    def to_spec(self) -> str:
        """Return the pattern as a line of text, which `from_spec` converts back.

        Returns
        -------
        str
            The Python expression of the pattern.

        Examples
        --------
        >>> from headspan.patterns import Global, Window, Pattern
        >>> (Window(4) | Global(0)).to_spec()
        'Window(size=4, ahead=0, dilation=1) | Global(tokens=(0,))'
        """
        return repr(self)

    @staticmethod
    def from_spec(spec: str) -> Pattern:
        """Return the pattern that a line of text describes.

        Parameters
        ----------
        spec : str
            Output of `to_spec`, or a handwritten expression of pattern names, numbers, ``|``, ``&`` and parentheses.
            The text is parsed, not executed.

        Returns
        -------
        Pattern

        Raises
        ------
        ValueError
            If the text does not describe a pattern, or a number is invalid for the pattern.
        TypeError
            If `spec` is not a string, or an argument of a pattern has the wrong type.

        Examples
        --------
        >>> from headspan.patterns import Pattern
        >>> Pattern.from_spec("Window(4) | Global(0)").mask(3).astype(int)
        array([[1, 1, 1],
               [1, 1, 0],
               [1, 1, 1]])
        """
        if not isinstance(spec, str):
            raise TypeError(f"the description of a pattern must be a string, not {_check.describe(spec)}")
        pattern: Pattern = read_spec(spec, {kind.__name__: kind for kind in Primitive.__subclasses__()})
        return pattern

    def short_name(self) -> str:
        """Return the name of the pattern for legends: its expression without default arguments, cut if it is long."""
        name = self._brief()
        return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "\u2026"

    @abstractmethod
    def _brief(self) -> str: ...

    def check_tokens(self, queries: int, keys: int) -> None:
        """Raise ValueError if the pattern does not fit these numbers of queries and keys."""
        tokens = self.global_tokens
        for primitive in self.primitives():
            primitive._check_size(queries, keys, tokens)

    @cached_property
    def core(self) -> _compiled.Pattern:
        """The pattern in the form of the compiled module, which may change in any version."""
        return _compiled.Pattern([[p._for_core() for p in conjunction] for conjunction in self.conjunctions()])

    def mask(
        self, tokens: int, key_tokens: int | None = None, *, num_heads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Return the allowed pairs as a dense mask, for inspection of small inputs.

        Parameters
        ----------
        tokens, key_tokens : int
            Numbers of queries and keys. Default of `key_tokens`: `tokens`.
        num_heads : int, optional
            Number of heads; required for a pattern that is drawn separately for every head.

        Returns
        -------
        ndarray of bool, shape (tokens, key_tokens)
            With leading axes of batch items and heads for a pattern that differs between them. A pattern does not
            include causality.

        Raises
        ------
        ValueError
            If a size is below 1 or does not fit the pattern, for more than 2**26 pairs, or if `num_heads` is required.

        Examples
        --------
        >>> from headspan.patterns import Window
        >>> Window(2).mask(3).astype(int)
        array([[1, 0, 0],
               [1, 1, 0],
               [0, 1, 1]])
        """
        queries = _check.integer("tokens", tokens, at_least=1)
        keys = queries if key_tokens is None else _check.integer("key_tokens", key_tokens, at_least=1)
        count = self.heads if num_heads is None else _check.integer("num_heads", num_heads, at_least=1)
        if count is None and self._differs_by_head:
            raise ValueError(f"heads must be given for a mask of {self.short_name()}, because it differs between heads")
        items, count = self.items or 1, (count or 1) if self._differs_by_head else 1
        if items * count * queries * keys > _MOST_PAIRS:
            raise ValueError(f"a mask holds at most {_MOST_PAIRS} pairs, not those of {queries} and {keys} tokens")
        self.check_batch(items, count)
        parts = [self.part(item, head) for item in range(items) for head in range(count)]
        for part in parts:
            part.check_tokens(queries, keys)
        masks = np.stack([part.core.mask(queries, keys) for part in parts])
        leading = (items,) * (self.items is not None) + (count,) * self._differs_by_head
        return masks.reshape(*leading, queries, keys)


class _Composition(Pattern):
    _parts: tuple[Pattern, ...]
    _sign: ClassVar[str]

    def __init__(self, parts: tuple[Pattern, ...]) -> None:
        flat: list[Pattern] = []
        for part in parts:
            flat.extend(part._parts if type(part) is type(self) else [part])
        self._parts = tuple(flat)
        grids = sorted({part.grid for part in self._parts if part.grid})
        if len(grids) > 1:
            raise ValueError(
                f"the parts of a pattern must have the same Neighborhood shape, got {grids[0]} and {grids[1]}"
            )
        starts = sorted({part.grid_start for part in self._parts if part.grid})
        if len(starts) > 1:
            raise ValueError(
                f"the grids of a pattern must start at the same token, got {starts[0]} and {starts[1]}; see extra"
            )
        items = sorted({part.items for part in self._parts if part.items is not None})
        if len(items) > 1:
            raise ValueError(
                f"the parts of a pattern must be for the same number of batch items, got {items[0]} and {items[1]}"
            )
        heads = sorted({part.heads for part in self._parts if part.heads is not None})
        if len(heads) > 1:
            raise ValueError(
                f"the parts of a pattern must be for the same number of heads, got {heads[0]} and {heads[1]}"
            )
        if (number := self._count_conjunctions()) > _MOST_CONJUNCTIONS:
            raise ValueError(f"a pattern must have at most {_MOST_CONJUNCTIONS} intersections in a union, not {number}")

    def _count_conjunctions(self) -> int:
        counts = [part._count_conjunctions() if isinstance(part, _Composition) else 1 for part in self._parts]
        return sum(counts) if self._sign == "|" else math.prod(counts)

    def part(self, item: int, head: int) -> Pattern:
        if self.is_shared:
            return self
        return type(self)(tuple(part.part(item, head) for part in self._parts))

    def with_globals_below(self, keys: int) -> Pattern:
        return type(self)(tuple(part.with_globals_below(keys) for part in self._parts))

    def primitives(self) -> list[Primitive]:
        return [primitive for part in self._parts for primitive in part.primitives()]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._parts == self._parts

    def __hash__(self) -> int:
        return hash((type(self), self._parts))

    def __repr__(self) -> str:
        return self._joined(repr)

    def _brief(self) -> str:
        return self._joined(lambda part: part._brief())

    def _joined(self, write: Callable[[Pattern], str]) -> str:
        return f" {self._sign} ".join(
            f"({write(part)})" if isinstance(part, _Composition) else write(part) for part in self._parts
        )


class _Union(_Composition):
    _sign = "|"

    @property
    def alternatives(self) -> tuple[Pattern, ...]:
        return self._parts

    def conjunctions(self) -> list[tuple[Primitive, ...]]:
        return [conjunction for part in self._parts for conjunction in part.conjunctions()]


class _Intersection(_Composition):
    _sign = "&"

    def conjunctions(self) -> list[tuple[Primitive, ...]]:
        return [sum(factors, ()) for factors in itertools.product(*(part.conjunctions() for part in self._parts))]


class Primitive(Pattern):
    """A pattern that is not an expression of others; the core has a class of the same name."""

    _name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]  # every primitive is a dataclass

    @property
    def items(self) -> int | None:
        return None

    @property
    def heads(self) -> int | None:
        return None

    @property
    def _differs_by_head(self) -> bool:
        return self.heads is not None

    @property
    def grid(self) -> tuple[int, ...]:
        return ()

    @property
    def grid_start(self) -> int:
        return 0

    @property
    def global_tokens(self) -> tuple[int, ...]:
        return ()

    @property
    def default_causal(self) -> bool | None:
        """Default of `causal`; None if the caller must pass it, False if the pattern itself defines what is later."""
        return True

    def part(self, item: int, head: int) -> Pattern:
        return self

    def primitives(self) -> list[Primitive]:
        return [self]

    def conjunctions(self) -> list[tuple[Primitive, ...]]:
        return [(self,)]

    def _check_size(self, queries: int, keys: int, global_tokens: tuple[int, ...]) -> None:
        """Raise ValueError if the primitive does not fit these numbers of tokens and these global tokens."""

    def _numbers(self) -> Sequence[int] | npt.NDArray[np.int64]:
        """Return the arguments of the core, by default the fields."""
        return [min(getattr(self, f.name), MAX_TOKENS) for f in fields(self)]

    def _avoided(self) -> Pattern | None:
        """Return the pattern whose pairs the primitive avoids, or None."""
        return None

    def _for_core(self) -> tuple[str, Sequence[int] | npt.NDArray[np.int64], _compiled.Pattern | None]:
        avoided = self._avoided()
        return self._name, self._numbers(), None if avoided is None else avoided.core

    def _brief(self) -> str:
        words = []
        for i, field in enumerate(fields(self)):
            if not field.init:
                continue
            value = getattr(self, field.name)
            alike = isinstance(value, tuple) and len(set(value)) == 1
            if value == field.default or (alike and value[:1] == field.default):
                continue
            if alike and field.name != "shape":
                value = value[0]
            if isinstance(value, Pattern):
                value = value._brief()
            words.append(f"{value}" if i == 0 else f"{field.name}={value}")
        return f"{type(self).__name__}({', '.join(words)})"

    def _check_integer(self, name: str, *, at_least: int) -> int:
        value = _check.integer(f"{name} of {type(self).__name__}", getattr(self, name), at_least=at_least)
        object.__setattr__(self, name, value)
        return value
