"""Signatures and values as `help`, editors and the interpreter display them."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import numpy as np

_FEW = 8  # numbers of an array that are shown one by one
_Class = TypeVar("_Class", bound=type[tuple[Any, ...]])


def as_written(cls: _Class) -> _Class:
    """Make the signature of a named tuple show its annotations as written, and arrays as ndarray, not `ForwardRef`."""
    annotations = cls.__new__.__annotations__
    for name, value in annotations.items():
        written = getattr(value, "__forward_arg__", None)
        if written is not None:
            annotations[name] = re.sub(r"\bArray\b", "ndarray", written)
    return cls


def described(value: object, **entries: object) -> str:
    """Return the representation of an object by its class and entries; long arrays are shown by their limits."""
    return f"{type(value).__name__}({', '.join(f'{name}={_written(entry)}' for name, entry in entries.items())})"


def _written(entry: object) -> str:
    if not isinstance(entry, np.ndarray):
        return str(entry) if isinstance(entry, np.dtype) else repr(entry)
    numbers = [f"{number:g}" for number in entry.ravel().tolist()]
    if entry.ndim == 0:
        return numbers[0]
    if len(numbers) <= _FEW:
        return f"[{', '.join(numbers)}]"
    return f"<{len(numbers)} from {entry.min():g} to {entry.max():g}>"
