"""Merge attention over disjoint sets of keys into attention over their union."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan._help import as_written


@as_written
class MergeGradients(NamedTuple):
    """Gradients of `merge_attention`, one array per part."""

    outs: list[Array]
    lses: list[Array]


def merge_attention(
    outs: Sequence[npt.ArrayLike], lses: Sequence[npt.ArrayLike]
) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
    """Merge attention over disjoint sets of keys into the exact attention over their union.

    Parameters
    ----------
    outs : sequence of array_like, shape (..., tokens, head_dim)
        Outputs of `attention` for the same queries and different keys; all float32 or all float64.
    lses : sequence of array_like, shape (..., tokens)
        Log-sum-exps of the same calls.

    Returns
    -------
    out : ndarray, shape (..., tokens, head_dim)
    lse : ndarray, shape (..., tokens)
        NaN in `outs` and `lses` propagates.

    Raises
    ------
    ValueError
        If the sequences are empty or differ in length, or if shapes differ.
    TypeError
        If the arrays differ in type.

    See Also
    --------
    merge_attention_vjp : The same merge with its gradients.
    attention : Returns the parts to merge, with ``return_lse=True``.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 100, 16))
    >>> sets = (slice(0, 70), slice(70, 100))
    >>> parts = [hs.attention(q, k[:, :, s], v[:, :, s], causal=False, return_lse=True) for s in sets]
    >>> out, lse = hs.merge_attention(*zip(*parts))
    >>> bool(np.allclose(out, hs.attention(q, k, v, causal=False)))
    True
    """
    return merge_attention_vjp(outs, lses)[0]


def merge_attention_vjp(
    outs: Sequence[npt.ArrayLike], lses: Sequence[npt.ArrayLike]
) -> tuple[tuple[Array, Array], Callable[..., MergeGradients]]:
    """Merge attention and return the function that computes the gradients of the parts.

    Parameters
    ----------
    outs, lses
        As for `merge_attention`.

    Returns
    -------
    (out, lse) : tuple of ndarray
    vjp : callable
        ``vjp(grad_out, grad_lse=None)`` returns the gradients as a named tuple with the fields `outs` and `lses`, two
        lists.

    See Also
    --------
    merge_attention : The merge alone.
    attention_vjp : The gradients of the parts.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> (out, lse), vjp = hs.merge_attention_vjp(np.zeros((2, 5, 3)), np.zeros((2, 5)))
    >>> vjp(np.ones((5, 3))).outs[0][0]
    array([0.5, 0.5, 0.5])
    """
    parts = _checked("outs", outs)
    logs = _checked("lses", lses)
    if len(parts) != len(logs):
        raise ValueError(f"outs and lses must have the same length, got {len(parts)} and {len(logs)}")
    for part, log in zip(parts, logs, strict=True):
        _check.same_dtype({"outs": parts[0], "lses": log})
        _check.same_dtype({"outs[0]": parts[0], "outs": part})
        if part.ndim == 0 or part.shape != parts[0].shape:
            raise ValueError(
                f"outs must all have one shape (..., tokens, head_dim), not {parts[0].shape} and {part.shape}"
            )
        if log.shape != part.shape[:-1]:
            raise ValueError(
                f"lses must have the shape of outs up to the last axis, {part.shape[:-1]}, not {log.shape}"
            )

    highest = np.maximum.reduce(logs)
    if np.isposinf(highest).any():
        raise ValueError("lses must be finite or -inf, got inf")
    base = np.where(np.isneginf(highest), 0, highest)  # a row without keys: -inf - -inf would be NaN
    exponentials = [np.exp(log - base) for log in logs]
    total = np.add.reduce(exponentials)
    shares = [e / np.where(total == 0, 1, total) for e in exponentials]
    out: Array = np.add.reduce([share[..., None] * part for share, part in zip(shares, parts, strict=True)])
    lse: Array = base + np.log(total, where=total != 0, out=np.full_like(total, -np.inf))

    def vjp(grad_out: npt.ArrayLike, grad_lse: npt.ArrayLike | None = None) -> MergeGradients:
        """Return the gradients of the outs and lses of the parts."""
        grad = _check.gradient("grad_out", grad_out, out.shape, like=("outs", out))
        grad_log = (
            np.zeros_like(lse)
            if grad_lse is None
            else _check.gradient("grad_lse", grad_lse, lse.shape, like=("outs", out))
        )
        grad_outs: list[Array] = [share[..., None] * grad for share in shares]
        along = [(grad * part).sum(axis=-1) for part in parts]
        mean = np.add.reduce([share * each for share, each in zip(shares, along, strict=True)])
        grad_lses: list[Array] = [share * (each - mean + grad_log) for share, each in zip(shares, along, strict=True)]
        return MergeGradients(grad_outs, grad_lses)

    return (out, lse), vjp


def _checked(name: str, arrays: Sequence[npt.ArrayLike]) -> list[Array]:
    listed = _check.sequence(name, arrays, "arrays")
    if not listed:
        raise ValueError(f"{name} must contain at least one array, got none")
    return [_check.float_array(name, array) for array in listed]
