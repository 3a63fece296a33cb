"""Parse the options of a call, then check its arrays and its pattern, and all options against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.ops.arguments import dropout, visibility
from headspan.ops.arguments.options import (
    ARRAY_OPTIONS,
    BY_DISTANCE,
    DEFAULTS,
    PLAIN_OPTIONS,
    TERMS,
    refuse_unknown,
)
from headspan.ops.arguments.parameters import Parameter, PerQuery
from headspan.ops.arguments.segments import Segments
from headspan.ops.arguments.sizes import Sizes
from headspan.patterns.base import Pattern
from headspan.patterns.causality import resolve_causal
from headspan.patterns.per_head import per_head

_LOG2_E = 1.4426950408889634


class Checked(NamedTuple):
    """The checked options of a request; `limits` are padding, prefixes and key ranges for the core."""

    causal: bool = True
    patterns: Sequence[Pattern] = ()
    segments: Segments | None = None
    positions: visibility.Positions | None = None
    parameters: Mapping[str, Parameter] = MappingProxyType({})
    limits: Mapping[str, npt.NDArray[np.int64]] = MappingProxyType({})


_NO_OPTIONS = Checked()


def parse(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Return the checked numbers and flags, the arrays as passed, and the pattern or None."""
    if not options:
        return {}, {}, None
    plain, arrays = {}, {}
    for name, option in options.items():
        if name in PLAIN_OPTIONS:
            if option is not None or name in DEFAULTS:
                plain[name] = PLAIN_OPTIONS[name].check(name, option)
        elif name in ARRAY_OPTIONS:
            if option is not None:
                arrays[name] = option
        elif name != "pattern":
            refuse_unknown(options)
    dropout.check_seed(plain, plain.get("dropout"))
    return plain, arrays, options.get("pattern")


def check(
    query: Array, key: Array, value: Array, ndim: int, plain: Mapping[str, Any], arrays: Mapping[str, Any], pattern: Any
) -> Checked:
    """Check the options of a call; `plain` has been checked before, and `query`, `key` and `value` have four axes."""
    batch, heads, queries, head_dim = query.shape
    keys = key.shape[2]
    if not (plain or arrays or pattern is not None or queries > keys):  # shortcut for the usual case
        return _NO_OPTIONS
    patterns = per_head(pattern, batch, heads, queries, keys)
    segments = positions = None
    parameters, limits = {}, {}
    furthest = 2.0 * (queries + keys)
    if arrays:
        sizes = Sizes(batch, heads, key.shape[1], queries, keys, ndim, query.dtype, head_dim, value.shape[3], furthest)
        segments = Segments.of_options(arrays, sizes)
        if segments is not None:
            _check_segments(segments, patterns, plain, arrays)
        positions = _positions(arrays, sizes, segments)
        if positions is not None:
            furthest = positions.furthest()
            sizes = sizes._replace(furthest=furthest)
        parameters = _parameters(arrays, sizes, patterns)
        limits = visibility.limits(arrays, sizes, segments)
    if patterns:
        _check_grid(patterns, arrays)
    causal = plain.get("causal")
    if patterns or queries > keys or causal is not None:
        causal = resolve_causal(causal, patterns, queries, keys, placed="query_positions" in arrays)
    visibility.check_prefix(arrays, causal)
    if "scale" in plain or "temperature" in arrays or "alibi_slopes" in arrays:
        _check_factors(plain.get("scale", head_dim**-0.5), parameters, furthest, query.dtype)
    return Checked(causal is not False, patterns, segments, positions, parameters, limits)


def _positions(arrays: Mapping[str, Any], sizes: Sizes, segments: Segments | None) -> visibility.Positions | None:
    """Return the positions of queries and keys, or None for those of the core."""
    if "query_positions" not in arrays and "key_positions" not in arrays and (segments is None or not segments.placed):
        return None
    return visibility.positions(arrays.get("query_positions"), arrays.get("key_positions"), sizes, segments)


