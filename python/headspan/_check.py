"""What an argument must be, said once and in one sentence."""

import math
import os
import sys
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
SINGLE, DOUBLE = FLOATS
MAX = sys.float_info.max
FINFO = {dtype: np.finfo(dtype) for dtype in FLOATS}
# Python is through with so many numbers before NumPy's reductions have begun: after a call that has filled the caches
# they take 0.1 ms, as long as a hundredth of the attention within a short span.
_FEW = 64


def as_array(name: str, x: object) -> npt.NDArray[Any]:
    """Return ``x`` as an array of whatever type, or say that it is none."""
    try:
        array = np.asarray(x)
    except (ValueError, TypeError, RuntimeError) as error:  # the last from tensors that need a gradient
        if isinstance(x, list | tuple):
            what = f"an array of numbers, not a nested {type(x).__name__} of unequal lengths"
        else:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            what = f"what NumPy can read as an array, not {type(x).__name__} ({reason})"
            if getattr(x, "requires_grad", False):
                what += "; headspan.torch.attention takes tensors and has their gradients"
        raise TypeError(f"{name} must be {what}") from error
    if array is not x:  # not the usual case
        if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
            raise TypeError(f"{name} must not be a masked array; {name}.filled(...) makes it a plain one")
        if array.dtype.kind == "O" and isinstance(x, Real):  # an integer too large for NumPy, a fraction
            array = np.asarray(number(name, x))
    return array


def float_array(name: str, x: object) -> Array:
    """Return ``x`` as a float32 or float64 array in the machine's byte order, aligned, with a contiguous last axis.

    An array that is all that already comes back as it is.
    """
    if type(x) is np.ndarray and (x.dtype is SINGLE or x.dtype is DOUBLE):  # the usual case, without a detour
        flags = x.flags
        if flags.c_contiguous and flags.aligned:
            return x
    array = as_array(name, x)
    dtype = array.dtype.newbyteorder("=")
    if dtype not in FLOATS:
        hint = f"; {name}.astype(np.float32) converts it" if array.dtype.kind in "biuf" else ""
        given = array.dtype if array.ndim or array.dtype.kind != "O" else describe(x)
        raise TypeError(f"{name} must be float32 or float64, not {given}{hint}")
    check_size(name, array.shape, dtype.itemsize)
    rows_contiguous = array.ndim == 0 or array.shape[-1] == 1 or array.strides[-1] == dtype.itemsize
    whole_strides = all(stride % dtype.itemsize == 0 for stride in array.strides)
    if array.dtype.isnative and array.flags.aligned and rows_contiguous and whole_strides:
        return array
    return np.array(array, dtype=dtype, order="C")


def check_size(name: str, shape: tuple[int, ...], itemsize: int) -> None:
    """Refuse sizes whose product no machine can address."""
    if math.prod(shape) * itemsize > sys.maxsize:
        raise MemoryError(f"{name} of shape {shape} is larger than any memory")


def same_dtype(arrays: dict[str, Array]) -> None:
    """Refuse arrays of different types."""
    first_name, first = next(iter(arrays.items()))
    for name, array in arrays.items():
        if array.dtype is not first.dtype and array.dtype != first.dtype:
            raise TypeError(
                f"{name} is {array.dtype} but {first_name} is {first.dtype}; "
                f"{name}.astype(np.{first.dtype}) makes them alike"
            )


def number(name: str, x: object, *, at_least: float | None = None) -> float:
    """Return ``x`` as a finite float."""
    if (type(x) is float or type(x) is int) and (at_least is None or x >= at_least) and -MAX <= x <= MAX:
        return float(x)  # the usual case, without a detour
    if isinstance(x, np.ndarray) and x.ndim == 0:
        x = x[()]
    if not isinstance(x, Real) or isinstance(x, bool | np.bool_):
        raise TypeError(f"{name} must be a number, not {describe(x)}")
    try:
        value = float(x)
    except OverflowError:
        raise ValueError(f"{name} must be finite, not beyond all floats") from None
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, not {value}")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name} must be at least {at_least:g}, not {value:g}")
    return value


def positive(name: str, x: object) -> float:
    """Return ``x`` as a finite float greater than 0."""
    value = number(name, x)
    if value <= 0:
        raise ValueError(f"{name} must be greater than 0, not {value:g}")
    return value


def within(name: str, x: object, *, low: float, high: float) -> float:
    """Return ``x`` as a float between two bounds."""
    value = number(name, x)
    if not low <= value <= high:
        raise ValueError(f"{name} must lie between {low:g} and {high:g}, not be {value:g}")
    return value


def integer(name: str, x: object, *, at_least: int) -> int:
    """Return ``x`` as an int."""
    if not isinstance(x, int | np.integer) or isinstance(x, bool):
        raise TypeError(f"{name} must be an integer, not {describe(x)}")
    if x < at_least:
        raise ValueError(f"{name} must be at least {at_least}, not {x}")
    return int(x)


def pair(name: str, x: object) -> tuple[int, int]:
    """Return ``x``, an integer for both or a pair of them, as two ints of at least 1."""
    given = as_array(name, x).tolist() if hasattr(x, "__array__") else x
    both = given if isinstance(given, list | tuple) else (given, given)
    if len(both) != 2:
        raise ValueError(f"{name} must be a number or a pair, not {describe(x)}")
    return integer(name, both[0], at_least=1), integer(name, both[1], at_least=1)


def fields(record: object, check: Callable[..., object], names: Sequence[str], *, at_least: int) -> None:
    """Put the named fields of a frozen dataclass through a check, and keep what it returns."""
    for name in names:
        object.__setattr__(record, name, check(name, getattr(record, name), at_least=at_least))


