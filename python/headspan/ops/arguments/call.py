"""The checked arguments of one attention, as the core takes them."""

from collections.abc import Sequence
from typing import TypedDict

import numpy.typing as npt

from headspan import _check, _core
from headspan._check import Array
from headspan.ops.arguments import visibility
from headspan.ops.arguments.parameters import KeyBias, PerQuery
from headspan.ops.arguments.sizes import Sizes, check_alike
from headspan.patterns.base import Pattern
from headspan.patterns.per_head import per_head

_LOG2_E = 1.4426950408889634


class Options(TypedDict, total=False):
    """The options of an attention as they are given; see `headspan.attention`."""

    span: npt.ArrayLike | None
    ramp: float
    causal: bool
    include_self: bool
    scale: float | None
    temperature: npt.ArrayLike | None
    alibi_slopes: npt.ArrayLike | None
    pattern: Pattern | Sequence[Pattern] | None
    query_positions: npt.ArrayLike | None
    key_positions: npt.ArrayLike | None
    key_lengths: npt.ArrayLike | None
    segment_ids: npt.ArrayLike | None
    key_bias: npt.ArrayLike | None


class Call:
    """The checked arguments of one call, as the core takes them.

    They come one by one, by position: gathering them takes a small call a quarter of its time.
    """

    def __init__(
        self,
        query: object,
        key: object,
        value: object,
        span: npt.ArrayLike | None,
        ramp: float,
        causal: bool,
        include_self: bool,
        scale: float | None = None,
        temperature: npt.ArrayLike | None = None,
        alibi_slopes: npt.ArrayLike | None = None,
        pattern: Pattern | Sequence[Pattern] | None = None,
        query_positions: npt.ArrayLike | None = None,
        key_positions: npt.ArrayLike | None = None,
        key_lengths: npt.ArrayLike | None = None,
        segment_ids: npt.ArrayLike | None = None,
        key_bias: npt.ArrayLike | None = None,
    ) -> None:
        query, key = _check.float_array("query", query), _check.float_array("key", key)
        value = _check.float_array("value", value)
        self.query, self.key, self.value = query, key, value
        shape, dtype = query.shape, query.dtype
        self.ndim = ndim = len(shape)
        # Arrays of one type and shape, the usual ones, need no more than to be known as such.
        if not (ndim == 4 and shape == key.shape == value.shape and all(shape) and dtype is key.dtype is value.dtype):
            check_alike({"query": query, "key": key, "value": value})
        if ndim < 4:
            leading = (None,) * (4 - ndim)
            self.query, self.key, self.value = self.query[leading], self.key[leading], self.value[leading]
        positions = None
        if query_positions is not None or key_positions is not None:
            positions = visibility.positions(query_positions, key_positions, self.sizes)
        self.span = None if span is None else PerQuery("span", span, self.sizes, below=self._furthest(positions))
        self.temperature = (
            None if temperature is None else PerQuery("temperature", temperature, self.sizes, positive=True)
        )
        self.slopes = (
            None if alibi_slopes is None else PerQuery("alibi_slopes", alibi_slopes, self.sizes, per_token=False)
        )
        factor = shape[-1] ** -0.5 if scale is None else _check.number("scale", scale)
        if scale is not None or temperature is not None or alibi_slopes is not None:
            self._check_factors(factor, positions)
        self.key_bias = None if key_bias is None else KeyBias(key_bias, self.sizes)
        self.core = _core.Problem(
            self.query,
            self.key,
            self.value,
            None if self.span is None else self.span.array,
            None if self.temperature is None else self.temperature.array,
            None if self.slopes is None else self.slopes.array,
            factor,
            _check.number("ramp", ramp, at_least=0),
            _check.flag("causal", causal),
            _check.flag("include_self", include_self),
        )
        if (
            positions is not None
            or pattern is not None
            or key_lengths is not None
            or segment_ids is not None
            or key_bias is not None
        ):
            self._extend(positions, pattern, key_lengths, segment_ids)

    @property
    def sizes(self) -> Sizes:
        """What the other arguments must suit; made when it is needed, which a plain call does not."""
        batch, heads, queries, _ = self.query.shape
        return Sizes(batch, heads, queries, self.key.shape[2], self.ndim, self.query.dtype)

    def _furthest(self, positions: visibility.Positions | None) -> float:
        """Beyond every distance."""
        return 2.0 * (self.query.shape[2] + self.key.shape[2]) if positions is None else positions.furthest()

    def _check_factors(self, scale: float, positions: visibility.Positions | None) -> None:
        """Refuse factors of the scores that their type cannot hold, as the core takes them, for powers of 2."""
        coldest = 1.0 if self.temperature is None or not self.temperature.array.size else self.temperature.low
        factors = {"scale / temperature": abs(scale) / coldest}
        if self.slopes is not None:
            steepest = max(-self.slopes.low, self.slopes.high)
            factors["alibi_slopes * distance"] = steepest * self._furthest(positions)
        for name, factor in factors.items():
            if factor * _LOG2_E > float(_check.FINFO[self.query.dtype].max):
                raise ValueError(f"{name} must fit into {self.query.dtype}, but comes to {factor:g}")

    def _extend(
        self,
        positions: visibility.Positions | None,
        pattern: Pattern | Sequence[Pattern] | None,
        key_lengths: npt.ArrayLike | None,
        segment_ids: npt.ArrayLike | None,
    ) -> None:
        """Hand the core the arguments that few calls have."""
        sizes = self.sizes
        patterns = per_head(pattern, sizes.heads, sizes.queries, sizes.keys)
        if positions is not None and any(its.grid for its in patterns):
            raise ValueError(
                "query_positions and key_positions cannot be combined with a Neighborhood, which has its own"
            )
        first, last = (None, None) if segment_ids is None else visibility.segments(segment_ids, sizes)
        self.core.extend(
            [pattern.core for pattern in patterns],
            None if positions is None else positions.query,
            None if positions is None else positions.key,
            None if key_lengths is None else visibility.key_lengths(key_lengths, sizes),
            first,
            last,
            None if self.key_bias is None else self.key_bias.array,
            None if self.key_bias is None else self.key_bias.removed,
        )

    def outside(self, array: Array) -> Array:
        """Take away the axes that the arguments did not have."""
        if self.ndim == 4:
            return array
        inner: Array = array[(0,) * (4 - self.ndim)]
        return inner

    def inside(self, name: str, given: object, shape: tuple[int, ...]) -> Array:
        """Check an array that must be like a result, and give it the core's axes."""
        array = _check.gradient(name, given, shape, beside=("query", self.query))
        return array[(None,) * (4 - self.ndim)]
