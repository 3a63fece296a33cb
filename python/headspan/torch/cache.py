"""A key-value cache for tensors in which every head is as long as its span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import torch

from headspan.cache import SpanCache as _SpanCache
from headspan.patterns.base import Pattern
from headspan.torch.arrays import READABLE, wide_array_of

_NAMES = {getattr(torch, name): name for name in ("float32", "float64", "float16", "bfloat16", "int8")}


class SpanCache:
    """A key-value cache that stores for every key head what its heads can reach: `headspan.SpanCache` for tensors.

    The cache is for inference and has no gradients. Tensors are float32, bfloat16 or float16, or float64 for a cache of
    that type. Results have the type of `query`.

    Parameters
    ----------
    batch, num_key_heads, head_dim : int
    span : array_like, shape () or (heads,), optional
    ramp : float
    pattern : Pattern or list of Pattern, optional
    dtype : torch.dtype or str
        Type in which keys and values are stored: float32, float64, float16, bfloat16 or int8.
    value_dim : int, optional
    first_tokens, slack : int
        `headspan.SpanCache` documents these parameters.

    Attributes
    ----------
    batch, count, nbytes, span
        See `headspan.SpanCache`.

    Raises
    ------
    ValueError
        If `pattern` looks ahead.
    TypeError
        If `dtype` is not supported.

    See Also
    --------
    headspan.SpanCache : The same cache for NumPy arrays.
    head_cache : Cache for ``model.generate`` with the spans of each head.
    attention : Attention for tensors.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import SpanCache
    >>> q, k, v = torch.randn(3, 1, 2, 100, 16)
    >>> cache = SpanCache(1, 2, 16, span=[4, 30], ramp=8, dtype=torch.bfloat16)
    >>> prompt = cache.attend(q[:, :, :90], k[:, :, :90], v[:, :, :90])
    >>> for i in range(90, 100):
    ...     out = cache.attend(q[:, :, [i]], k[:, :, [i]], v[:, :, [i]])
    >>> cache.count, cache.nbytes
    (100, 3200)
    """

    def __init__(
        self,
        batch: int,
        num_key_heads: int,
        head_dim: int,
        *,
        span: npt.ArrayLike | torch.Tensor | None = None,
        ramp: float = 32,
        pattern: Pattern | Sequence[Pattern] | None = None,
        dtype: torch.dtype | str = torch.float32,
        value_dim: int | None = None,
        first_tokens: int = 0,
        slack: int = 0,
    ) -> None:
        self._cache = _SpanCache(
            batch,
            num_key_heads,
            head_dim,
            span=_plain("span", span),
            ramp=ramp,
            pattern=pattern,
            dtype=_NAMES.get(dtype, dtype),
            value_dim=value_dim,
            first_tokens=first_tokens,
            slack=slack,
        )

    def __repr__(self) -> str:
        return repr(self._cache)

    @property
    def batch(self) -> int:
        """Number of batch items, which `reorder` may change."""
        return self._cache.batch

    @property
    def count(self) -> int:
        """Number of tokens seen so far."""
        return self._cache.count

    @property
    def nbytes(self) -> int:
        """Memory of keys and values, in bytes."""
        return self._cache.nbytes

    @property
    def span(self) -> torch.Tensor | None:
        """Spans of the heads; you may set shorter ones at any time."""
        span = self._cache.span
        return None if span is None else torch.from_numpy(span)

    @span.setter
    def span(self, span: npt.ArrayLike | torch.Tensor) -> None:
        self._cache.span = _plain("span", span)

    def append(self, key: torch.Tensor, value: torch.Tensor) -> None:
        """Append keys and values of shape (batch, key_heads, tokens, dims), like `headspan.SpanCache.append`."""
        self._cache.append(_array("key", key), _array("value", value))

    @overload
    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor | None = ...,
        value: torch.Tensor | None = ...,
        *,
        span: npt.ArrayLike | torch.Tensor | None = ...,
        clip: bool = ...,
        return_lse: Literal[False] = ...,
        **options: Any,
    ) -> torch.Tensor: ...
    @overload
    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor | None = ...,
        value: torch.Tensor | None = ...,
        *,
        span: npt.ArrayLike | torch.Tensor | None = ...,
        clip: bool = ...,
        return_lse: Literal[True],
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]: ...
    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor | None = None,
        value: torch.Tensor | None = None,
        *,
        span: npt.ArrayLike | torch.Tensor | None = None,
        clip: bool = False,
        return_lse: bool = False,
        **options: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Append new tokens and return attention to all tokens, like `headspan.SpanCache.attend`.

        Returns
        -------
        out : Tensor, shape (batch, heads, tokens, value_dim)
            Of the type of `query`.
        lse : Tensor, shape (batch, heads, tokens)
            Returned only if `return_lse` is True.

        Raises
        ------
        ValueError
            If a tensor requires a gradient, or if a query reaches tokens that are no longer stored.
        """
        new = [None if x is None else _array(name, x) for name, x in (("key", key), ("value", value))]
        plain: dict[str, Any] = {name: _plain(name, option) for name, option in options.items()}
        plain |= {"span": _plain("span", span), "clip": clip, "return_lse": return_lse}
        result = self._cache.attend(_array("query", query), *new, **plain)
        out, lse = result if return_lse else (result, None)
        tensor = torch.from_numpy(out).to(query.dtype)
        return tensor if lse is None else (tensor, torch.from_numpy(lse))

    def truncate(self, count: int) -> None:
        """Remove the last tokens so that `count` tokens remain, as far as `slack` allows."""
        self._cache.truncate(count)

    def reorder(self, items: npt.ArrayLike | torch.Tensor) -> None:
        """Replace batch item i by item ``items[i]``, as in beam search; the batch size may change."""
        self._cache.reorder(_plain("items", items))

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self).from_state_dict(self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Return the full state as numbers, strings, tensors and lists of tensors, for ``torch.save``."""
        state = self._cache.state_dict()
        tensors = {name: [torch.from_numpy(array) for array in state[name]] for name in ("keys", "values")}
        return state | tensors | {"span": self.span}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """Create a cache from the result of `state_dict`."""
        plain = {name: _plain(name, entry) for name, entry in state.items()}
        plain |= {name: [tensor.numpy() for tensor in state[name]] for name in ("keys", "values") if name in state}
        cache = cls.__new__(cls)
        cache._cache = _SpanCache.from_state_dict(plain)
        return cache


def _plain(name: str, option: Any) -> Any:
    """Convert an option that is a tensor to an array."""
    if not isinstance(option, torch.Tensor):
        return option
    _check_device(name, option)
    return wide_array_of(option.detach())


def _check_device(name: str, tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(f"{name} must be on the CPU, not on {tensor.device}; {name}.cpu() copies it")


def _array(name: str, tensor: Any) -> npt.NDArray[Any]:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"{name} must be a tensor of torch, not {type(tensor).__name__}; headspan.SpanCache takes arrays"
        )
    _check_device(name, tensor)
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{name} requires a gradient, which a cache does not support; call attend within torch.no_grad()"
        )
    if tensor.dtype not in READABLE:
        raise TypeError(f"{name} must be of float32, float64, bfloat16 or float16, not {tensor.dtype}")
    return np.asarray(wide_array_of(tensor.detach()))
