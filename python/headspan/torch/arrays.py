"""NumPy views of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headspan.ops.execution.runtime import array_over

# The torch types that NumPy supports.
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
    """Return a CPU tensor as an array that shares its memory.

    Unlike ``tensor.numpy()``, the storage stays resizable, which sharded parameters require.

    Raises
    ------
    ValueError
        If the tensor is on another device.
    """
    if not tensor.is_cpu:
        raise ValueError(f"tensor must be on the CPU, not on {tensor.device}")
    return array_over(tensor, tensor.data_ptr(), tensor.shape, tensor.stride(), _TYPES[tensor.dtype])


def wide_array_of(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return a CPU tensor as `array_of` does, but 16-bit floats as a float32 copy."""
    return array_of(tensor.float() if tensor.dtype in HALF else tensor)


def adjacent_heads(tensor: torch.Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return an empty tensor with adjacent heads, which is the memory layout of all results of attention."""
    if len(shape) < 3:
        return tensor.new_empty(shape, dtype=dtype)
    *batch, heads, tokens, dim = shape
    return tensor.new_empty((*batch, tokens, heads, dim), dtype=dtype).transpose(-3, -2)


def keeps_exact_output(query: torch.Tensor) -> bool:
    """Whether the output before rounding to 16 bits is kept for the backward pass, which a GPU has no memory for."""
    return not query.is_cuda
