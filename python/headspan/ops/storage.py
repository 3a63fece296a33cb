"""As what keys and values are kept: the one table of types."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headspan import _check


class Storage(NamedTuple):
    """How the rows of a cache are kept.

    Attributes
    ----------
    arithmetic : dtype
        Of queries, of keys and values as they are given, and of results.
    stored : str
        As the core knows it.
    element : dtype
        Of the arrays that hold the rows.
    head, step : int
        Elements before the numbers of a row, and of how many numbers it has a multiple.
    """

    arithmetic: np.dtype[Any]
    stored: str
    element: np.dtype[Any]
    head: int = 0
    step: int = 1

    def elements(self, dims: int) -> int:
        """Count the elements of a row."""
        return self.head + -(-dims // self.step) * self.step


_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
STORAGES = {
    "float32": Storage(_FLOAT32, "same", _FLOAT32),
    "float64": Storage(_FLOAT64, "same", _FLOAT64),
    "float16": Storage(_FLOAT32, "float16", np.dtype(np.float16)),
    "bfloat16": Storage(_FLOAT32, "bfloat16", np.dtype(np.uint16)),
    "int8": Storage(_FLOAT32, "int8", np.dtype(np.uint8), head=4, step=4),  # a float32 and bytes
}


def storage_of(dtype: object) -> tuple[str, Storage]:
    """Return the name of a type and how rows of it are kept."""
    try:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name  # type: ignore[call-overload]
    except TypeError:
        name = ""
    if name not in STORAGES:
        raise TypeError(f"dtype must be one of {', '.join(STORAGES)}, not {_check.describe(dtype)}")
    return name, STORAGES[name]
