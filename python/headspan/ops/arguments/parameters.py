"""Differentiable arguments, whose values may be shared by batch items, heads or tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.ops.arguments.sizes import Sizes


class Parameter:
    """A differentiable argument, converted for the core.

    Attributes
    ----------
    shape, dtype
        Shape and type of the argument and of its gradient.
    array : ndarray
        The array for the core. Values are shared along axes of length 1.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    array: Array

    def gradient(self, unshared: Array) -> Array:
        """Sum a gradient over the axes along which values are shared."""
        shape = self.array.shape + (1,) * (3 - self.array.ndim)
        shared = tuple(axis for axis in range(3) if shape[axis] == 1)
        total: Array = unshared.sum(axis=shared, keepdims=True).reshape(self.shape).astype(self.dtype)
        return total

    def _note(self, argument: npt.NDArray[Any], sizes: Sizes) -> None:
        self.shape = argument.shape
        self.dtype = argument.dtype if argument.dtype in _check.FLOATS else sizes.dtype


def bounded_scores(array: npt.NDArray[Any], sizes: Sizes) -> Array:
    """Clip scores or terms of scores, so that sums of them times log2(e) are finite."""
    most = float(_check.FINFO[sizes.dtype].max) / 4
    clipped: Array = np.clip(array.astype(np.float64), -most, most)
    return clipped


def of_type_of_query(name: str, value: object, sizes: Sizes) -> Array:
    """Check that an array has the type of the query, and return it aligned, with strides in whole elements."""
    array = _check.as_array(name, value)
    if array.dtype == np.bool_:
        raise TypeError(f"{name} must be numbers, not bool; where(mask, 0, -inf) converts a boolean mask")
    if array.dtype.newbyteorder("=") != sizes.dtype:
        raise TypeError(f"{name} must be of the type of query, {sizes.dtype}, not {array.dtype}")
    strides_are_multiples = all(stride % array.itemsize == 0 for stride in array.strides)
    if array.dtype.isnative and array.flags.aligned and strides_are_multiples:
        return array
    return np.array(array, dtype=sizes.dtype, order="C")


class PerQuery(Parameter):
    """A parameter per head or query: spans, temperatures, slopes or sinks.

    Attributes
    ----------
    low, high : float
        The smallest and the largest value.
    """

    low: float
    high: float

    def __init__(
        self,
        name: str,
        value: object,
        sizes: Sizes,
        *,
        positive: bool = False,
        distance: bool = False,
        per_token: bool = True,
        score: bool = False,
    ) -> None:
        array = _check.as_array(name, value)
        values = array
        if array.ndim and array.dtype.kind in "iuf":  # check the shape first: the values may be many
            values = _check.per_query(name, array, sizes.axes, with_tokens=per_token)
        low, high = _check.limits(name, array, unlimited=distance)
        self._note(array, sizes)
        if distance:
            if low < 0:
                raise ValueError(f"{name} must be non-negative, got {low:g}")
            if high > sizes.furthest:
                high = sizes.furthest
                values = np.minimum(values, high)
        _check.fits(name, low, high, sizes.dtype)
        if score:
            values = bounded_scores(values, sizes)
        self.low, self.high = low, high
        self.array = np.array(values, dtype=sizes.dtype, ndmin=3 if per_token else 2)
        if positive and array.size and not sizes.dtype.type(low) >= _check.FINFO[sizes.dtype].tiny:
            raise ValueError(f"{name} must be greater than 0, got {sizes.dtype.type(low):g}")


class KeyBias(Parameter):
    """Biases of the scores of each key.

    Attributes
    ----------
    removed : ndarray of bool, or None
        Mask of the keys with a bias of -inf, which no query sees; None without such keys.
    """

    def __init__(self, name: str, value: object, sizes: Sizes) -> None:
        array = _check.as_array(name, value)
        if array.dtype.kind not in "iuf":
            raise TypeError(f"{name} must be real numbers, not {array.dtype}")
        if np.isnan(array).any() or np.isposinf(array).any():
            raise ValueError(f"{name} must be finite or -inf, got {'nan' if np.isnan(array).any() else 'inf'}")
        self._note(array, sizes)
        axes = (*sizes.axes[:-1], sizes.keys)
        if not 1 <= array.ndim <= len(axes) or not _check.may_be_shared(array.shape, axes[-array.ndim :]):
            forms = [axes[i:] for i in range(len(axes))]
            raise ValueError(f"{name} must be of shape {' or '.join(map(str, forms))}, not of shape {array.shape}")
        removed = np.isneginf(array)
        low, high = _check.limits(name, array[~removed])
        _check.fits(name, low, high, sizes.dtype)
        array = np.where(removed, -np.inf, bounded_scores(array, sizes))
        shape = (1,) * (3 - array.ndim) + array.shape
        self.array = np.ascontiguousarray(array.reshape(shape), dtype=sizes.dtype)
        self.removed = np.ascontiguousarray(removed.reshape(shape)) if removed.any() else None


class Persistent(Parameter):
    """Persistent keys or values, which every query sees."""

    def __init__(self, name: str, value: object, sizes: Sizes, *, values: bool = False) -> None:
        dims = sizes.value_dim if values else sizes.head_dim
        array = of_type_of_query(name, value, sizes)
        forms = [f"(m, {dims})"] + ([f"({sizes.key_heads}, m, {dims})"] if sizes.ndim > 2 else [])
        shape = array.shape
        if (
            not 2 <= len(shape) <= len(forms) + 1
            or shape[-1] != dims
            or shape[:-2] not in ((), (1,), (sizes.key_heads,))
        ):
            raise ValueError(f"{name} must be of shape {' or '.join(forms)}, not of shape {shape}")
        self._note(array, sizes)
        self.array = np.broadcast_to(np.ascontiguousarray(array), (sizes.key_heads, *shape[-2:]))

    def gradient(self, unshared: Array) -> Array:
        """Sum a gradient over the axes along which values are shared."""
        batch, heads, _ = unshared.shape
        key_heads = self.array.shape[0]
        total = unshared.reshape(batch, key_heads, heads // key_heads, *self.array.shape[1:]).sum(axis=(0, 2))
        if self.shape[:-2] != (key_heads,):
            total = total.sum(axis=0)
        result: Array = total.reshape(self.shape).astype(self.dtype)
        return result
