"""What a user would write in plain torch, or install, instead of a dense mask: slices, windows, reshapes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
from headspan.patterns import Blockwise, Strided

from benchmarks.cases import FORWARD, Array, Case, Inputs, log_mask_bytes, mask_rows
from benchmarks.contenders.prepared import Prepared
from benchmarks.contenders.torch_peers import definition, distances, prepared_of, tensors_of

# In a backward pass, each slice of keys gets a gradient as large as all keys.
_MOST_TOKENS_OF_SLICES = 2**14


def _starts(case: Case, size: int) -> Iterator[tuple[int, int]]:
    """Yield the first query of each slice and the end of the slice."""
    return ((start, min(start + size, case.queries)) for start in range(0, case.queries, size))


def _near(case: Case, start: int, stop: int) -> Array:
    """Return the keys within the widest span of a slice of queries."""
    offset, reach = case.keys - case.queries, min(case.widest + case.ramp, case.keys)
    last = stop + offset if case.causal else min(case.keys, stop + offset + int(reach))
    return np.arange(max(0, start + offset - int(reach)), last)


def takes_slices(case: Case, passes: str) -> bool:
    """Return whether SDPA over slices computes a case: spans and patterns, with gradients up to some length."""
    short = passes == FORWARD or case.keys <= _MOST_TOKENS_OF_SLICES
    return short and (case.span is not None or case.pattern is not None)


def slices_need(case: Case, passes: str) -> float:
    """Estimate the bytes that `prepare_slices` needs for masks."""
    return log_mask_bytes(case) if case.spans_vary or case.pattern is not None else 0


def prepare_slices(case: Case, passes: str, inputs: Inputs, size: int) -> Prepared:
    """Prepare scaled_dot_product_attention over slices of queries, each with only the keys that one of them sees."""
    torch = import_module("torch")
    sdpa = torch.nn.functional.scaled_dot_product_attention
    offset = case.keys - case.queries
    seen = None if case.allowed is None else case.allowed.mask(case.queries, case.keys)
    if seen is not None and case.causal:
        seen = seen & np.tri(case.queries, case.keys, offset, dtype=bool)
    span = inputs.span
    if span is not None and span.ndim == 2:
        span = (span if case.head_spans else span[:1, :1])[..., None]
    masks: dict[bytes, Any] = {}  # slices whose masks are equal share them
    parts = []
    for start, stop in _starts(case, size):
        if seen is not None:
            keys = np.flatnonzero(seen[start:stop].any(axis=0))
            soft = seen[start:stop, keys].astype(case.dtype)
        else:
            assert span is not None
            keys, rows = _near(case, start, stop), np.arange(start, stop, dtype=case.dtype) + offset
            z = span if span.shape[-1] == 1 else span[..., start:stop]
            soft = mask_rows(case, z[..., None], rows, keys.astype(case.dtype))[1].astype(case.dtype)
        with np.errstate(divide="ignore"):
            mask = None if (soft == 1).all() else masks.setdefault(soft.tobytes(), torch.from_numpy(np.log(soft)))
        is_run = keys[-1] - keys[0] + 1 == keys.size
        parts.append((start, stop, slice(keys[0], keys[-1] + 1) if is_run else torch.from_numpy(keys), mask))

    def attend(q: Any, k: Any, v: Any) -> Any:
        outs = [sdpa(q[:, :, a:b], k[:, :, keys], v[:, :, keys], attn_mask=mask) for a, b, keys, mask in parts]
        return torch.cat(outs, dim=2)

    leaves = tensors_of(passes, inputs.query, inputs.key, inputs.value)
    return prepared_of(passes, leaves, inputs, attend, sum(mask.nbytes for mask in masks.values()))


def takes_eager_slices(case: Case, passes: str) -> bool:
    """Return whether the definition over slices computes a case: spans, with their gradient."""
    return case.span is not None and passes != FORWARD and takes_slices(case, passes)


def prepare_eager_slices(case: Case, passes: str, inputs: Inputs, size: int) -> Prepared:
    """Prepare the definition in dense operations over slices of queries, each with only the keys within the spans."""
    torch = import_module("torch")
    leaves = tensors_of(passes, inputs.query, inputs.key, inputs.value, inputs.span)
    parts = []
    for start, stop in _starts(case, size):
        keys = _near(case, start, stop)
        x = torch.arange(start, stop)[:, None] + (case.keys - case.queries) - torch.from_numpy(keys)
        parts.append((slice(start, stop), slice(keys[0], keys[-1] + 1), distances(case, x)))

    def attend(q: Any, k: Any, v: Any, span: Any) -> Any:
        outs = []
        for rows, keys, pairs in parts:
            z = span[:, :, rows] if span.ndim == 3 else span
            outs.append(definition(case, q[:, :, rows], k[:, :, keys], v[:, :, keys], z, *pairs))
        return torch.cat(outs, dim=2)

    return prepared_of(passes, leaves, inputs, attend, sum(x.nbytes for *_, pairs in parts for x in pairs))


def takes_windows(case: Case, passes: str) -> bool:
    """Return whether a case has the same window for all queries."""
    return case.window is not None and case.queries == case.keys


def _window_mask(case: Case, before: int, after: int, inputs: Inputs, block: int) -> Array:
    """Return the logarithm of the mask of a block of queries and the keys of its window, all of which exist."""
    x = np.arange(before, before + block)[:, None] - np.arange(before + block + after)
    soft = ((x <= before) & (x >= -after)).astype(case.dtype)
    if inputs.span is not None:
        soft *= np.clip((case.ramp + inputs.span.flat[0] - np.abs(x)) / case.ramp, 0, 1).astype(case.dtype)
    with np.errstate(divide="ignore"):
        mask: Array = np.log(soft)
    return mask


def unfold_needs(case: Case, passes: str, size: int) -> float:
    """Estimate the bytes that `prepare_unfold` needs: keys and values once a block, and their gradients."""
    assert case.window is not None
    rows = -(-case.queries // size) * (sum(case.window) + size)
    copies = 2.0 if passes == FORWARD else 4.0
    return copies * case.itemsize * case.batch * case.heads * rows * case.head_dim


def prepare_unfold(case: Case, passes: str, inputs: Inputs, size: int) -> Prepared:
    """Prepare scaled_dot_product_attention over blocks of queries, with the keys of each block as an unfolded view."""
    torch = import_module("torch")
    functional = torch.nn.functional
    assert case.window is not None
    before, after = case.window
    tokens, blocks = case.queries, -(-case.queries // size)
    padding = blocks * size - tokens
    mask = _window_mask(case, before, after, inputs, size)
    # Blocks at the ends have keys that do not exist. A query of the padding sees such keys, so that it sees any.
    missing = [(max(0, before - b * size), max(0, (b + 1) * size + after - tokens)) for b in range(blocks)]
    runs = []
    for (low, high), group in itertools.groupby(range(blocks), lambda b: missing[b]):
        numbers, cut = list(group), mask.copy()
        cut[:, :low] = -np.inf
        if high:
            cut[: size - padding if numbers[-1] == blocks - 1 else size, cut.shape[1] - high :] = -np.inf
        runs.append((numbers[0], numbers[-1] + 1, torch.from_numpy(cut)))

    def cut_up(x: Any) -> Any:
        x = functional.pad(x.flatten(0, 1), (0, 0, before, padding + after))
        return x.unfold(1, before + size + after, size).transpose(-1, -2)

    def attend(q: Any, k: Any, v: Any) -> Any:
        rows = functional.pad(q.flatten(0, 1), (0, 0, 0, padding)).unflatten(1, (blocks, size))
        k, v = cut_up(k), cut_up(v)
        outs = [
            functional.scaled_dot_product_attention(rows[:, a:b], k[:, a:b], v[:, a:b], attn_mask=mask)
            for a, b, mask in runs
        ]
        return torch.cat(outs, dim=1).flatten(1, 2)[:, :tokens].view(q.shape)

    leaves = tensors_of(passes, inputs.query, inputs.key, inputs.value)
    return prepared_of(passes, leaves, inputs, attend, sum(mask.nbytes for *_, mask in runs))


def takes_reshape(case: Case, passes: str) -> bool:
    """Return whether a reshape separates the pairs of a pattern into independent problems."""
    return case.queries == case.keys and _reshape(case) is not None


def _reshape(case: Case) -> tuple[Callable[[Any], Any], Callable[[Any], Any]] | None:
    """Return the functions that bring tensors into the form of independent problems and back, or None."""
    pattern, tokens, heads = case.allowed, case.keys, (case.batch, case.heads)
    if isinstance(pattern, Strided) and pattern.offset is None and tokens % pattern.stride == 0:
        stride = pattern.stride
        return (
            lambda x: x.unflatten(2, (-1, stride)).transpose(2, 3).flatten(0, 1),
            lambda x: x.unflatten(0, heads).transpose(2, 3).flatten(2, 3),
        )
    if isinstance(pattern, Blockwise) and not pattern.back + pattern.ahead and tokens % pattern.block_size == 0:
        size = pattern.block_size
        return lambda x: x.unflatten(2, (-1, size)).flatten(0, 1), lambda x: x.unflatten(0, heads).flatten(2, 3)
    return None


def prepare_reshape(case: Case, passes: str, inputs: Inputs) -> Prepared:
    """Prepare scaled_dot_product_attention of the independent problems of a pattern."""
    sdpa = import_module("torch.nn.functional").scaled_dot_product_attention
    functions = _reshape(case)
    assert functions is not None
    apart, back = functions
    leaves = tensors_of(passes, inputs.query, inputs.key, inputs.value)
    return prepared_of(
        passes, leaves, inputs, lambda *arrays: back(sdpa(*(apart(x) for x in arrays), is_causal=case.causal))
    )


def takes_local_attention(case: Case, passes: str) -> bool:
    """Return whether the package local-attention computes a case: windows, equal on both sides or causal."""
    if not takes_windows(case, passes) or case.window is None or case.window[0] == 0:
        return False
    before, after = case.window
    # The package does not hide the keys with which it pads the end from earlier queries.
    return case.causal or (before == after and case.queries % before == 0 and case.span is None)


def local_attention_needs(case: Case, passes: str) -> float:
    """Estimate the bytes that the package needs: keys and values of each window, and its scores three times."""
    assert case.window is not None
    seen = case.window[0] * (2 if case.causal else 3)
    rows = case.batch * case.heads * case.queries * case.itemsize
    copies = 1.0 if passes == FORWARD else 2.0
    return copies * rows * (3 * seen + 2 * case.head_dim * seen / case.window[0])


def prepare_local_attention(case: Case, passes: str, inputs: Inputs) -> Prepared:
    """Prepare the package local-attention, with the logarithm of a soft mask as its bias."""
    package = import_module("local_attention")
    assert case.window is not None
    size, _ = case.window
    module = package.LocalAttention(
        window_size=size, causal=case.causal, exact_windowsize=True, autopad=True, use_rotary_pos_emb=False
    )
    bias = None
    if inputs.span is not None:
        bias = import_module("torch").from_numpy(_window_mask(case, size, 0, inputs, size)[None])
    leaves = tensors_of(passes, inputs.query, inputs.key, inputs.value)
    held = 0 if bias is None else bias.nbytes
    return prepared_of(passes, leaves, inputs, lambda q, k, v: module(q, k, v, attn_bias=bias), held)
