"""Hybrid attention: a global branch sees all tokens and predicts the span of a local branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Required, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan._help import as_written
from headspan.hybrid.blocks import branch, layer_norm, predict, temperature_of
from headspan.hybrid.parameters import HybridParameters, Per, check_causal, check_input, check_parameters, check_per


@as_written
class HybridGradients(NamedTuple):
    """Gradients of `hybrid_attention`."""

    x: Array
    parameters: HybridParameters


Vjp = Callable[..., HybridGradients]


class Options(TypedDict, total=False):
    """The options of the layer, which `hybrid_attention` describes."""

    num_heads: Required[int]
    max_span: Required[float]
    ramp: float
    per: Per
    sharpen_longer: bool
    temperature_range: float
    causal: bool
    include_self: bool
    epsilon: float


@overload
def hybrid_attention(
    x: npt.ArrayLike, parameters: HybridParameters, *, return_span: Literal[False] = ..., **options: Unpack[Options]
) -> Array: ...
@overload
def hybrid_attention(
    x: npt.ArrayLike, parameters: HybridParameters, *, return_span: Literal[True], **options: Unpack[Options]
) -> tuple[Array, Array, Array]: ...
def hybrid_attention(
    x: npt.ArrayLike,
    parameters: HybridParameters,
    *,
    num_heads: int,
    max_span: float,
    ramp: float = 32,
    per: Per = "batch",
    sharpen_longer: bool = True,
    temperature_range: float = 0.01,
    causal: bool = False,
    include_self: bool = True,
    epsilon: float = 1e-5,
    return_span: bool = False,
) -> np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Combine global attention with local attention, whose span and temperature the global branch predicts.

    Both branches look both ways by default: pass ``causal=True``, with ``per="token"``, to hide later tokens. With u
    the layer norm of x and s between 0 and 1, the layer computes::

        g    = attention(u)                                       all tokens
        s    = sigmoid(predictor(mean of g over the tokens))      of every token's own g with per="token"
        span = max_span * s
        t    = 1 + temperature_range * (1 - s)                    0.5 + temperature_range * s unless sharpen_longer
        l    = attention(u, span, temperature t)
        out  = [l, g] @ projection + projection_bias

    Parameters
    ----------
    x : array_like, shape (batch, tokens, dim) or (tokens, dim)
        float32 or float64.
    parameters : HybridParameters
        Parameters of the type of `x`. `hybrid_parameters` draws initial ones.
    num_heads : int
        The number of heads of each branch.
    max_span : float
        The largest span, in tokens.
    ramp : float
        The number of tokens over which the mask falls from 1 to 0 beyond the span, see `headspan.attention`. 0 gives a
        hard window, through which the span gets no gradient.
    per : {"batch", "head", "token"}
        Whether to predict one span per batch item, per head, or per head and token.
    sharpen_longer : bool
        Whether the temperature falls as the span grows. Otherwise it rises. This and `temperature_range` are ignored if
        `parameters.log_temperature` is set.
    temperature_range : float
        The change of the temperature from a span of 0 to the largest span.
    causal : bool
        Whether tokens do not see later tokens. This needs ``per="token"``, since a mean over all tokens looks ahead.
    include_self : bool
        Whether a token sees itself.
    epsilon : float
        A number added to the variance in the layer norm.
    return_span : bool
        Whether to return the predicted span and temperature too.

    Returns
    -------
    out : ndarray, of the shape of `x`
    span : ndarray, shape (batch, 1), (batch, heads) or (batch, heads, tokens), following `per`
        In tokens. Span and temperature are returned only with `return_span`, without a batch axis if `x` has none.
    temperature : ndarray, of the shape of `span`; (heads,) when it is learned

    Raises
    ------
    ValueError
        If the predicted span is not finite.
    TypeError
        If `x` and the parameters differ in type.

    See Also
    --------
    hybrid_attention_vjp : The same layer with its gradients.
    hybrid_parameters : Initial parameters of the hybrid layer.
    headspan.torch.HybridAttention : The same as a module of PyTorch.

    Notes
    -----
    The published layer takes the span out of the graph (``int(max_span * s.mean().item())``), so that its predictor
    gets no gradient. Here the span shapes a soft mask, and the gradient is exact. In the published layer all batch
    items share the mean span, blocks of queries share a slice of keys, of which only the first are kept, and the scale
    of dot products is ``head_dim ** -0.25``. Its local queries, keys and values are the normed input itself, because
    the result of a second attention over them is discarded. Here each item, head or token has its own span, the window
    of a token is around itself, the local branch has its own matrices, and the scale is ``head_dim ** -0.5``.
    docs/explain/hybrid.md gives the reasons.

    References
    ----------
    HybridAttention in focusedattention.py of github.com/sine2pi/Big_worm is the published layer. Spans as a soft mask
    are from Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> x = np.random.default_rng(0).standard_normal((2, 1000, 16))
    >>> parameters = hs.hybrid.hybrid_parameters(16, 4)
    >>> out, span, temperature = hs.hybrid.hybrid_attention(x, parameters, num_heads=4, max_span=256, return_span=True)
    >>> out.shape, span.shape
    ((2, 1000, 16), (2, 1))
    """
    function: Callable[..., tuple[np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray], Vjp]] = hybrid_attention_vjp
    return function(
        x,
        parameters,
        num_heads=num_heads,
        max_span=max_span,
        ramp=ramp,
        per=per,
        sharpen_longer=sharpen_longer,
        temperature_range=temperature_range,
        causal=causal,
        include_self=include_self,
        epsilon=epsilon,
        return_span=return_span,
    )[0]


