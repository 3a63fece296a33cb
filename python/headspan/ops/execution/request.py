"""The arguments of one attention, parsed, checked, and lowered to the form of the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headspan import _check, _compiled
from headspan._check import Array
from headspan.ops.arguments.checked import Checked, check, parse
from headspan.ops.arguments.options import ARRAY_OPTIONS
from headspan.ops.arguments.parameters import KeyBias
from headspan.ops.arguments.sizes import check_alike
from headspan.ops.arguments.terms import Term
from headspan.ops.execution import narrow
from headspan.ops.execution.gathered import Gathered


class Request:
    """One attention with its checked arguments.

    Attributes
    ----------
    query, key, value : ndarray
        Arrays with all four axes.
    ndim : int
        Number of axes of the arrays as passed.
    parameters : mapping of Parameter
        The differentiable options that were passed, by name.
    narrow : dtype or None
        The 16-bit type of query, key and value, to which results are rounded; None for float32 and float64.
    narrow_options : dict of dtype
        The types of options with 16-bit floats, by name.
    causal : bool
        The option, or the default for the pattern.
    patterns : sequence of Pattern
        One pattern for all, one per head, or one per batch item and head, item by item; empty without a pattern.
    core : _compiled.Request
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
        plain, arrays, pattern = parse(options)
        self.narrow: np.dtype[Any] | None = None
        self.narrow_options: dict[str, np.dtype[Any]] = {}
        if narrow.is_narrow(query):
            self.narrow, self.narrow_options = query.dtype, _narrow_types(arrays)
            query, key, value = _widened(query, key, value)
            arrays = {name: narrow.widened(x) if name in self.narrow_options else x for name, x in arrays.items()}
        self.query, self.key, self.value, self.ndim = _with_four_axes(query, key, value)
        checked = check(self.query, self.key, self.value, self.ndim, plain, arrays, pattern)
        self.patterns, self.causal, self.parameters = checked.patterns, checked.causal, checked.parameters
        options_of_core = lower(self.query, plain, checked, for_core)
        self.core: _compiled.Request | Gathered
        if checked.segments is not None and checked.segments.gathered:
            orders = checked.segments.query_order, checked.segments.key_order
            self.core = Gathered(self.query, self.key, self.value, options_of_core, orders)
        else:
            self.core = _compiled.Request(self.query, self.key, self.value, options_of_core)

    def from_4d(self, array: Array) -> Array:
        """Remove the leading axes that the arguments did not have."""
        if self.ndim == 4:
            return array
        inner: Array = array[(0,) * (4 - self.ndim)]
        return inner

    def to_4d(self, array: Array) -> Array:
        """Add the leading axes that the arguments did not have."""
        return array if self.ndim == 4 else array[(None,) * (4 - self.ndim)]


def lower(
    query: Array, plain: Mapping[str, Any], checked: Checked, further: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the options of the core."""
    causal, patterns, _, positions, parameters, limits = checked
    core = {"scale": query.shape[-1] ** -0.5, **plain}
    if further:
        core.update(further)
    if limits:
        core.update(limits)
    if not causal:
        core["causal"] = False
    if patterns:
        core["patterns"] = [pattern.core for pattern in patterns]
    if positions is not None:
        core["query_positions"], core["key_positions"] = positions
    if not parameters:
        return core
    terms = {}
    for name, parameter in parameters.items():
        if isinstance(parameter, Term):
            terms[name] = parameter.arrays
            continue
        core[name] = parameter.array
        if isinstance(parameter, KeyBias) and parameter.removed is not None:
            core["removed"] = parameter.removed
    if terms:
        core["terms"] = terms
    return core


def _with_four_axes(query: object, key: object, value: object) -> tuple[Array, Array, Array, int]:
    """Return query, key and value with all four axes, and the number of axes that they had."""
    query, key = _check.float_array("query", query), _check.float_array("key", key)
    value = _check.float_array("value", value)
    shape, dtype = query.shape, query.dtype
    ndim = len(shape)
    # In the usual case all arrays have the same type and shape, and further checks are not needed.
    if not (ndim == 4 and shape == key.shape == value.shape and all(shape) and dtype is key.dtype is value.dtype):
        check_alike({"query": query, "key": key, "value": value})
    if ndim < 4:
        leading = (None,) * (4 - ndim)
        query, key, value = query[leading], key[leading], value[leading]
    return query, key, value, ndim


def _widened(query: Any, key: object, value: object) -> tuple[Array, ...]:
    """Convert 16-bit floats to float32."""
    arrays: dict[str, Any] = {"query": query, "key": key, "value": value}
    for name, array in arrays.items():
        if getattr(array, "dtype", None) != query.dtype:
            dtype = getattr(array, "dtype", type(array).__name__)
            raise TypeError(f"{name} is {dtype} but query is {query.dtype}; they must have the same type")
    return tuple(narrow.widened(array) for array in arrays.values())


def _narrow_types(arrays: Mapping[str, Any]) -> dict[str, np.dtype[Any]]:
    """Return the types of options with 16-bit floats that must have the type of the query."""
    return {
        name: array.dtype
        for name, array in arrays.items()
        if ARRAY_OPTIONS[name].query_type and narrow.is_narrow(array)
    }
