"""Tensors as NumPy sees them, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headspan.ops.runtime import array_over

# The types that NumPy has, too.
_TYPES = {
    getattr(torch, name): np.dtype(name)
    for name in (
        *("float16", "float32", "float64", "complex64", "complex128", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
}
HALF = (torch.bfloat16, torch.float16)
READABLE = frozenset((*_TYPES, *HALF))


def array_of(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return the numbers of a tensor on the CPU as an array, in the same memory.

    Unlike ``tensor.numpy()`` it leaves the storage resizable, as it must be where parameters are sharded and gathered.

    Raises
    ------
    ValueError
        For a tensor elsewhere, whose address says nothing here.
    """
    if not tensor.is_cpu:
        raise ValueError(f"tensor must be on the CPU to be read, not on {tensor.device}")
    return array_over(tensor, tensor.data_ptr(), tensor.shape, tensor.stride(), _TYPES[tensor.dtype])


def wide_array_of(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return the numbers of a tensor on the CPU as `array_of` does, 16-bit floats as a copy in float32."""
    return array_of(tensor.float() if tensor.dtype in HALF else tensor)
