"""Tensors as NumPy sees them, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

# How NumPy writes a type, and its bytes; those of torch that NumPy does not have are not here.
_TYPES = {
    getattr(torch, name): (np.dtype(name).str, np.dtype(name).itemsize)
    for name in (
        *("float16", "float32", "float64", "complex64", "complex128", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
}
HALF = (torch.bfloat16, torch.float16)
READABLE = frozenset((*_TYPES, *HALF))


class _Memory:
    """What lends its memory to an array, and stays alive as long as that."""

    __slots__ = ("__array_interface__", "_tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        written, size = _TYPES[tensor.dtype]
        self._tensor = tensor
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": tensor.shape,
            "strides": None if tensor.is_contiguous() else tuple([size * step for step in tensor.stride()]),
            "typestr": written,
            "version": 3,
        }


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
    return np.asarray(_Memory(tensor))


def wide_array_of(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return the numbers of a tensor on the CPU as `array_of` does, 16-bit floats as a copy in float32."""
    return array_of(tensor.float() if tensor.dtype in HALF else tensor)
