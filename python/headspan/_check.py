"""Checks of arguments, each with its error message."""

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
# Up to this many numbers are checked in Python. With cold caches, a NumPy reduction takes 0.1 ms, a hundredth of the
# time of an attention with a short span.
_FEW = 64


def as_array(name: str, x: object) -> npt.NDArray[Any]:
    """Return ``x`` as an array of any type; raise TypeError if it is not array-like."""
    try:
        array = np.asarray(x)
    except (ValueError, TypeError, RuntimeError) as error:  # tensors that require a gradient raise RuntimeError
        if isinstance(x, list | tuple):
            what = f"an array of numbers, not a nested {type(x).__name__} of unequal lengths"
        else:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            what = f"what NumPy can read as an array, not {type(x).__name__} ({reason})"
            if getattr(x, "requires_grad", False):
                what += "; headspan.torch.attention takes tensors and has their gradients"
            elif "unsupported ScalarType" in reason:
                what += f"; {cast(name, x, SINGLE)} converts it"
        raise TypeError(f"{name} must be {what}") from error
    if array is not x:  # not the usual case
        if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
            raise TypeError(f"{name} must not be a masked array; {name}.filled(...) converts it to a plain array")
        if array.dtype.kind == "O" and isinstance(x, Real):  # a Fraction or an integer too large for NumPy
            array = np.asarray(number(name, x))
    return array


def float_array(name: str, x: object) -> Array:
    """Return ``x`` as a float32 or float64 array in native byte order, aligned, with a contiguous last axis.

    An array with these properties is returned without a copy.
    """
    if type(x) is np.ndarray and (x.dtype is SINGLE or x.dtype is DOUBLE):  # fast path for the usual case
        flags = x.flags
        if flags.c_contiguous and flags.aligned:
            return x
    array = as_array(name, x)
    dtype = array.dtype.newbyteorder("=")
    if dtype not in FLOATS:
        hint = f"; {cast(name, array, SINGLE)} converts it" if array.dtype.kind in "biuf" else ""
        kind = array.dtype if array.ndim or array.dtype.kind != "O" else describe(x)
        raise TypeError(f"{name} must be float32 or float64, not {kind}{hint}")
    check_size(name, array.shape, dtype.itemsize)
    rows_contiguous = array.ndim == 0 or array.shape[-1] == 1 or array.strides[-1] == dtype.itemsize
    strides_are_multiples = all(stride % dtype.itemsize == 0 for stride in array.strides)
    if array.dtype.isnative and array.flags.aligned and rows_contiguous and strides_are_multiples:
        return array
    return np.array(array, dtype=dtype, order="C")


def check_size(name: str, shape: tuple[int, ...], itemsize: int) -> None:
    """Raise MemoryError for an array that exceeds the address space."""
    if math.prod(shape) * itemsize > sys.maxsize:
        raise MemoryError(f"{name} of shape {shape} is too large for memory")


def same_dtype(arrays: dict[str, Array]) -> None:
    """Raise TypeError unless all arrays have the same type."""
    first_name, first = next(iter(arrays.items()))
    for name, array in arrays.items():
        if array.dtype is not first.dtype and array.dtype != first.dtype:
            raise TypeError(
                f"{name} is {array.dtype} but {first_name} is {first.dtype}; "
                f"{cast(name, array, first.dtype)} makes them alike"
            )


def cast(name: str, x: object, dtype: object) -> str:
    """Return the code that converts an argument to a type: that of PyTorch for a tensor, or an array over a tensor."""
    while isinstance(x, np.ndarray) and x.base is not None:
        x = x.base
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return f"{name}.to(torch.{str(dtype).removeprefix('torch.')})"
    return f"{name}.astype(np.{dtype})"


def number(name: str, x: object, *, at_least: float | None = None) -> float:
    """Return ``x`` as a finite float."""
    if (type(x) is float or type(x) is int) and (at_least is None or x >= at_least) and -MAX <= x <= MAX:
        return float(x)  # fast path for the usual case
    if isinstance(x, np.ndarray) and x.ndim == 0:
        x = x[()]
    if not isinstance(x, Real) or isinstance(x, bool | np.bool_):
        raise TypeError(f"{name} must be a number, not {describe(x)}")
    try:
        value = float(x)
    except OverflowError:
        raise ValueError(f"{name} must be finite, got a number beyond the range of floats") from None
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
        raise ValueError(f"{name} must be between {low:g} and {high:g}, got {value:g}")
    return value


def integer(name: str, x: object, *, at_least: int) -> int:
    """Return ``x`` as an int of at least ``at_least``."""
    if not isinstance(x, int | np.integer) or isinstance(x, bool):
        raise TypeError(f"{name} must be an integer, not {describe(x)}")
    if x < at_least:
        raise ValueError(f"{name} must be at least {at_least}, not {x}")
    return int(x)


