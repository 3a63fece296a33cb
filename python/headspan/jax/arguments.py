"""The arguments of a call, sorted into arrays and plain options, and checked as far as their values are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.jax.call import OPERANDS, STATIC
from headspan.ops.adapters.options import PLAIN
from headspan.ops.arguments.options import DEFAULTS, PLAIN_OPTIONS, ROWS
from headspan.ops.execution.functional import ARRAYS
from headspan.ops.execution.narrow import is_narrow, is_narrow_type
from headspan.ops.execution.request import Request


def sorted_arguments(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the array arguments, with NumPy arrays cast to types of JAX, and the checked plain arguments."""
    arrays, plain = {}, {}
    for name, x in arguments.items():
        if x is None and name not in DEFAULTS and name not in ARRAYS:
            continue
        if name in OPERANDS and (name not in PLAIN or isinstance(x, jax.Array)):
            arrays[name] = _array(name, x)
        else:
            plain[name] = _plain(name, x)
    return arrays, plain


def _array(name: str, x: Any) -> Any:
    if isinstance(x, jax.Array):
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
            raise TypeError(f"{name} must be numbers, not {x.dtype}")
        return x
    array = _check.as_array(name, x)
    if name in ARRAYS and not is_narrow(array):
        array = _check.float_array(name, x)  # raises an error for other types
    if array.dtype.kind not in "biuf":
        return array  # may be bfloat16
    dtype = np.dtype(np.float64) if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    known = array.astype(jax.dtypes.canonicalize_dtype(dtype), copy=False)
    if array.dtype.kind in "iu" and (known != array).any():
        raise ValueError(f"{name} must fit into {known.dtype}, unless jax_enable_x64 is set")
    return known


def _plain(name: str, x: Any) -> Any:
    if isinstance(x, jax.core.Tracer):
        raise TypeError(f"{name} must be a concrete value, not a traced array")
    if isinstance(x, jax.Array):
        x = np.asarray(x)[()]
    if name == "pattern":
        return x
    return STATIC[name](name, x) if name in STATIC else PLAIN_OPTIONS[name].check(name, x)


def check(arrays: Mapping[str, Any], plain: Mapping[str, Any]) -> None:
    """Check shapes, types and known values. Values that JAX has not computed yet are checked when the call runs."""
    dtypes = {name: np.dtype(arrays[name].dtype) for name in ARRAYS}
    for name, dtype in dtypes.items():
        if dtype != dtypes["query"] and (is_narrow_type(dtype) or is_narrow_type(dtypes["query"])):
            raise TypeError(f"{name} is {dtype} but query is {dtypes['query']}; they must have the same type")
    known = {name: _stand_in(name, x) for name, x in arrays.items()}
    if "seed" in known:
        known["seed"] = known["seed"].item() if known["seed"].shape == () else known["seed"]
    query, key, value = (known.pop(name) for name in ARRAYS)
    Request(query, key, value, {**known, **plain})


def _stand_in(name: str, array: Any) -> npt.NDArray[Any]:
    """Return a known array, or a broadcast array of the same shape and type with valid values for an unknown one."""
    if isinstance(array, np.ndarray) and name not in ARRAYS:
        return array
    dtype = np.dtype(np.float32) if is_narrow_type(np.dtype(array.dtype)) else np.dtype(array.dtype)
    neutral = ROWS[name].neutral if name in ROWS else 0
    return np.broadcast_to(np.full(array.shape[-1:], neutral, dtype), array.shape)
