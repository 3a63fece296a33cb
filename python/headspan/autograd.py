"""Attention for HIPS `autograd <https://github.com/HIPS/autograd>`_.

This module registers functions of :mod:`headspan` with ``autograd``. ``attention`` runs the
forward pass once and the backward pass at most once, for the arguments that are
differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from headspan import _check, _extra
from headspan.ops import attention as ops
from headspan.ops.arguments.options import DIFFERENTIABLE, takes_options
from headspan.ops.execution.functional import ARRAYS, Saved, backward, forward
from headspan.ops.execution.request import Request

try:
    from autograd import value_and_grad as value_and_grad  # for headspan.lab, with the error below
    from autograd.extend import Box
    from autograd.extend import defvjp_argnums as defvjp_argnums
    from autograd.extend import primitive as _untyped_primitive
except ModuleNotFoundError as error:
    raise _extra.missing("headspan.autograd", "autograd", "demo", error.name) from error

_NAMES = (*ARRAYS, *DIFFERENTIABLE)

__all__ = ["attention"]


_Function = TypeVar("_Function", bound=Callable[..., Any])


def primitive(function: _Function) -> _Function:
    """Make a function a primitive of ``autograd`` and keep its static type."""
    return cast(_Function, _untyped_primitive(function))


class _Call:
    """One call of attention: its options and, after the forward pass, the state for the backward pass."""

    def __init__(self, return_lse: bool, options: dict[str, Any]) -> None:
        self.return_lse = return_lse
        self.options = options
        self.request: Request | None = None
        self.saved: Saved | None = None


@primitive
def _attention(*arguments: Any) -> Any:
    *arrays, call = arguments
    query, key, value, *parameters = arrays
    named = dict(zip(DIFFERENTIABLE, parameters, strict=True))
    call.request = Request(query, key, value, call.options | named)
    out, lse, call.saved = forward(call.request, with_lse=call.return_lse)
    out.flags.writeable = False  # the backward pass reads it
    return (out, lse) if call.return_lse else out


def _attention_vjp(argnums: tuple[int, ...], result: Any, args: Any, kwargs: Any) -> Any:
    call: _Call = args[-1]
    request, saved = call.request, call.saved
    assert request is not None
    assert saved is not None

    def gradients(grad: Any) -> tuple[Any, ...]:
        grads = grad if call.return_lse else (grad,)
        # A Box means that a second derivative is traced through values that are constants here.
        if any(isinstance(part, Box) for part in (*args, grad, *grads)):
            raise NotImplementedError("attention has no second derivatives")
        # A float64 in a float32 model, such as the count of a mean, makes the incoming gradients float64.
        upstream = (np.asarray(part, dtype=saved.out.dtype) for part in grads)
        results = backward(request, saved, *upstream, needs=[_NAMES[argnum] for argnum in argnums])
        return tuple(results[_NAMES[argnum]] for argnum in argnums)

    return gradients


defvjp_argnums(_attention, _attention_vjp)


@takes_options
def attention(query: Any, key: Any, value: Any, *, return_lse: bool = False, **options: Any) -> Any:
    """Compute attention with learned spans, differentiable by ``autograd``.

    Attention is causal by default: pass ``causal=False`` to let queries see later keys. The arguments and results are
    those of :func:`headspan.attention`. The result can be differentiated once, in reverse mode, with respect to
    `query`, `key`, `value` and every option that has a field in :class:`headspan.Gradients`.

    Parameters
    ----------
    query, key, value : ndarray, shape (batch, heads, tokens, head_dim), float32 or float64
        Arrays of the same type. They are not copied if the last axis is contiguous.
    span : float or ndarray, optional
        Scalar, ``(heads,)``, ``(batch, heads)`` or ``(batch, heads, tokens)``; None: unlimited.
    return_lse, **options
        See :func:`headspan.attention`.

    Returns
    -------
    out : ndarray, shape (batch, heads, tokens, head_dim)
        With ``return_lse=True``, the tuple ``(out, lse)``.

    See Also
    --------
    headspan.attention : The same for NumPy arrays, with a description of every option.
    headspan.attention_vjp : Attention and its gradients without autograd.
    headspan.torch.attention : Attention for tensors.

    Examples
    --------
    >>> import numpy as np
    >>> from autograd import grad
    >>> from headspan.autograd import attention
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 8, 4))
    >>> def loss(span):
    ...     return attention(q, k, v, span=span, ramp=4).sum()
    >>> grad(loss)(np.array([2.5, 3.5])).shape
    (2,)
    """
    parameters = [options.pop(name, None) for name in DIFFERENTIABLE]
    if not any(isinstance(array, Box) for array in (query, key, value, *parameters)):
        options |= zip(DIFFERENTIABLE, parameters, strict=True)
        plain: Callable[..., Any] = ops.attention
        return plain(query, key, value, **options, return_lse=return_lse)
    return _attention(query, key, value, *parameters, _Call(_check.flag("return_lse", return_lse), options))
