"""Types in which keys and values are stored."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headspan import _check


class Storage(NamedTuple):
    """Storage format of the rows of a cache.

    Attributes
    ----------
    arithmetic : dtype
        Type of queries, of keys and values before they are stored, and of results.
    stored : str
        Name of the format in the core.
    element : dtype
        Element type of the arrays that hold the rows.
    head, step : int
        Number of header elements of a row, and the number of which its length is a multiple.
    """

    arithmetic: np.dtype[Any]
    stored: str
    element: np.dtype[Any]
    head: int = 0
    step: int = 1

    def elements(self, dims: int) -> int:
        """Return the number of elements of a row."""
        return self.head + -(-dims // self.step) * self.step


_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
STORAGES = {
    "float32": Storage(_FLOAT32, "same", _FLOAT32),
    "float64": Storage(_FLOAT64, "same", _FLOAT64),
    "float16": Storage(_FLOAT32, "float16", np.dtype(np.float16)),
    "bfloat16": Storage(_FLOAT32, "bfloat16", np.dtype(np.uint16)),
    "int8": Storage(_FLOAT32, "int8", np.dtype(np.uint8), head=4, step=4),  # a float32 scale, then bytes
}


def storage_of(dtype: object) -> tuple[str, Storage]:
    """Return the name of a type and its storage format."""
    try:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name  # type: ignore[call-overload]
    except TypeError:
        name = ""
    if name not in STORAGES:
        raise TypeError(f"dtype must be one of {', '.join(STORAGES)}, not {_check.describe(dtype)}")
    return name, STORAGES[name]
