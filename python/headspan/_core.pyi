from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__version__: str

def default_threads() -> int: ...
def isa() -> str: ...
def variants() -> list[str]: ...
def fma_peak(dtype: str, threads: int) -> float: ...
def compiler() -> str: ...
def openmp() -> bool: ...

class Pattern:
    def __init__(self, conjunctions: Sequence[Sequence[tuple[str, Sequence[int], Pattern | None]]]) -> None: ...
    def mask(self, queries: int, keys: int) -> npt.NDArray[np.bool_]: ...

_Array = npt.NDArray[np.floating]

class Request:
    def __init__(self, query: _Array, key: _Array, value: _Array, options: dict[str, Any]) -> None: ...
    def forward(
        self, out: _Array | None, with_lse: bool, with_statistics: bool, threads: int
    ) -> tuple[_Array, _Array | None, _Array | None]: ...
    def backward(
        self,
        out: _Array,
        statistics: _Array,
        grad_out: _Array,
        grad_lse: _Array | None,
        into: dict[str, _Array | None],
        threads: int,
    ) -> dict[str, npt.NDArray[Any]]: ...
    def weights(
        self,
        rows: npt.NDArray[np.int64],
        cols: npt.NDArray[np.int64],
        pool_rows: int,
        pool_cols: int,
        threads: int,
    ) -> _Array: ...
    def pairs(self, threads: int) -> npt.NDArray[np.int64]: ...

class KeyCache:
    def __init__(
        self,
        keys: Sequence[_Array],
        values: Sequence[_Array],
        kept: Sequence[int],
        count: int,
        first: Sequence[int],
    ) -> None: ...
    def append(self, key: _Array, value: _Array) -> None: ...
    def truncate(self, count: int) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def first(self) -> list[int]: ...
