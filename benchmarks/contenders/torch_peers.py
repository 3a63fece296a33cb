"""The peers in PyTorch, which is imported when a contender is prepared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.cases import BACKWARD, BOTH, FORWARD, Case, Inputs, log_mask, log_mask_bytes, mask_rows
from benchmarks.contenders.prepared import Prepared


def tensors_of(passes: str, *arrays: Any) -> list[Any]:
    """Return tensors on the memory of arrays, which require gradients unless only the forward pass is timed."""
    torch = import_module("torch")
    return [torch.from_numpy(array).requires_grad_(passes != FORWARD) for array in arrays]


def prepared_of(
    passes: str, leaves: Sequence[Any], inputs: Inputs, attend: Callable[..., Any], held: int = 0
) -> Prepared:
    """Return the timed call of a function of tensors, with the gradients of these in a backward pass."""
    torch = import_module("torch")
    grad_out = torch.from_numpy(inputs.grad_out)

    def forward() -> Any:
        with torch.no_grad():
            return (attend(*leaves),)

    def both() -> Any:
        out = attend(*leaves)
        return out, *torch.autograd.grad(out, leaves, grad_out)

    if passes == BACKWARD:
        output = attend(*leaves)

    def backward() -> Any:
        return output, *torch.autograd.grad(output, leaves, grad_out, retain_graph=True)

    return Prepared(
        {FORWARD: forward, BACKWARD: backward, BOTH: both}[passes],
        lambda value: tuple(tensor.detach().numpy() for tensor in value),
        held,
    )


def _corners_differ(case: Case) -> bool:
    """Return whether the is_causal of torch is another mask, since it aligns the first query with the first key."""
    return case.causal and case.queries != case.keys and case.queries > 1


def sdpa_needs(case: Case, passes: str) -> float:
    """Estimate the bytes that `prepare_sdpa` needs."""
    return log_mask_bytes(case) if _corners_differ(case) else 0


def prepare_sdpa(case: Case, passes: str, inputs: Inputs) -> Prepared:
    """Prepare scaled_dot_product_attention without spans."""
    if _corners_differ(case):
        return prepare_sdpa_mask(case, passes, inputs)
    sdpa = import_module("torch.nn.functional").scaled_dot_product_attention
    leaves = tensors_of(passes, inputs.query, inputs.key, inputs.value)
    causal = case.causal and case.queries > 1  # a single query is at the last key and sees all keys
    return prepared_of(passes, leaves, inputs, lambda q, k, v: sdpa(q, k, v, is_causal=causal))


def sdpa_mask_needs(case: Case, passes: str) -> float:
    """Estimate the bytes that `prepare_sdpa_mask` needs."""
    return log_mask_bytes(case)


def prepare_sdpa_mask(case: Case, passes: str, inputs: Inputs) -> Prepared:
    """Prepare scaled_dot_product_attention with a dense additive mask."""
    torch = import_module("torch")
    sdpa = torch.nn.functional.scaled_dot_product_attention
    mask = torch.from_numpy(log_mask(case, inputs))
    leaves = tensors_of(passes, inputs.query, inputs.key, inputs.value)
    return prepared_of(passes, leaves, inputs, lambda q, k, v: sdpa(q, k, v, attn_mask=mask), mask.nbytes)


def eager_needs(case: Case, passes: str) -> float:
    """Estimate the bytes that `prepare_eager` needs for the score matrices that exist at the same time."""
    return case.scores * case.itemsize * (4.0 if passes == FORWARD else 7.0)


def distances(case: Case, x: Any) -> tuple[Any, Any]:
    """Return the distances of pairs as floating-point numbers, and which pairs are hidden, from q - k."""
    torch = import_module("torch")
    hidden = x < 0 if case.causal else torch.zeros_like(x, dtype=torch.bool)
    return x.abs().to(getattr(torch, case.dtype)), hidden


def definition(case: Case, q: Any, k: Any, v: Any, span: Any, x: Any, hidden: Any) -> Any:
    """Compute the definition in dense operations: softmax times mask, normalised again.

    Parameters
    ----------
    case : Case
    q, k, v, span : Tensor
    x, hidden : Tensor
        As `distances` returns them.
    """
    z = span[..., None] if span.ndim == 3 else span[..., None, None]
    # Like headspan, and unlike clamp, relu has a zero gradient at the point where the mask becomes 0.
    mask = ((case.ramp + z - x) / case.ramp).relu().clamp_max(1).masked_fill(hidden, 0)
    # The softmax subtracts the maximum over the allowed pairs, because a larger masked score would cost precision.
    scores = (case.head_dim**-0.5 * (q @ k.mT)).masked_fill(mask == 0, -math.inf)
    weights = scores.softmax(-1) * mask
    return (weights / weights.sum(-1, keepdim=True)) @ v


def prepare_eager(case: Case, passes: str, inputs: Inputs) -> Prepared:
    """Prepare the definition in dense operations."""
    torch = import_module("torch")
    leaves = tensors_of(passes, inputs.query, inputs.key, inputs.value, inputs.span)
    pairs = distances(case, torch.arange(case.queries)[:, None] + (case.keys - case.queries) - torch.arange(case.keys))
    held = sum(array.nbytes for array in pairs)
    return prepared_of(passes, leaves, inputs, lambda q, k, v, z: definition(case, q, k, v, z, *pairs), held)


def _window(case: Case) -> int:
    """Return the number of keys within the widest span and its ramp."""
    return max(1, min(math.ceil(case.widest + case.ramp), case.queries))


def window_needs(case: Case, passes: str) -> float:
    """Estimate the bytes that `prepare_window` needs: padded copies, keys and values twice, and their gradients."""
    copies = 9.0 if passes == FORWARD else 18.0
    mask = 2.0 * _window(case) * (case.batch * case.heads * case.queries if case.spans_vary else 1)
    return case.itemsize * (copies * case.batch * case.heads * case.queries * case.head_dim + mask)


def prepare_window(case: Case, passes: str, inputs: Inputs) -> Prepared:
    """Prepare a sliding window: each block of queries attends to the keys of its own and the previous block."""
    torch = import_module("torch")
    functional = torch.nn.functional
    sdpa = functional.scaled_dot_product_attention
    window = _window(case)
    blocks = -(-case.queries // window)
    padding = blocks * window - case.queries
    assert inputs.span is not None
    span = inputs.span.reshape(-1, *inputs.span.shape[2:])
    if span.ndim == 2:
        span = np.pad(span, ((0, 0), (0, padding))).reshape(-1, blocks, window, 1)
    else:
        span = (span if case.head_spans else span[:1])[:, None, None, None]
    rows = np.arange(window, 2 * window, dtype=case.dtype)
    keys = np.arange(2 * window, dtype=case.dtype)
    with np.errstate(divide="ignore"):
        mask = torch.from_numpy(np.log(mask_rows(case, span, rows, keys)[1]).astype(case.dtype))
    first_mask, other_mask = mask[:, :1, :, window:], mask[:, 1:] if mask.shape[1] > 1 else mask

    def cut(tensor: Any) -> Any:
        if padding:
            tensor = functional.pad(tensor, (0, 0, 0, padding))
        return tensor.reshape(case.batch * case.heads, blocks, window, case.head_dim)

    def twice(tensor: Any) -> Any:
        return torch.cat((tensor[:, :-1], tensor[:, 1:]), dim=2)

    def attend(q: Any, k: Any, v: Any) -> Any:
        q, k, v = cut(q), cut(k), cut(v)
        out = sdpa(q[:, :1], k[:, :1], v[:, :1], attn_mask=first_mask)
        if blocks > 1:
            out = torch.cat((out, sdpa(q[:, 1:], twice(k), twice(v), attn_mask=other_mask)), dim=1)
        out = out.reshape(case.batch, case.heads, blocks * window, case.head_dim)
        return out[:, :, : case.queries]

    leaves = tensors_of(passes, inputs.query, inputs.key, inputs.value)
    return prepared_of(passes, leaves, inputs, attend, mask.nbytes)


def flex_needs(case: Case, passes: str) -> float:
    """Estimate the bytes that `create_block_mask` needs: the distances of all pairs as integers, and their mask."""
    masks = case.batch * case.heads if case.spans_vary else 1
    return 18.0 * masks * case.queries * case.keys


def prepare_flex(case: Case, passes: str, inputs: Inputs) -> Prepared:
    """Prepare flex_attention with a block mask for the visible pairs and a score_mod for the ramp."""
    torch = import_module("torch")
    flex = import_module("torch.nn.attention.flex_attention")
    import_module("torch._dynamo").reset()  # otherwise earlier cases count towards its limit of recompilations
    offset = case.keys - case.queries
    span = None if inputs.span is None else torch.from_numpy(inputs.span)
    pattern = None if case.allowed is None else torch.from_numpy(case.allowed.mask(case.queries, case.keys))

    def distance(q: Any, k: Any) -> Any:
        return q + offset - k

    def span_of(b: Any, h: Any, q: Any) -> Any:
        if not case.spans_vary:
            return case.span
        assert span is not None
        return span[b, h] if case.head_spans else span[b, h, q]

    def visible(b: Any, h: Any, q: Any, k: Any) -> Any:
        x = distance(q, k)
        allowed = x >= 0 if case.causal else x == x
        if pattern is not None:
            allowed = allowed & pattern[q, k]
        return allowed if span is None else allowed & (x.abs() < span_of(b, h, q) + case.ramp)

    def soften(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        mask = (case.ramp + span_of(b, h, q) - distance(q, k).abs()) / case.ramp
        return score + torch.log(torch.clamp(mask, 0, 1))

    masked = case.causal or span is not None or pattern is not None
    shape = (case.batch, case.heads) if case.spans_vary else (None, None)
    blocks = flex.create_block_mask(visible, *shape, case.queries, case.keys, device="cpu") if masked else None
    compiled = torch.compile(flex.flex_attention, dynamic=False)
    score_mod = None if span is None else soften
    leaves = tensors_of(passes, inputs.query, inputs.key, inputs.value)
    held = 0 if pattern is None else pattern.nbytes
    return prepared_of(
        passes, leaves, inputs, lambda q, k, v: compiled(q, k, v, score_mod=score_mod, block_mask=blocks), held
    )
