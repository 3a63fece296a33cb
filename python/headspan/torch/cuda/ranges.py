"""The keys that each query may see besides causality and spans, as one range for each query."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headspan.ops.arguments.sizes import Sizes, per_token
from headspan.ops.arguments.visibility import check_counts_shape, check_ranges_shape
from headspan.patterns.base import Pattern, Primitive
from headspan.patterns.primitives import Blockwise, Full, Window

_Ends = tuple[torch.Tensor, torch.Tensor]


def key_ranges(options: Mapping[str, Any], patterns: Sequence[Pattern], sizes: Sizes) -> Any:
    """Return the ranges of the queries, of shape (batch or 1, heads or 1, queries, 2), or None if all keys are seen.

    With a prefix, the ranges imply causality.
    """
    ends: list[_Ends] = []
    device = options["query"].device
    if patterns:
        table = _table(tuple(patterns), sizes.queries, sizes.keys, device)
        table = table.reshape(-1, sizes.heads if len(patterns) > 1 else 1, sizes.queries, 2)
        ends.append((table[..., 0], table[..., 1]))
    if "key_ranges" in options:
        ends.append(_of_queries(options["key_ranges"], sizes))
    start = _of_items("key_start", options, sizes)
    stop = _of_items("key_stop", options, sizes)
    if start is not None or stop is not None:
        zero = torch.zeros((1, 1, 1), dtype=torch.int32, device=device)
        ends.append((zero if start is None else start, zero + sizes.keys if stop is None else stop))
    prefix = _of_items("prefix_lengths", options, sizes)
    if prefix is not None:
        position = torch.arange(sizes.keys - sizes.queries, sizes.keys, device=device)
        if "query_positions" in options:
            position = options["query_positions"].reshape(-1, 1, sizes.queries)
        prefix = prefix if start is None else prefix + start
        ends.append((torch.zeros_like(prefix), torch.maximum(position + 1, prefix)))
    if "segment_ids" in options:
        ends.append(_of_segments(options["segment_ids"], sizes))
    if not ends:
        return None
    firsts, lasts = zip(*ends, strict=True)
    first, last = functools.reduce(torch.maximum, firsts), functools.reduce(torch.minimum, lasts)
    first, last = torch.broadcast_tensors(first, last, torch.zeros((1, 1, sizes.queries), device=device))[:2]
    return torch.stack([first, last], dim=-1).to(torch.int32)


def _of_items(name: str, options: Mapping[str, Any], sizes: Sizes) -> torch.Tensor | None:
    if name not in options:
        return None
    counts: torch.Tensor = options[name]
    check_counts_shape(name, tuple(counts.shape), sizes)
    return counts.reshape(-1, 1, 1)


def _of_queries(ranges: torch.Tensor, sizes: Sizes) -> _Ends:
    check_ranges_shape(tuple(ranges.shape), sizes)
    ranges = ranges.reshape(-1, 1, sizes.queries, 2)
    return ranges[..., 0], ranges[..., 1]


def _of_segments(ids: torch.Tensor, sizes: Sizes) -> _Ends:
    """Return the range from the first key of each query's segment to the last; the kernel excludes others between."""
    ids = per_token("segment_ids", ids, sizes.keys, sizes)
    query_ids = ids[:, sizes.keys - sizes.queries :].contiguous()
    ordered, index = ids.sort(stable=True)
    first = index.gather(1, torch.searchsorted(ordered, query_ids))
    last = index.gather(1, torch.searchsorted(ordered, query_ids, right=True) - 1) + 1
    return first[:, None], last[:, None]


@functools.lru_cache(maxsize=16)
def _table(patterns: tuple[Pattern, ...], queries: int, keys: int, device: torch.device) -> torch.Tensor:
    rows = {pattern: _of_pattern(pattern, queries, keys) for pattern in dict.fromkeys(patterns)}
    return torch.from_numpy(np.stack([rows[pattern] for pattern in patterns])).to(device)


def _of_pattern(pattern: Pattern, queries: int, keys: int) -> npt.NDArray[np.int32]:
    """Return the range of keys of each query, (queries, 2); raise NotImplementedError if the keys are no range."""
    position = np.arange(keys - queries, keys)
    parts = []
    for conjunction in pattern.conjunctions():
        ends = [_of_primitive(primitive, position, keys) for primitive in conjunction]
        first = np.maximum.reduce([0 * position, *(each[0] for each in ends)])
        last = np.minimum.reduce([0 * position + keys, *(each[1] for each in ends)])
        parts.append((first, np.maximum(first, last)))
    first, last = parts[0]
    for begin, end in parts[1:]:
        filled, both = end > begin, last > first
        if (filled & both & ((begin > last) | (end < first))).any():
            raise NotImplementedError(f"{pattern.short_name()} is not one range of keys for each query, {_ADVICE}")
        first, last = (
            np.where(filled & both, reduce(old, new), np.where(filled, new, old))
            for reduce, old, new in ((np.minimum, first, begin), (np.maximum, last, end))
        )
    return np.stack([first, last], axis=-1).astype(np.int32)


def _of_primitive(primitive: Primitive, position: npt.NDArray[np.int64], keys: int) -> tuple[Any, Any]:
    if isinstance(primitive, Full):
        return 0 * position, 0 * position + keys
    if isinstance(primitive, Window) and primitive.dilation == 1:
        return position - min(primitive.size - 1, keys), position + min(primitive.ahead, keys) + 1
    if isinstance(primitive, Blockwise):
        size = primitive.block_size
        block = position // size
        return (block - min(primitive.back, keys)) * size, (block + min(primitive.ahead, keys) + 1) * size
    raise NotImplementedError(f"{primitive.short_name()} is not one range of keys for each query, {_ADVICE}")


_ADVICE = "which a pattern must be on a GPU; tensors on the CPU take every pattern"
