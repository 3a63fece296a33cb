"""The hybrid layer and the parts that it is compared with. All of them multiply matrices with NumPy."""

from __future__ import annotations

from typing import Any

import headspan as hs
from headspan.hybrid.blocks import branch, layer_norm
from headspan.hybrid.parameters import Shape

from benchmarks.cases import FORWARD, Array, Case, Inputs
from benchmarks.contenders.prepared import Prepared

_EPSILON = 1e-5


def _arguments(case: Case, inputs: Inputs) -> tuple[Shape, Array, Array, hs.hybrid.HybridParameters]:
    """Return the sizes, the input and the output gradient as (batch, tokens, channels), and the parameters."""
    dim = case.heads * case.head_dim
    x, grad_out = (a.swapaxes(1, 2).reshape(case.batch, -1, dim) for a in (inputs.query, inputs.grad_out))
    parameters = hs.hybrid.hybrid_parameters(dim, case.heads, dtype=case.dtype)
    return Shape(case.batch, case.queries, dim, case.heads), x, grad_out, parameters


def _options(case: Case) -> dict[str, Any]:
    return {"num_heads": case.heads, "max_span": case.max_span, "ramp": case.ramp, "causal": case.causal}


def prepare_hybrid(case: Case, passes: str, inputs: Inputs) -> Prepared:
    """Prepare hybrid_attention."""
    _, x, grad_out, parameters = _arguments(case, inputs)
    options = _options(case)

    def both() -> Any:
        out, vjp = hs.hybrid.hybrid_attention_vjp(x, parameters, **options)
        return out, vjp(grad_out)

    return Prepared(both if passes != FORWARD else lambda: hs.hybrid.hybrid_attention(x, parameters, **options), None)


def prepare_full(case: Case, passes: str, inputs: Inputs) -> Prepared:
    """Prepare a layer of full attention: norm, queries, keys and values, attention, projection."""
    shape, x, grad_out, p = _arguments(case, inputs)
    rows, grad = x.reshape(-1, shape.dim), grad_out.reshape(-1, shape.dim)
    projection = p.projection[shape.dim :]

    def call() -> Any:
        normed, norm_vjp = layer_norm(rows, p.norm_weight, p.norm_bias, _EPSILON)
        attended, vjp = branch(normed, p.global_qkv, shape, {"causal": case.causal})
        out = attended @ projection + p.projection_bias
        if passes == FORWARD:
            return out
        gradients = vjp(grad @ projection.T)
        return out, norm_vjp(gradients.rows), gradients.qkv, attended.T @ grad, grad.sum(axis=0)

    return Prepared(call, None)


def prepare_local(case: Case, passes: str, inputs: Inputs) -> Prepared:
    """Prepare the local branch: queries, keys and values, attention within the predicted spans, projection."""
    shape, x, grad_out, p = _arguments(case, inputs)
    _, span, temperature = hs.hybrid.hybrid_attention(x, p, **_options(case), return_span=True)
    options = {"causal": case.causal, "ramp": case.ramp, "span": span, "temperature": temperature}
    normed, _ = layer_norm(x.reshape(-1, shape.dim), p.norm_weight, p.norm_bias, _EPSILON)
    grad = grad_out.reshape(-1, shape.dim)
    projection = p.projection[: shape.dim]

    def call() -> Any:
        attended, vjp = branch(normed, p.local_qkv, shape, options)
        out = attended @ projection
        return out if passes == FORWARD else (out, vjp(grad @ projection.T), attended.T @ grad)

    return Prepared(call, None)