def flag(name: str, x: object) -> bool:
    """Return ``x`` as a bool."""
    if x is True or x is False:
        return x
    if not isinstance(x, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, not {describe(x)}")
    return bool(x)


def sequence(name: str, given: Any, of: str) -> list[Any]:
    """Return what a sequence holds, or say of what it must be one."""
    try:
        return list(given)
    except TypeError:
        raise TypeError(f"{name} must be a sequence of {of}, not {describe(given)}") from None


def token_texts(given: object, length: int) -> list[str] | None:
    """Return the text of every token as `tokens` holds them, or None when none is given."""
    if given is None:
        return None
    written = [str(token) for token in sequence("tokens", given, "texts")]
    if len(written) != length:
        raise ValueError(f"tokens must hold {length} texts, one a token, not {len(written)}")
    return written


def gradient(name: str, given: object, shape: tuple[int, ...], *, beside: tuple[str, Array]) -> Array:
    """Return the gradient of a result of that shape; ``beside`` names an array whose type it must have."""
    array = float_array(name, given)
    same_dtype({beside[0]: beside[1], name: array})
    if array.shape != shape:
        result = name.removeprefix("grad_") if name != "grad" else "the result"
        raise ValueError(f"{name} must have the shape of {result}, {shape}, not {array.shape}")
    return array


def describe(x: object) -> str:
    """Name a value briefly, for the end of a sentence."""
    text = repr(x)
    return text if len(text) <= 40 and "\n" not in text else type(x).__name__


def real_array(name: str, x: object) -> npt.NDArray[Any]:
    """Return ``x`` as an array of finite real numbers."""
    array = as_array(name, x)
    limits(name, array)
    return array


def integers(name: str, x: object) -> npt.NDArray[Any]:
    """Return ``x`` as an array of integers."""
    array = as_array(name, x)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, not {array.dtype}")
    return array


def indices(name: str, x: object, *, axes: tuple[str, ...], below: int) -> npt.NDArray[Any]:
    """Return ``x`` as an array of integers from 0 to less than ``below``, with as many axes as are named."""
    array = integers(name, x)
    if array.ndim != len(axes):
        raise ValueError(f"{name} must be of shape ({', '.join(axes)}{',' * (len(axes) == 1)}), not {array.shape}")
    low, high = limits(name, array)
    if low < 0 or high >= below:
        raise ValueError(f"{name} must lie between 0 and {below - 1}, but holds {low if low < 0 else high:.0f}")
    return array


def limits(name: str, array: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the smallest and the largest of real numbers that must be finite; of none, zeros."""
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be real numbers, not {array.dtype}")
    if 0 < array.size <= _FEW and all(map(math.isfinite, numbers := array.ravel().tolist())):
        return float(min(numbers)), float(max(numbers))
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    if not (low >= -MAX and high <= MAX):
        raise ValueError(f"{name} must be finite, but holds {high if low >= -MAX else low}")
    return low, high


def fits(name: str, low: float, high: float, dtype: np.dtype[Any]) -> None:
    """Refuse numbers from ``low`` to ``high`` if a type cannot hold them."""
    if max(-low, high) > float(FINFO[dtype].max):
        raise ValueError(f"{name} must fit into {dtype}, but holds {high if high > -low else low:g}")


def non_negative(name: str, array: npt.NDArray[Any]) -> None:
    """Refuse an array with a negative element."""
    if array.size and array.min() < 0:
        raise ValueError(f"{name} must not be negative, but holds {array.min():g}")


def may_be_shared(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether a shape is as wanted, its last axis whole and the others perhaps of length 1."""
    return shape[-1] == sizes[-1] and all(n in (1, size) for n, size in zip(shape, sizes, strict=True))


def per_query(
    name: str, array: npt.NDArray[Any], sizes: tuple[int, ...], *, with_tokens: bool = True
) -> npt.NDArray[Any]:
    """Bring a parameter to (batch, heads, tokens) or, without tokens, (batch, heads); lengths of 1 are kept.

    ``sizes`` are the lengths of the axes that the query has, of batch, heads and tokens. The forms are a number and the
    shapes (heads,), (batch, heads) and (batch, heads, tokens), as far as these axes exist.
    """
    each_token = with_tokens and array.ndim == len(sizes)
    form = sizes if each_token else sizes[-1 - array.ndim : -1]
    shape = array.shape
    if shape == form or (len(shape) == len(form) and all(n in (1, size) for n, size in zip(shape, form, strict=True))):
        shape = (*shape, 1) if with_tokens and not each_token else shape
        return array.reshape((1,) * (2 + with_tokens - len(shape)) + shape)
    names = ("batch", "heads", "tokens")[-len(sizes) :]
    forms = [slice(i, -1) for i in range(len(sizes) - 2, -1, -1)] + [slice(None)] * with_tokens
    shapes = [f"({', '.join(names[form])}{',' * (len(names[form]) == 1)}) = {sizes[form]}" for form in forms]
    raise ValueError(
        f"{name} must be "
        + " or ".join(["a number", *(f"of shape {shape}" for shape in shapes)])
        + f", not of shape {array.shape}"
    )


def file_path(name: str, x: object, example: str) -> Path:
    """Return ``x`` as the path of a file that may be written."""
    if not isinstance(x, str | os.PathLike):
        raise TypeError(f"{name} must be a path such as {example!r}, not {describe(x)}")
    path = Path(x)
    if path.is_dir():
        raise ValueError(f"{name} must be a file, such as {str(path / example)!r}, and not a folder")
    return path