def pair(name: str, x: object) -> tuple[int, int]:
    """Return ``x``, one integer for both or a pair of integers, as two ints of at least 1."""
    value = as_array(name, x).tolist() if hasattr(x, "__array__") else x
    both = value if isinstance(value, list | tuple) else (value, value)
    if len(both) != 2:
        raise ValueError(f"{name} must be a number or a pair, not {describe(x)}")
    return integer(name, both[0], at_least=1), integer(name, both[1], at_least=1)


def fields(record: object, check: Callable[..., object], names: Sequence[str], *, at_least: int) -> None:
    """Apply a check to the named fields of a frozen dataclass and store the results."""
    for name in names:
        object.__setattr__(record, name, check(name, getattr(record, name), at_least=at_least))


def flag(name: str, x: object) -> bool:
    """Return ``x`` as a bool."""
    if x is True or x is False:
        return x
    if not isinstance(x, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, not {describe(x)}")
    return bool(x)


def sequence(name: str, x: Any, of: str) -> list[Any]:
    """Return the elements of a sequence as a list; ``of`` names them in the error message."""
    try:
        return list(x)
    except TypeError:
        raise TypeError(f"{name} must be a sequence of {of}, not {describe(x)}") from None


def token_texts(tokens: object, length: int) -> list[str] | None:
    """Return the texts of the option `tokens`, or None if it is None."""
    if tokens is None:
        return None
    texts = [str(token) for token in sequence("tokens", tokens, "texts")]
    if len(texts) != length:
        raise ValueError(f"tokens must hold {length} strings, one per token, not {len(texts)}")
    return texts


def gradient(name: str, x: object, shape: tuple[int, ...], *, like: tuple[str, Array]) -> Array:
    """Return ``x`` as the gradient of a result; ``like`` is the name and value of an array with the required type."""
    array = float_array(name, x)
    same_dtype({like[0]: like[1], name: array})
    if array.shape != shape:
        result = name.removeprefix("grad_") if name != "grad" else "the result"
        raise ValueError(f"{name} must have the shape of {result}, {shape}, not {array.shape}")
    return array


def describe(x: object) -> str:
    """Return a short description of a value for an error message."""
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
    """Return ``x`` as an array of integers from 0 to ``below - 1``, with the named axes."""
    array = integers(name, x)
    if array.ndim != len(axes):
        raise ValueError(f"{name} must be of shape ({', '.join(axes)}{',' * (len(axes) == 1)}), not {array.shape}")
    low, high = limits(name, array)
    if low < 0 or high >= below:
        raise ValueError(f"{name} must be between 0 and {below - 1}, got {low if low < 0 else high:.0f}")
    return array


def spans(name: str, x: object) -> npt.NDArray[Any]:
    """Return ``x`` as an array of non-negative numbers, of which inf means no limit."""
    array = as_array(name, x)
    if limits(name, array, unlimited=True)[0] < 0:
        raise ValueError(f"{name} must be non-negative, got {array.min():g}")
    return array


def limits(name: str, array: npt.NDArray[Any], *, unlimited: bool = False) -> tuple[float, float]:
    """Check that an array is real and finite; return its minimum and maximum, or zeros if it is empty.

    With `unlimited`, elements may be inf.
    """
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be real numbers, not {array.dtype}")
    if 0 < array.size <= _FEW and all(map(math.isfinite, numbers := array.ravel().tolist())):
        return float(min(numbers)), float(max(numbers))
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    if not (low >= -MAX and (high <= MAX or (unlimited and high == math.inf))):
        raise ValueError(f"{name} must be finite, got {high if low >= -MAX else low}")
    return low, high


def fits(name: str, low: float, high: float, dtype: np.dtype[Any]) -> None:
    """Raise ValueError if numbers from ``low`` to ``high`` overflow a type."""
    if max(-low, high) > float(FINFO[dtype].max):
        raise ValueError(f"{name} must fit into {dtype}, got {high if high > -low else low:g}")


def non_negative(name: str, array: npt.NDArray[Any]) -> None:
    """Raise ValueError if an array has a negative element."""
    if array.size and array.min() < 0:
        raise ValueError(f"{name} must be non-negative, got {array.min():g}")


def may_be_shared(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Return whether a shape equals ``sizes``, except that axes other than the last may have length 1."""
    return shape[-1] == sizes[-1] and all(n in (1, size) for n, size in zip(shape, sizes, strict=True))


def per_query(
    name: str, array: npt.NDArray[Any], sizes: tuple[int, ...], *, with_tokens: bool = True
) -> npt.NDArray[Any]:
    """Reshape a parameter to (batch, heads, tokens) or, without tokens, (batch, heads); axes of length 1 are kept.

    ``sizes`` holds the lengths of the axes batch, heads and tokens, as far as the query has them. The parameter is a
    number or has one of the shapes (heads,), (batch, heads) and (batch, heads, tokens), as far as these axes exist.
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
    """Return ``x`` as the path of an output file."""
    if not isinstance(x, str | os.PathLike):
        raise TypeError(f"{name} must be a path such as {example!r}, not {describe(x)}")
    path = Path(x)
    if path.is_dir():
        raise ValueError(f"{name} must be a file, such as {str(path / example)!r}, and not a folder")
    return path