def _parameters(arrays: Mapping[str, Any], sizes: Sizes, patterns: Sequence[Pattern]) -> dict[str, Parameter]:
    """Check the options that have a gradient, and those that modify them."""
    for name, other in (("persistent_key", "persistent_value"), ("persistent_value", "persistent_key")):
        if name in arrays and other not in arrays:
            raise ValueError(f"persistent_key and persistent_value must be given together, but {other} was not given")
    parameters: dict[str, Parameter] = {}
    for name, option in arrays.items():
        row = ARRAY_OPTIONS[name]
        if row.parameter is not None:
            parameters[name] = row.parameter(name, option, sizes)
        if row.modifies is not None and row.modifies not in arrays:
            raise ValueError(f"{name} requires {row.modifies}")
    if "persistent_key" in parameters:
        keys, values = (parameters[name].array.shape[1] for name in ("persistent_key", "persistent_value"))
        if keys != values:
            raise ValueError(
                f"persistent_key and persistent_value must have the same number of keys, got {keys} and {values}"
            )
    if not TERMS.keys().isdisjoint(arrays):
        grid = _grid(patterns, arrays)
        parameters |= {name: term(arrays, sizes, grid) for name, term in TERMS.items() if name in arrays}
    return parameters


def _grid(patterns: Sequence[Pattern], arrays: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of the grid of all patterns, empty without a grid."""
    grids = {tuple(pattern.grid or ()) for pattern in patterns} or {()}
    if len(grids) > 1 and "distance_bias" in arrays:
        raise ValueError("distance_bias requires one grid for all heads, but their patterns have different grids")
    return grids.pop()


def _check_segments(
    segments: Segments, patterns: Sequence[Pattern], plain: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Raise ValueError for segments that cannot be combined with the other options."""
    if segments.gathered:
        if patterns:
            raise ValueError(f"{segments.names} that recur cannot be combined with a pattern, which uses indices")
        for name in arrays:
            if ARRAY_OPTIONS[name].by == "index":
                raise ValueError(f"{name} uses indices, and cannot be combined with {segments.names} that recur")
        if plain.get("dropout"):
            raise ValueError(
                f"dropout depends on the order of tokens, and cannot be combined with {segments.names} that recur"
            )
    if segments.placed and any(pattern.grid for pattern in patterns):
        raise ValueError(f"{segments.names} must align the queries with the last keys within a Neighborhood")


def _check_grid(patterns: Sequence[Pattern], arrays: Mapping[str, Any]) -> None:
    """Raise ValueError for options that cannot be combined with a grid."""
    if not any(pattern.grid for pattern in patterns):
        return
    if "query_positions" in arrays or "key_positions" in arrays:
        raise ValueError(
            "query_positions and key_positions cannot be combined with a Neighborhood, which has its own positions"
        )
    for name in arrays.keys() & BY_DISTANCE - {"span"}:  # no span limits pairs with tokens beside the grid
        for pattern in patterns:
            if pattern.grid and not all(token in pattern.grid_tokens for token in pattern.global_tokens):
                raise ValueError(
                    f"{name} require distances, which tokens outside the grid of a Neighborhood do not have"
                )


def _check_factors(scale: float, parameters: Mapping[str, Parameter], furthest: float, dtype: np.dtype[Any]) -> None:
    """Raise ValueError if factors of the scores, times log2(e) as in the core, overflow the type of the query."""
    temperature, slopes = parameters.get("temperature"), parameters.get("alibi_slopes")
    coldest = temperature.low if isinstance(temperature, PerQuery) and temperature.array.size else 1.0
    factors = {"scale / temperature": abs(scale) / coldest}
    if isinstance(slopes, PerQuery):
        factors["alibi_slopes * distance"] = max(-slopes.low, slopes.high) * furthest
    for name, factor in factors.items():
        if factor * _LOG2_E > float(_check.FINFO[dtype].max):
            raise ValueError(f"{name} must fit into {dtype}, but comes to {factor:g}")
