"""The parameters of hybrid attention, and the checks of its arguments."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan._help import as_written

Per = Literal["batch", "head", "token"]


@as_written
class HybridParameters(NamedTuple):
    """The learned parameters of hybrid attention, or their gradients.

    Attributes
    ----------
    norm_weight, norm_bias : ndarray, shape (dim,)
        The weight and bias of the layer norm.
    global_qkv, local_qkv : ndarray, shape (dim, 3 * dim)
        The queries, keys and values of a branch, in this order, are ``normed @ global_qkv``, with adjacent heads.
    predictor_weight : ndarray, shape (1, dim) for ``per="batch"``, else (heads, dim)
        The map from the output of the global branch to the span.
    predictor_bias : ndarray, shape (1,) or (heads,)
    projection : ndarray, shape (2 * dim, dim)
        The map from both branches, the local one first, to the output.
    projection_bias : ndarray, shape (dim,)
    log_temperature : ndarray, shape (heads,), or None
        The logarithm of the temperature of every head. If None, the temperature follows from the predicted span.

    See Also
    --------
    hybrid_parameters : Initial parameters of the hybrid layer.
    hybrid_attention : The layer that takes the parameters.
    """

    norm_weight: Array
    norm_bias: Array
    global_qkv: Array
    local_qkv: Array
    predictor_weight: Array
    predictor_bias: Array
    projection: Array
    projection_bias: Array
    log_temperature: Array | None = None


def hybrid_parameters(
    embed_dim: int,
    num_heads: int,
    *,
    per: Per = "batch",
    learn_temperature: bool = False,
    dtype: npt.DTypeLike = np.float64,
    seed: int = 0,
) -> HybridParameters:
    """Draw initial parameters for hybrid attention.

    Matrices are normal with a variance of 1 / inputs, and biases are 0. Spans thus start near half of the largest span.

    Parameters
    ----------
    embed_dim : int
        The number of channels of the input, a multiple of `num_heads`.
    num_heads : int
        The number of heads of each branch.
    per : {"batch", "head", "token"}
        As for `hybrid_attention`.
    learn_temperature : bool
        Whether the temperature of each head is a parameter, which starts at 1.
    dtype : float32 or float64
    seed : int

    Returns
    -------
    HybridParameters

    See Also
    --------
    HybridParameters : The parameters of the hybrid layer, or their gradients.
    hybrid_attention : The layer that takes the parameters.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.hybrid.hybrid_parameters(16, 4, per="head").predictor_weight.shape
    (4, 16)
    """
    width = _check.integer("embed_dim", embed_dim, at_least=1)
    with_temperature = _check.flag("learn_temperature", learn_temperature)
    shapes = parameter_shapes(width, check_heads(width, num_heads, "embed_dim"), check_per(per))
    real = _float_type(dtype)
    rng = np.random.default_rng(_check.integer("seed", seed, at_least=0))

    def normal(name: str, inputs: int) -> Array:
        matrix: Array = rng.standard_normal(shapes[name]) / np.sqrt(inputs)
        return matrix.astype(real)

    return HybridParameters(
        norm_weight=np.ones(shapes["norm_weight"], real),
        norm_bias=np.zeros(shapes["norm_bias"], real),
        global_qkv=normal("global_qkv", width),
        local_qkv=normal("local_qkv", width),
        predictor_weight=normal("predictor_weight", width),
        predictor_bias=np.zeros(shapes["predictor_bias"], real),
        projection=normal("projection", 2 * width),
        projection_bias=np.zeros(shapes["projection_bias"], real),
        log_temperature=np.zeros(shapes["log_temperature"], real) if with_temperature else None,
    )


class Shape(NamedTuple):
    """The sizes of the layer for an input."""

    batch: int
    tokens: int
    dim: int
    heads: int


def check_per(per: object) -> str:
    """Return `per`, after checking it."""
    if not isinstance(per, str):
        raise TypeError(f"per must be 'batch', 'head' or 'token', not {_check.describe(per)}")
    if per not in ("batch", "head", "token"):
        raise ValueError(f"per must be 'batch', 'head' or 'token', not {per!r}")
    return per


def check_causal(causal: object, per: str) -> bool:
    """Return `causal`, after checking that no mean over all tokens looks ahead."""
    checked = _check.flag("causal", causal)
    if checked and per != "token":
        raise ValueError(f"per must be 'token' when causal, since a mean over all tokens looks ahead, not {per!r}")
    return checked


def check_heads(dim: int, heads: object, name: str, *, argument: str = "num_heads") -> int:
    """Return the number of heads, which must divide `dim`. Errors use `name` for `dim` and `argument` for `heads`."""
    count = _check.integer(argument, heads, at_least=1)
    if dim % count:
        raise ValueError(f"{argument} must divide {name}, {dim}, not {count}")
    return count


def check_input(x: object, heads: object) -> tuple[Array, Shape, tuple[int, ...]]:
    """Return x as (batch * tokens, dim), its sizes, and its original shape."""
    array = _check.float_array("x", x)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise ValueError(f"x must have the axes (batch, tokens, dim) or (tokens, dim), none empty, not {array.shape}")
    _check.real_array("x", array)
    batch = array.shape[0] if array.ndim == 3 else 1
    tokens, dim = array.shape[-2:]
    shape = Shape(batch, tokens, dim, check_heads(dim, heads, "the channels of x"))
    return array.reshape(batch * tokens, dim), shape, array.shape


def parameter_shapes(dim: int, heads: int, per: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter, by name."""
    predicted = 1 if per == "batch" else heads
    return {
        "norm_weight": (dim,),
        "norm_bias": (dim,),
        "global_qkv": (dim, 3 * dim),
        "local_qkv": (dim, 3 * dim),
        "predictor_weight": (predicted, dim),
        "predictor_bias": (predicted,),
        "projection": (2 * dim, dim),
        "projection_bias": (dim,),
        "log_temperature": (heads,),
    }


