"""Arrays of 16-bit floats, which are converted to float32 for computing, and results rounded to 16 bits."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from headspan import _compiled
from headspan._check import Array
from headspan.ops.execution.runtime import get_num_threads

NAMES = ("float16", "bfloat16")  # bfloat16 comes from ml_dtypes


def is_narrow(x: object) -> TypeGuard[npt.NDArray[Any]]:
    """Return whether an object is an array of 16-bit floats."""
    dtype = getattr(x, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.itemsize == 2 and dtype.name in NAMES


def is_narrow_type(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is float16 or bfloat16."""
    return dtype.itemsize == 2 and dtype.name in NAMES


def widened(array: npt.NDArray[Any]) -> Array:
    """Convert an array of 16-bit floats to float32."""
    rows = _rows(array)
    wide: Array = _compiled.widened(rows.view(np.uint16), array.dtype.name, get_num_threads()).reshape(array.shape)
    return wide


def narrowed(array: Array, dtype: np.dtype[Any], out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """Round a float32 array to a 16-bit type, into `out` if it is not None."""
    rows = _compiled.narrowed(_rows(array), dtype.name, get_num_threads())
    narrow: npt.NDArray[Any] = rows.view(dtype).reshape(array.shape)
    if out is None:
        return narrow
    out[...] = narrow
    return out


def _rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array with four axes, the last of which is contiguous."""
    if array.ndim > 4:
        array = array.reshape(-1, *array.shape[-3:])
    array = array[(None,) * (4 - array.ndim)]
    plain = array.flags.aligned and array.dtype.isnative and array.strides[-1] == array.itemsize
    return array if plain and all(s % array.itemsize == 0 for s in array.strides) else np.ascontiguousarray(array)
