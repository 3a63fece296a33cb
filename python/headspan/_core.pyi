from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__version__: str

def set_num_threads(n: int) -> None: ...
def get_num_threads() -> int: ...
def isa() -> str: ...
def variants() -> list[str]: ...
def fma_peak(dtype: str, threads: int) -> float: ...
def compiler() -> str: ...
def openmp() -> bool: ...
def pairs(
    queries: int, keys: int, span: npt.NDArray[np.float64], ramp: float, causal: bool, patterns: Sequence[Pattern]
) -> npt.NDArray[np.int64]: ...

class Pattern:
    def __init__(self, terms: Sequence[Sequence[tuple[str, Sequence[int]]]]) -> None: ...
    def mask(self, queries: int, keys: int) -> npt.NDArray[np.bool_]: ...

_Array = npt.NDArray[np.floating]
_PerQuery = npt.NDArray[np.float64]

class Problem:
    def __init__(
        self,
        query: _Array,
        key: _Array,
        value: _Array,
        span: _Array | None,
        temperature: _Array | None,
        slopes: _Array | None,
        scale: float,
        ramp: float,
        causal: bool,
        include_self: bool,
    ) -> None: ...
    def extend(
        self,
        patterns: Sequence[Pattern],
        query_positions: npt.NDArray[np.float64] | None,
        key_positions: npt.NDArray[np.float64] | None,
        key_lengths: npt.NDArray[np.int64] | None,
        segment_first: npt.NDArray[np.int64] | None,
        segment_last: npt.NDArray[np.int64] | None,
        key_bias: _Array | None,
        removed: npt.NDArray[np.bool_] | None,
    ) -> None: ...
    def forward(self, with_lse: bool, with_statistics: bool) -> tuple[_Array, _Array | None, _Array | None]: ...
    def backward(
        self, out: _Array, statistics: _Array, grad_out: _Array, grad_lse: _Array | None
    ) -> tuple[
        _Array, _Array, _Array, _PerQuery | None, _PerQuery | None, _PerQuery | None, npt.NDArray[np.float64] | None
    ]: ...
    def weights(
        self,
        rows: npt.NDArray[np.int64],
        cols: npt.NDArray[np.int64],
        pool_rows: int,
        pool_cols: int,
    ) -> _Array: ...
