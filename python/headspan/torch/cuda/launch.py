"""The forward and backward pass of the operator on a device: memory, block sizes, and the launches of the kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from headspan.ops.execution.functional import ARRAYS
from headspan.torch.arrays import HALF, adjacent_heads, keeps_exact_output
from headspan.torch.cuda import backward as backward_kernels
from headspan.torch.cuda import forward as forward_kernels
from headspan.torch.cuda.arguments import Call, exact_type, read_call
from headspan.torch.cuda.tiles import ABSENT, Rows, View
from headspan.torch.schema import WITH_GRADIENT

# The options whose gradients are in the fields of `Rows`.
_ROWS = dict(zip(Rows._fields, (None, None, "span", "temperature", "alibi_slopes", "sinks"), strict=True))
_NUMBERS = {torch.float32: tl.float32, torch.float64: tl.float64}


class Blocks(NamedTuple):
    """The block of a program: queries, keys, warps, and the tiles that are loaded in advance."""

    rows: int
    tile: int
    warps: int
    stages: int


# The blocks of the three kernels, by the size of a number in bytes and the largest dimension. The queries of a block in
# the last kernel divide those in the second, since the second stores bounds for its blocks. On an H100 the first two
# rows were the fastest of about eight for each kernel; the others were chosen for few spilled registers.
_BLOCKS = {
    (2, 64): (Blocks(128, 64, 4, 3), Blocks(64, 32, 4, 3), Blocks(64, 64, 4, 3)),
    (2, 128): (Blocks(64, 64, 4, 3), Blocks(128, 64, 8, 3), Blocks(64, 128, 8, 2)),
    (2, 256): (Blocks(64, 32, 8, 2), Blocks(64, 32, 8, 2), Blocks(32, 32, 8, 1)),
    (4, 64): (Blocks(64, 32, 4, 2), Blocks(64, 32, 4, 2), Blocks(32, 32, 4, 2)),
    (4, 128): (Blocks(32, 32, 8, 1), Blocks(32, 32, 8, 1), Blocks(32, 32, 8, 1)),
    (4, 256): (Blocks(32, 16, 8, 1), Blocks(32, 16, 8, 1), Blocks(16, 32, 8, 1)),
    (8, 64): (Blocks(32, 16, 4, 1), Blocks(32, 16, 4, 1), Blocks(16, 32, 4, 1)),
    (8, 128): (Blocks(16, 16, 4, 1), Blocks(16, 16, 4, 1), Blocks(16, 16, 4, 1)),
    (8, 256): (Blocks(16, 16, 4, 1), Blocks(16, 16, 4, 1), Blocks(16, 16, 4, 1)),
}


def forward(*tensors: Any, return_lse: bool = False, return_statistics: bool = False, **plain: Any) -> Any:
    """Return the output, and if requested the log-sum-exp, the unrounded output and the statistics."""
    call = read_call(tensors, plain)
    query, exact = call.query, exact_type(call.query)
    batch, heads, queries, _ = query.shape
    shape = (batch, heads, queries, call.value.shape[-1])
    unrounded = return_statistics and query.dtype in HALF and keeps_exact_output(query)
    out = adjacent_heads(query, shape, exact if unrounded else None)
    lse = query.new_empty(shape[:3], dtype=exact) if return_lse else None
    statistics = query.new_empty((*shape[:3], 2), dtype=exact) if return_statistics else None
    rows, tile, warps, stages = _blocks(call)[0]
    if out.numel():
        forward_kernels.forward[(triton.cdiv(queries, rows) * batch * heads,)](
            _tensor(query), _tensor(call.key), _tensor(call.value), _tensor(out), statistics, lse, call.inputs,
            queries, call.key.shape[2], heads, call.settings, rows, tile, _NUMBERS[exact],
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
    results = [out.to(query.dtype) if unrounded else out]
    results += [x for x in (lse, out if unrounded else None, statistics) if x is not None]
    return [call.as_passed(x) for x in results]


def backward(
    grad_out: Any, grad_lse: Any, out: Any, statistics: Any, *tensors: Any, needs: list[bool], **plain: Any
) -> Any:
    """Return the requested gradients, in the order of the arguments."""
    call = read_call(tensors, plain)
    query, key, value, settings = call.query, call.key, call.value, call.settings
    exact = exact_type(query)
    batch, heads, queries, _ = query.shape
    names = [name for name, needed in zip(WITH_GRADIENT, needs, strict=False) if needed]
    grad_out, out = (_last_contiguous(call.to_4d(x)) for x in (grad_out, out))
    if grad_out.dtype is not query.dtype:
        grad_out = grad_out.to(query.dtype)
    lse_view = ABSENT
    if grad_lse is not None:
        grad_lse = call.to_4d(grad_lse)
        lse_view = View(grad_lse, *grad_lse.stride())
    arrays = zip(ARRAYS, (query, key, value), strict=True)
    grads = {name: adjacent_heads(x, x.shape) for name, x in arrays if name in names}
    needed = [name is None or name in call.parameters for name in _ROWS.values()]
    memory = iter(query.new_empty((sum(needed), batch, heads, queries), dtype=exact).unbind())
    rows_out = Rows(*(next(memory) if each else None for each in needed))
    _, of_query, of_key = _blocks(call)
    blocks = triton.cdiv(queries, of_query.rows)
    bounds = query.new_empty((batch, heads, blocks, 4), dtype=torch.int32)
    if out.numel():
        rows, tile, warps, stages = of_query
        backward_kernels.backward_query[(blocks * batch * heads,)](
            _tensor(query), _tensor(key), _tensor(value), _tensor(out), _tensor(grad_out), lse_view,
            statistics.contiguous(), call.inputs, _tensor(grads.get("query")), rows_out, bounds,
            queries, key.shape[2], heads, settings, rows, tile, _NUMBERS[exact], num_warps=warps, num_stages=stages,
        )  # fmt: skip
    if key.numel() and ("key" in names or "value" in names):
        rows, tile, warps, stages = of_key
        backward_kernels.backward_key[(triton.cdiv(key.shape[2], tile) * batch * key.shape[1],)](
            _tensor(query), _tensor(key), _tensor(value), _tensor(grad_out), call.inputs, rows_out, bounds,
            _tensor(grads.get("key")), _tensor(grads.get("value")), queries, key.shape[2], heads,
            triton.next_power_of_2(max(blocks, 1)), of_query.rows, settings, rows, tile, _NUMBERS[exact],
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
    results = {name: call.as_passed(gradient) for name, gradient in grads.items()}
    for name, rows in zip(_ROWS.values(), rows_out, strict=True):
        if name in names:
            results[name] = call.gradient(name, rows)
    return [results[name] for name in names]


def _tensor(tensor: torch.Tensor | None) -> View:
    return ABSENT if tensor is None else View(tensor, *tensor.stride()[:3])


def _last_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _blocks(call: Call) -> tuple[Blocks, Blocks, Blocks]:
    dims = max(call.settings.dims, call.settings.value_dims)
    return _BLOCKS[call.query.dtype.itemsize, 64 if dims <= 64 else dims]