@overload
def hybrid_attention_vjp(
    x: npt.ArrayLike, parameters: HybridParameters, *, return_span: Literal[False] = ..., **options: Unpack[Options]
) -> tuple[Array, Vjp]: ...
@overload
def hybrid_attention_vjp(
    x: npt.ArrayLike, parameters: HybridParameters, *, return_span: Literal[True], **options: Unpack[Options]
) -> tuple[tuple[Array, Array, Array], Vjp]: ...
def hybrid_attention_vjp(
    x: npt.ArrayLike,
    parameters: HybridParameters,
    *,
    num_heads: int,
    max_span: float,
    ramp: float = 32,
    per: Per = "batch",
    sharpen_longer: bool = True,
    temperature_range: float = 0.01,
    causal: bool = False,
    include_self: bool = True,
    epsilon: float = 1e-5,
    return_span: bool = False,
) -> tuple[np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray], Vjp]:
    """Hybrid attention with its vector-Jacobian product.

    Both branches look both ways by default: pass ``causal=True``, with ``per="token"``, to hide later tokens.

    Parameters
    ----------
    x, parameters, num_heads, max_span, ramp, per, sharpen_longer, temperature_range, causal, include_self, epsilon
    return_span
        As for `hybrid_attention`. Do not change the arrays before you call `vjp`.

    Returns
    -------
    out : ndarray, or (out, span, temperature) with `return_span`
        As from `hybrid_attention`.
    vjp : callable
        ``vjp(grad_out, grad_span=None)`` returns the gradients of ``sum(grad_out * out) + sum(grad_span * span)`` with
        respect to the inputs, as a named tuple with the fields `x` and `parameters`, which are `HybridParameters`. A
        `grad_span`, for example from `span_penalty`, keeps spans short.

    See Also
    --------
    hybrid_attention : The layer without the function for gradients.
    HybridParameters : The parameters of the hybrid layer, or their gradients.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> x = np.random.default_rng(0).standard_normal((2, 1000, 16))
    >>> parameters = hs.hybrid.hybrid_parameters(16, 4)
    >>> out, vjp = hs.hybrid.hybrid_attention_vjp(x, parameters, num_heads=4, max_span=256)
    >>> gradients = vjp(np.ones_like(out))
    >>> bool(abs(gradients.parameters.predictor_weight).min() > 0)
    True
    """
    rows, shape, input_shape = check_input(x, num_heads)
    per_checked = check_per(per)
    p = check_parameters(parameters, rows, shape, per_checked)
    longest = _check.number("max_span", max_span, at_least=0)
    c = _check.number("temperature_range", temperature_range, at_least=0)
    _check.fits("max_span", 0, longest, rows.dtype)
    _check.fits("temperature_range", 0, c, rows.dtype)
    smallest = _check.number("epsilon", epsilon, at_least=float(_check.FINFO[rows.dtype].tiny))
    sharpen = _check.flag("sharpen_longer", sharpen_longer)
    with_span = _check.flag("return_span", return_span)
    options = {"ramp": ramp, "causal": check_causal(causal, per_checked), "include_self": include_self}

    normed, norm_vjp = layer_norm(rows, p.norm_weight, p.norm_bias, smallest)
    wide, global_vjp = branch(normed, p.global_qkv, shape, options)
    share, share_vjp = predict(wide, p.predictor_weight, p.predictor_bias, shape, per_checked)
    span = longest * share
    temperature = temperature_of(share, c, sharpen) if p.log_temperature is None else np.exp(p.log_temperature)
    near, local_vjp = branch(normed, p.local_qkv, shape, options | {"span": span, "temperature": temperature})
    both = np.concatenate((near, wide), axis=1)
    out = (both @ p.projection + p.projection_bias).reshape(input_shape)
    if len(input_shape) == 2:
        span = span[0]

    def vjp(grad_out: npt.ArrayLike, grad_span: npt.ArrayLike | None = None) -> HybridGradients:
        """Return the gradients of x and of the parameters."""
        grad = _check.gradient("grad_out", grad_out, out.shape, like=("x", rows)).reshape(rows.shape)
        grad_both = grad @ p.projection.T  # both @ projection
        local = local_vjp(grad_both[:, : shape.dim])
        assert local.span is not None
        assert local.temperature is not None
        total_span = local.span
        if grad_span is not None:
            extra = _check.gradient("grad_span", grad_span, span.shape, like=("x", rows))
            total_span = total_span + extra.reshape(local.span.shape)
        grad_share = longest * total_span  # longest * share
        grad_log_temperature = None
        if p.log_temperature is None:
            grad_share += (-c if sharpen else c) * local.temperature  # 1 + c * (1 - share), 0.5 + c * share
        else:
            grad_log_temperature = local.temperature * temperature  # exp(log_temperature)
        grad_wide, grad_predictor_weight, grad_predictor_bias = share_vjp(grad_share)
        wide_gradients = global_vjp(grad_both[:, shape.dim :] + grad_wide)
        grad_rows, grad_norm_weight, grad_norm_bias = norm_vjp(local.rows + wide_gradients.rows)
        gradients = HybridParameters(
            norm_weight=grad_norm_weight,
            norm_bias=grad_norm_bias,
            global_qkv=wide_gradients.qkv,
            local_qkv=local.qkv,
            predictor_weight=grad_predictor_weight,
            predictor_bias=grad_predictor_bias,
            projection=both.T @ grad,
            projection_bias=grad.sum(axis=0),
            log_temperature=grad_log_temperature,
        )
        return HybridGradients(grad_rows.reshape(input_shape), gradients)

    if not with_span:
        return out, vjp
    shown = temperature[0] if len(input_shape) == 2 and p.log_temperature is None else temperature
    return (out, span, shown.copy()), vjp  # a copy, since vjp needs the temperature unchanged
