"""The arguments of a call, sorted into arrays and plain ones, and checked as far as they are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.jax.call import OPERANDS
from headspan.ops.adapters.options import PLAIN
from headspan.ops.arguments.narrow import is_narrow, is_narrow_type
from headspan.ops.arguments.options import DEFAULTS
from headspan.ops.arguments.request import PLAIN as CHECKS
from headspan.ops.arguments.request import Request
from headspan.ops.functional import ARRAYS


def sorted_arguments(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return arguments that are arrays, those of NumPy in a type that JAX has, and the checked plain ones."""
    arrays, plain = {}, {}
    for name, x in given.items():
        if x is None and name not in DEFAULTS and name not in ARRAYS:
            continue
        if name in OPERANDS and (name not in PLAIN or isinstance(x, jax.Array)):
            arrays[name] = _array(name, x)
        else:
            plain[name] = _plain(name, x)
    return arrays, plain


def _array(name: str, given: Any) -> Any:
    if isinstance(given, jax.Array):
        if jax.dtypes.issubdtype(given.dtype, jax.dtypes.extended):
            raise TypeError(f"{name} must be numbers, not {given.dtype}")
        return given
    array = _check.as_array(name, given)
    if name in ARRAYS and not is_narrow(array):
        array = _check.float_array(name, given)  # which says what else there is
    if array.dtype.kind not in "biuf":
        return array  # perhaps bfloat16
    dtype = np.dtype(np.float64) if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    known = array.astype(jax.dtypes.canonicalize_dtype(dtype), copy=False)
    if array.dtype.kind in "iu" and (known != array).any():
        raise ValueError(f"{name} must fit into {known.dtype}, unless jax_enable_x64 is set")
    return known


def _plain(name: str, given: Any) -> Any:
    if isinstance(given, jax.core.Tracer):
        raise TypeError(f"{name} must be known when the function is traced, and be no traced array")
    if isinstance(given, jax.Array):
        given = np.asarray(given)[()]
    if name == "pattern":
        return given
    if name == "causal":
        return _check.flag(name, given)
    return _check.pair(name, given) if name == "gate_block" else CHECKS[name](name, given)


def check(arrays: Mapping[str, Any], plain: Mapping[str, Any]) -> None:
    """Check shapes, types, and the values that are known: what JAX has yet to compute is looked at when it is there."""
    its = {name: np.dtype(arrays[name].dtype) for name in ARRAYS}
    for name, dtype in its.items():
        if dtype != its["query"] and (is_narrow_type(dtype) or is_narrow_type(its["query"])):
            raise TypeError(f"{name} is {dtype} but query is {its['query']}; they must be alike")
    known = {name: _stand_in(name, x) for name, x in arrays.items()}
    if "seed" in known:
        known["seed"] = known["seed"].item() if known["seed"].shape == () else known["seed"]
    query, key, value = (known.pop(name) for name in ARRAYS)
    Request(query, key, value, {**known, **plain})


def _stand_in(name: str, array: Any) -> npt.NDArray[Any]:
    """Return an array of that shape and type with values that are allowed, in no memory, or what is known."""
    if isinstance(array, np.ndarray) and name not in ARRAYS:
        return array
    dtype = np.dtype(np.float32) if is_narrow_type(np.dtype(array.dtype)) else np.dtype(array.dtype)
    fill = np.ones if name == "temperature" else np.zeros
    return np.broadcast_to(fill(array.shape[-1:], dtype), array.shape)
