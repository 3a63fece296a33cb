"""The checked arguments of one attention, converted for the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from headspan import _check, _core
from headspan._check import Array
from headspan.ops.arguments import dropout, narrow, visibility
from headspan.ops.arguments.gathered import Gathered
from headspan.ops.arguments.options import DEFAULTS, NAMES, refuse_unknown
from headspan.ops.arguments.parameters import KeyBias, Memory, Parameter, PerQuery
from headspan.ops.arguments.segments import Segments
from headspan.ops.arguments.sizes import Sizes, check_alike
from headspan.ops.arguments.terms import TERMS
from headspan.patterns.base import Pattern
from headspan.patterns.causality import resolve_causal
from headspan.patterns.per_head import per_head

_LOG2_E = 1.4426950408889634
# Options that are not arrays, and their checks.
PLAIN: dict[str, Callable[[str, Any], object]] = {
    "scale": _check.number,
    "ramp": partial(_check.number, at_least=0),
    "softcap": partial(_check.within, low=1e-6, high=1e6),
    "include_self": _check.flag,
    "dropout": dropout.rate,
    "seed": dropout.seed,
}

# Options that must have the type of the query.
_OF_TYPE = ("pair_bias", "memory_key", "memory_value")


class Request:
    """One attention with its checked arguments.

    Attributes
    ----------
    query, key, value : ndarray
        Arrays with all four axes.
    ndim : int
        Number of axes of the arrays as passed.
    parameters : dict of Parameter
        The differentiable options that were passed, by name.
    narrow : dtype or None
        The 16-bit type of query, key and value, to which results are rounded; None for float32 and float64.
    narrow_options : dict of dtype
        The types of options with 16-bit floats, by name.
    causal : bool
        The option, or the default for the pattern.
    patterns : list of Pattern
        One pattern for all, one per head, or one per batch item and head, item by item; empty without a pattern.
    core : _core.Request
    """

    def __init__(
        self,
        query: object,
        key: object,
        value: object,
        options: Mapping[str, Any],
        *,
        for_core: Mapping[str, Any] | None = None,  # further arguments of the core
    ) -> None:
        if not options.keys() <= NAMES:
            refuse_unknown(options)
        self.narrow: np.dtype[Any] | None = None
        self.narrow_options: dict[str, np.dtype[Any]] = {}
        if narrow.is_narrow(query):
            query, key, value, options = self._widened(query, key, value, options)
        query, key = _check.float_array("query", query), _check.float_array("key", key)
        value = _check.float_array("value", value)
        self.query, self.key, self.value = query, key, value
        shape, dtype = query.shape, query.dtype
        self.ndim = ndim = len(shape)
        # In the usual case all arrays have the same type and shape, and further checks are not needed.
        if not (ndim == 4 and shape == key.shape == value.shape and all(shape) and dtype is key.dtype is value.dtype):
            check_alike({"query": query, "key": key, "value": value})
        if ndim < 4:
            leading = (None,) * (4 - ndim)
            self.query, self.key, self.value = self.query[leading], self.key[leading], self.value[leading]
        self.parameters: dict[str, Parameter] = {}
        for_core = {"scale": shape[-1] ** -0.5, **(for_core or {})}
        arrays: dict[str, Any] = {}
        for name, option in options.items():
            if name in PLAIN:
                if option is not None or name in DEFAULTS:
                    for_core[name] = PLAIN[name](name, option)
            elif option is not None and name != "causal":
                arrays[name] = option
        if for_core.get("dropout") and "seed" not in for_core:
            raise ValueError("dropout needs a seed, another one for each call, such as the number of the step")
        self._segments: Segments | None = None
        self.patterns: list[Pattern] = []
        if "pattern" in arrays:
            batch, heads, queries, _ = self.query.shape
            self.patterns = per_head(arrays.pop("pattern"), batch, heads, queries, self.key.shape[2])
            for_core["patterns"] = [pattern._in_core for pattern in self.patterns]
        furthest = self._add_arrays(arrays, for_core) if arrays else 0.0
        if any(pattern.grid for pattern in self.patterns):
            _check_grid(self.patterns, arrays)
        queries, keys, causal = self.query.shape[2], self.key.shape[2], options.get("causal")
        if self.patterns or queries > keys or causal is not None:
            placed = "query_positions" in arrays
            for_core["causal"] = resolve_causal(causal, self.patterns, queries, keys, placed=placed)
        self.causal: bool = for_core.get("causal", True)
        if "prefix_lengths" in arrays and not self.causal:
            raise ValueError("prefix_lengths need causal=True, since without it all queries see later keys")
        if options and (options.get("scale") is not None or "temperature" in arrays or "alibi_slopes" in arrays):
            self._check_factors(for_core["scale"], furthest)
        self.core: _core.Request | Gathered
        segments = self._segments
        if segments is not None and segments.gathered:
            if for_core.get("dropout"):
                raise ValueError(
                    f"dropout goes by tokens in their order, and cannot be given with {segments.names} that come back"
                )
            orders = segments.query_order, segments.key_order
            self.core = Gathered(self.query, self.key, self.value, for_core, orders)
        else:
            self.core = _core.Request(self.query, self.key, self.value, for_core)

    def _widened(
        self, query: Any, key: object, value: object, options: Mapping[str, Any]
    ) -> tuple[Array, Array, Array, dict[str, Any]]:
        """Convert 16-bit floats to float32 and note their types."""
        arrays: dict[str, Any] = {"query": query, "key": key, "value": value}
        for name, array in arrays.items():
            if getattr(array, "dtype", None) != query.dtype:
                dtype = getattr(array, "dtype", type(array).__name__)
                raise TypeError(f"{name} is {dtype} but query is {query.dtype}; they must be alike")
        self.narrow = query.dtype
        # Options that must have the type of the query are converted, too.
        options = dict(options)
        for name in _OF_TYPE:
            option = options.get(name)
            if narrow.is_narrow(option):
                self.narrow_options[name], options[name] = option.dtype, narrow.widened(option)
        wide_query, wide_key, wide_value = (narrow.widened(array) for array in arrays.values())
        return wide_query, wide_key, wide_value, options

    def _add_arrays(self, arrays: dict[str, Any], for_core: dict[str, Any]) -> float:
        """Check the options that are arrays and add them to `for_core`; return a bound that exceeds every distance."""
        batch, heads, queries, _ = self.query.shape
        sizes = Sizes(batch, heads, self.key.shape[1], queries, self.key.shape[2], self.ndim, self.query.dtype)
        furthest: float = 2.0 * (queries + sizes.keys)
        self._segments = segments = Segments.of_options(arrays, sizes)
        if segments is not None and self.patterns:
            _check_pattern_of(segments, self.patterns)
        if "query_positions" in arrays or "key_positions" in arrays or (segments is not None and segments.placed):
            places = arrays.get("query_positions"), arrays.get("key_positions")
            positions = visibility.positions(*places, sizes, segments)
            for_core["query_positions"], for_core["key_positions"] = positions
            furthest = positions.furthest()
        parameters = self.parameters
        if "span" in arrays:
            parameters["span"] = PerQuery("span", arrays["span"], sizes, below=furthest)
        if "temperature" in arrays:
            parameters["temperature"] = PerQuery("temperature", arrays["temperature"], sizes, positive=True)
        if "alibi_slopes" in arrays:
            parameters["alibi_slopes"] = PerQuery("alibi_slopes", arrays["alibi_slopes"], sizes, per_token=False)
        if "sinks" in arrays:
            parameters["sinks"] = PerQuery("sinks", arrays["sinks"], sizes, per_token=False, score=True)
        if "memory_key" in arrays or "memory_value" in arrays:
            parameters |= self._memory(arrays, sizes)
        if "key_bias" in arrays:
            parameters["key_bias"] = bias = KeyBias(arrays["key_bias"], sizes)
            if bias.removed is not None:
                for_core["removed"] = bias.removed
        for name, parameter in parameters.items():
            for_core[name] = parameter.array
        for name, kind in TERMS.items():
            for other in arrays.keys() & kind.companions:
                if name not in arrays:
                    raise ValueError(f"{other} says more about {name}, which must be given beside it")
        terms = {name: TERMS[name](arrays, sizes, self._grid(arrays)) for name in TERMS if name in arrays}
        if terms:
            parameters |= terms
            for_core["terms"] = {name: term.arrays for name, term in terms.items()}
            for name, term in terms.items():
                if term.by_index and segments is not None and segments.gathered:
                    raise ValueError(f"{name} goes by index, and cannot be given with {segments.names} that come back")
        for_core |= visibility.limits(arrays, sizes, segments)
        return furthest

    def _memory(self, arrays: Mapping[str, Any], sizes: Sizes) -> dict[str, Memory]:
        """Check the memory keys and values."""
        dims = {"memory_key": self.key.shape[3], "memory_value": self.value.shape[3]}
        for name in dims:
            if name not in arrays:
                raise ValueError(f"memory_key and memory_value go together, but {name} was not given")
        memory = {name: Memory(name, arrays[name], sizes, dim) for name, dim in dims.items()}
        keys, values = (each.array.shape[1] for each in memory.values())
        if keys != values:
            raise ValueError(f"memory_key and memory_value must be as many, not {keys} and {values}")
        return memory

    def _grid(self, arrays: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the shape of the grid of all patterns, empty without a grid."""
        grids = {tuple(pattern.grid or ()) for pattern in self.patterns} or {()}
        if len(grids) > 1 and "distance_bias" in arrays:
            raise ValueError("distance_bias must mean the same for all heads, but their patterns differ in the grid")
        return grids.pop()

    def _check_factors(self, scale: float, furthest: float) -> None:
        """Raise ValueError if factors of the scores, times log2(e) as in the core, overflow the type of the query."""
        temperature, slopes = self.parameters.get("temperature"), self.parameters.get("alibi_slopes")
        coldest = temperature.low if isinstance(temperature, PerQuery) and temperature.array.size else 1.0
        factors = {"scale / temperature": abs(scale) / coldest}
        if isinstance(slopes, PerQuery):
            factors["alibi_slopes * distance"] = max(-slopes.low, slopes.high) * furthest
        for name, factor in factors.items():
            if factor * _LOG2_E > float(_check.FINFO[self.query.dtype].max):
                raise ValueError(f"{name} must fit into {self.query.dtype}, but comes to {factor:g}")

    def as_given(self, array: Array) -> Array:
        """Remove the leading axes that the arguments did not have."""
        if self.ndim == 4:
            return array
        inner: Array = array[(0,) * (4 - self.ndim)]
        return inner

    def to_4d(self, array: Array) -> Array:
        """Add the leading axes that the arguments did not have."""
        return array if self.ndim == 4 else array[(None,) * (4 - self.ndim)]


def _check_pattern_of(segments: Segments, patterns: list[Pattern]) -> None:
    """Raise ValueError for segments that cannot be combined with the patterns."""
    if segments.gathered:
        raise ValueError(f"{segments.names} that come back cannot be combined with a pattern, which goes by index")
    if segments.placed and any(pattern.grid for pattern in patterns):
        raise ValueError(f"{segments.names} must leave queries beside the last keys within a Neighborhood")


def _check_grid(patterns: list[Pattern], arrays: dict[str, Any]) -> None:
    """Raise ValueError for options that cannot be combined with a grid."""
    if "query_positions" in arrays or "key_positions" in arrays:
        raise ValueError("query_positions and key_positions cannot be combined with a Neighborhood, which has its own")
    for name in arrays.keys() & {"alibi_slopes", "distance_bias"}:
        for pattern in patterns:
            if pattern.grid and not all(token in pattern._on_grid for token in pattern.global_tokens):
                raise ValueError(f"{name} need distances, which tokens beside the grid of a Neighborhood do not have")
