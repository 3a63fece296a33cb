"""Attention for HIPS `autograd <https://github.com/HIPS/autograd>`_.

The functions here are those of :mod:`headspan` made known to ``autograd``; they hold no
mathematics of their own. ``attention`` runs the forward pass once and the backward pass at most
once, whichever of its arguments are differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from headspan.ops import attention as ops
from headspan.ops.arguments.options import DIFFERENTIABLE, takes_options

try:
    from autograd import value_and_grad
    from autograd.extend import Box, defvjp_argnums
    from autograd.extend import primitive as _untyped_primitive
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "headspan.autograd needs the autograd package: pip install 'headspan[demo]'",
        name=error.name,
    ) from error

__all__ = ["attention", "defvjp_argnums", "primitive", "value_and_grad"]


_Function = TypeVar("_Function", bound=Callable[..., Any])


def primitive(function: _Function) -> _Function:
    """Make a function known to ``autograd``, and keep its type."""
    return cast(_Function, _untyped_primitive(function))


class _Call:
    """One call of attention: its options, and the backward pass once the forward has run."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.vjp: Callable[..., Any] | None = None


@primitive
def _attention(query: Any, key: Any, value: Any, *parameters_and_call: Any) -> Any:
    *parameters, call = parameters_and_call
    named = dict(zip(DIFFERENTIABLE, parameters, strict=True))
    result, call.vjp = ops.attention_vjp(query, key, value, **named, **call.options)
    return result


def _attention_vjp(argnums: tuple[int, ...], result: Any, args: Any, kwargs: Any) -> Any:
    call: _Call = args[-1]
    vjp = call.vjp
    assert vjp is not None

    def backward(grad: Any) -> tuple[Any, ...]:
        grads = grad if call.options["return_lse"] else (grad,)
        # An outer derivative is being traced through what this pass holds as constants.
        if any(isinstance(part, Box) for part in (*args, grad, *grads)):
            raise NotImplementedError("attention has no second derivatives")
        gradients = vjp(*grads)
        return tuple(gradients[argnum] for argnum in argnums)

    return backward


defvjp_argnums(_attention, _attention_vjp)


@takes_options
def attention(query: Any, key: Any, value: Any, *, return_lse: bool = False, **options: Any) -> Any:
    """Attention with a learned span, differentiable by ``autograd``.

    Takes the arguments of :func:`headspan.attention` and returns what it returns. The result can
    be differentiated (once, in reverse mode) with respect to `query`, `key`, `value`, `span`,
    `temperature`, `alibi_slopes` and `key_bias`.

    Parameters
    ----------
    query, key, value : ndarray, shape (batch, heads, tokens, head_dim), float32 or float64
        All of the same type. Only the last axis has to be contiguous to cost no copy.
    span : float or ndarray, optional
        Scalar, ``(heads,)``, ``(batch, heads)`` or ``(batch, heads, tokens)``; None is unlimited.
    return_lse, **options
        See :func:`headspan.attention`.

    Returns
    -------
    out : ndarray, shape (batch, heads, tokens, head_dim)
        With ``return_lse=True``, the tuple ``(out, lse)``.

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
    options["return_lse"] = return_lse
    if not any(isinstance(array, Box) for array in (query, key, value, *parameters)):
        return ops.attention(query, key, value, **dict(zip(DIFFERENTIABLE, parameters, strict=True)), **options)
    return _attention(query, key, value, *parameters, _Call(options))
