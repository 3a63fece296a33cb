"""Score terms with a number per pair: checks, arguments of the core, gradients and definitions.

Each term has a class here, a row in `options.py` that names the class, and a file in the core.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.ops.arguments.parameters import Parameter, bounded_scores, of_type_of_query
from headspan.ops.arguments.sizes import Sizes


class Term(Parameter, ABC):
    """A score term.

    Attributes
    ----------
    arrays : tuple of ndarray
        Arrays from which the core makes its term: floats with four axes, integers with one.
    """

    arrays: tuple[npt.NDArray[Any], ...]

    @abstractmethod
    def __init__(self, options: Mapping[str, Any], sizes: Sizes, grid: tuple[int, ...]) -> None: ...

    @staticmethod
    @abstractmethod
    def dense(options: Mapping[str, Any], offsets: Sequence[Array]) -> Array:
        """Return the term of every pair; `offsets` are key - query along each axis, (..., tokens, keys)."""

    def _take(self, name: str, value: object, sizes: Sizes) -> npt.NDArray[Any]:
        array = _check.as_array(name, value)
        low, high = _check.limits(name, array)
        _check.fits(name, low, high, sizes.dtype)
        self._note(array, sizes)
        return array


class DistanceBias(Term):
    """A table of biases by distance, or by offset on a grid."""

    def __init__(self, options: Mapping[str, Any], sizes: Sizes, grid: tuple[int, ...]) -> None:
        table = self._take("distance_bias", options["distance_bias"], sizes)
        axes = max(len(grid), 1)
        lead = table.shape[: max(table.ndim - axes, 0)]
        if table.ndim not in (axes, axes + 1) or lead not in ((), (1,), (sizes.heads,)) or 0 in table.shape:
            forms = (
                "(distances,) or (heads, distances)" if axes == 1 else f"{axes} axes of offsets, perhaps after heads"
            )
            raise ValueError(f"distance_bias must be of shape {forms}, not of shape {table.shape}")
        entries, lengths = _entries(table.shape[len(lead) :], options.get("distance_buckets"), grid)
        rows = bounded_scores(table, sizes).reshape(1, 1, lead[0] if lead else 1, -1)
        numbers = np.ascontiguousarray(rows, dtype=sizes.dtype)
        self.arrays = numbers, entries, np.array(lengths, np.int64)

    def gradient(self, unshared: Array) -> Array:
        """Sum a gradient over the axes along which values are shared."""
        heads = self.arrays[0].shape[2]
        total = unshared.sum(axis=0) if heads == unshared.shape[1] else unshared.sum(axis=(0, 1))
        result: Array = total.reshape(self.shape).astype(self.dtype)
        return result

    @staticmethod
    def dense(options: Mapping[str, Any], offsets: Sequence[Array]) -> Array:
        """Return the term of every pair."""
        table = np.asarray(options["distance_bias"], np.float64)
        shape = table.shape[table.ndim - len(offsets) :]
        if len(offsets) == 1:
            buckets = options.get("distance_buckets")
            buckets = _distances(shape[0]) if buckets is None else np.asarray(buckets)
            middle = len(buckets) // 2
            index: Any = (buckets[np.clip(np.trunc(offsets[0]), -middle, middle).astype(int) + middle],)
        else:
            index = tuple(
                np.clip(each, -(n // 2), n // 2).astype(int) + n // 2 for each, n in zip(offsets, shape, strict=True)
            )
        if table.ndim == len(offsets):
            return np.asarray(table[index])
        heads = np.arange(len(table))[:, None, None]
        return np.asarray(table[(heads, *index)])


def _distances(count: int) -> npt.NDArray[np.int64]:
    """Return the table index of each offset, for a table by distance in either direction."""
    return np.abs(np.arange(1 - count, count))


def _entries(
    shape: tuple[int, ...], buckets: object, grid: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], tuple[int, ...]]:
    """Return the table index of every offset key - query, and the number of offsets along each axis."""
    if len(grid) > 1:
        if buckets is not None:
            raise ValueError("distance_buckets are for one axis, and cannot be combined with a grid")
        if any(n % 2 == 0 for n in shape):
            raise ValueError(f"distance_bias must have an odd number of offsets along each axis, not shape {shape}")
        lengths = tuple(2 * n - 1 for n in grid)
        at = [np.clip(np.arange(1 - n, n), -(m // 2), m // 2) + m // 2 for n, m in zip(grid, shape, strict=True)]
        return np.ravel_multi_index(tuple(np.meshgrid(*at, indexing="ij")), shape).ravel(), lengths
    if buckets is None:
        entries = _distances(shape[0])
    else:
        entries = _check.integers("distance_buckets", buckets)
        if entries.ndim != 1 or entries.size % 2 == 0:
            raise ValueError(
                "distance_buckets must have one axis of odd length, for equal distances ahead and back, "
                f"not shape {entries.shape}"
            )
        if not 0 <= entries.min() <= entries.max() < shape[0]:
            wrong = entries.min() if entries.min() < 0 else entries.max()
            raise ValueError(f"distance_buckets must be indices of distance_bias, 0 to {shape[0] - 1}, not {wrong}")
    return np.ascontiguousarray(entries, np.int64), (entries.size,)


class PairBias(Term):
    """A bias per pair."""

    def __init__(self, options: Mapping[str, Any], sizes: Sizes, grid: tuple[int, ...]) -> None:
        array = of_type_of_query("pair_bias", options["pair_bias"], sizes)
        axes = (*sizes.axes[:-1], sizes.queries, sizes.keys)
        shape = array.shape
        fits = 2 <= len(shape) <= len(axes) and shape[-2:] == axes[-2:]
        if not fits or any(n not in (1, size) for n, size in zip(shape, axes[-len(shape) :], strict=True)):
            forms = [axes[i:] for i in range(len(axes) - 1)]
            raise ValueError(f"pair_bias must be of shape {' or '.join(map(str, forms))}, not of shape {shape}")
        self._note(array, sizes)
        self.arrays = (array[(None,) * (4 - array.ndim)],)

    def gradient(self, unshared: Array) -> Array:
        """Sum a gradient over the axes along which values are shared."""
        shared = tuple(axis for axis in range(2) if self.arrays[0].shape[axis] == 1)
        result: Array = unshared.sum(axis=shared).reshape(self.shape).astype(self.dtype)
        return result

    @staticmethod
    def dense(options: Mapping[str, Any], offsets: Sequence[Array]) -> Array:
        """Return the term of every pair."""
        return np.asarray(options["pair_bias"], np.float64)


class BlockGates(Term):
    """The logarithm of a factor per block."""

    def __init__(self, options: Mapping[str, Any], sizes: Sizes, grid: tuple[int, ...]) -> None:
        gates = self._take("block_gates", options["block_gates"], sizes)
        if gates.size and gates.min() < 0:
            raise ValueError(f"block_gates must be non-negative, got {gates.min():g}")
        if "gate_block_size" not in options:
            raise ValueError("block_gates require gate_block_size, the number of tokens of a block or (queries, keys)")
        if sizes.queries > sizes.keys:
            raise ValueError(
                f"block_gates require as many keys as queries, not {sizes.queries} queries and {sizes.keys} keys"
            )
        queries, keys = _check.pair("gate_block_size", options["gate_block_size"])
        blocks = (-(-sizes.keys // queries), -(-sizes.keys // keys))  # as for `keys` queries
        lead = gates.shape[:-2]
        if gates.ndim not in (2, 3) or lead not in ((), (1,), (sizes.heads,)) or gates.shape[-2:] != blocks:
            forms = f"{blocks}, or with heads in front,"
            raise ValueError(f"block_gates must be of shape {forms} for {sizes.keys} keys, not of shape {gates.shape}")
        self._gates = gates.reshape(1, -1, *blocks)
        with np.errstate(divide="ignore"):
            logs = np.ascontiguousarray(np.log(self._gates.astype(np.float64)), dtype=sizes.dtype)
        self.arrays = logs, np.array([queries, keys, sizes.keys - sizes.queries], np.int64)

    def gradient(self, unshared: Array) -> Array:
        """Sum over the axes along which gates are shared, and divide by the gate for the gradient of its logarithm."""
        total = unshared.sum(axis=0).reshape(unshared.shape[1], *self._gates.shape[2:])
        total = total if self._gates.shape[1] == len(total) else total.sum(axis=0, keepdims=True)
        gates = self._gates[0].astype(np.float64)
        result: Array = np.divide(total, gates, out=np.zeros_like(gates), where=gates > 0).reshape(self.shape)
        return result.astype(self.dtype)

    @staticmethod
    def dense(options: Mapping[str, Any], offsets: Sequence[Array]) -> Array:
        """Return the term of every pair."""
        gates, sides = (
            np.asarray(options["block_gates"], np.float64),
            _check.pair("gate_block_size", options["gate_block_size"]),
        )
        queries, keys = offsets[0].shape[-2:]
        p, j = np.arange(keys - queries, keys)[:, None] // sides[0], np.arange(keys) // sides[1]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(gates[..., p, j]))