def check_parameters(parameters: object, x: Array, shape: Shape, per: str) -> HybridParameters:
    """Return the parameters, after checking that their shapes and types are right and their values finite."""
    if not isinstance(parameters, HybridParameters):
        raise TypeError(f"parameters must be HybridParameters, not {_check.describe(parameters)}")
    checked = {}
    for name, expected in parameter_shapes(shape.dim, shape.heads, per).items():
        parameter = getattr(parameters, name)
        if parameter is None and name == "log_temperature":
            continue
        full = f"parameters.{name}"
        array = _check.float_array(full, parameter)
        _check.same_dtype({"x": x, full: array})
        if array.shape != expected:
            with_per = f", num_heads={shape.heads} and per={per!r}" if name.startswith("predictor") else ""
            raise ValueError(
                f"{full} must have the shape {expected} for x of {shape.dim} channels{with_per}, not {array.shape}"
            )
        checked[name] = _check.real_array(full, array)
    if "log_temperature" in checked:
        _check_logarithm("parameters.log_temperature", checked["log_temperature"])
    return HybridParameters(**checked)


def _check_logarithm(name: str, array: Array) -> None:
    """Raise ValueError for logarithms of numbers that the type of the array cannot hold."""
    limits = np.finfo(array.dtype)
    low, high = np.log(limits.tiny), np.log(limits.max)
    outside = array[(array < low) | (array > high)]
    if outside.size:
        raise ValueError(f"{name} must be between {low:.1f} and {high:.1f}, got {outside[0]:g}")


def _float_type(dtype: object) -> np.dtype[np.floating]:
    for real in _check.FLOATS:
        with suppress(TypeError):  # NumPy raises for objects that are no type
            if real == dtype and dtype is not None:
                return real
    name = dtype.__name__ if isinstance(dtype, type) else _check.describe(dtype)
    raise TypeError(f"dtype must be float32 or float64, not {name}")
