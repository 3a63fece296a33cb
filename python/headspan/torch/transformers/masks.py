"""Masks of transformers as a range of keys for every query instead of a mask of pairs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from headspan.torch.private import assert_on_device, constant_when_compiled
from headspan.torch.transformers.private import (
    arguments_of_rule,
    calls_attention_functions,
    name_of_rule,
    parts_of_rule,
)

# Entries in the last axis of a mask, for each query: the first visible key, the key after the last visible one, the
# position of the query among the keys, and the number of padding keys on the left of its batch item. If a sequence has
# padding inside, further rows follow that mark each key as a token, 1, or padding, 0, with four keys in a row.
FIRST, END, PLACE, BEGIN = range(4)


class Range(NamedTuple):
    """The keys from `first` to before `end`, of shape (batch or 1, queries), numbered like the queries."""

    first: torch.Tensor
    end: torch.Tensor


def mask_function(
    batch_size: int,
    q_length: int = 0,
    kv_length: int = 0,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    mask_function: Any = None,
    attention_mask: torch.Tensor | None = None,
    cache_position: torch.Tensor | None = None,
    config: Any = None,
    allow_is_causal_skip: bool = True,
    device: torch.device | str | None = None,
    **_others: Any,
) -> torch.Tensor | None:
    """Return the mask of a model call, as `AttentionMaskInterface` requests it.

    Parameters
    ----------
    batch_size, q_length, kv_length, q_offset, kv_offset : int
        Sizes, and the token indices of the first query and of the first key.
    mask_function : callable
        The rule for pairs, composed of the rules of `transformers.masking_utils`.
    attention_mask : Tensor, shape (batch, tokens)
        True for tokens, False for padding.
    cache_position : Tensor, shape (queries,)
        Positions of the queries, which older versions pass instead of `q_length` and `q_offset`.
    config : PreTrainedConfig
        Configuration of the calling model.
    allow_is_causal_skip : bool
        False if the model itself computes with the mask, as DeepSeek's selection of keys does.
    device : device, optional
        Device of the model, which older versions do not pass.

    Returns
    -------
    Tensor or None, shape (batch, 1, queries, 4)
        None if the mask is only causal or excludes nothing, and there is no padding. Padding within a sequence adds
        rows.

    Raises
    ------
    NotImplementedError
        If the visible keys of a query are not a range, if the rule is not one of transformers, or if the model
        computes with the mask itself or does not call attention functions.
    """
    if cache_position is not None:
        q_length, q_offset = len(cache_position), cache_position[0]
        device = cache_position.device
    # While tracing, values are unknown and the parts of a rule cannot be inspected.
    traced = torch.compiler.is_compiling()
    if config is not None:
        _reject_custom_attention(config.__class__)
        if not (traced or allow_is_causal_skip) and q_length > 1 and _can_request_masks():
            _reject_custom_mask(mask_function, config)
    offset = q_offset if traced else int(q_offset)
    valid = _valid(attention_mask, kv_length, kv_offset)
    if valid is None:
        name = name_of_rule(mask_function)
        if name == "bidirectional_mask_function":
            return None
        is_at_end = not isinstance(offset, torch.Tensor) and offset + q_length == kv_offset + kv_length
        if name == "causal_mask_function" and is_at_end:
            return None
    query = offset + torch.arange(q_length, device=device)[None]
    all_keys = Range(query * 0 + kv_offset, query * 0 + kv_offset + kv_length)
    seen = (
        _range_of_pairs(mask_function, query, all_keys, batch_size, kv_length)
        if traced
        else _range_of(mask_function, query, all_keys)
    )
    shape = (batch_size, q_length)
    begin = torch.zeros(batch_size, 1, dtype=torch.int64, device=device)
    end = torch.full_like(begin, kv_length)
    has_holes = False
    if valid is not None:
        begin, end, has_holes = _edges(valid)
    first = (seen.first - kv_offset).clamp(min=0).expand(shape).maximum(begin)
    last = (seen.end - kv_offset).clamp(max=kv_length).expand(shape).minimum(end)
    # Empty ranges must not lie beyond the last key, so that ranges ascend.
    first = first.minimum(torch.full_like(first, kv_length))
    parts = (first, last.maximum(first), (query - kv_offset).expand(shape), begin.expand(shape))
    ranges = torch.stack(parts, dim=-1)
    if has_holes and valid is not None:
        rows = torch.nn.functional.pad(valid.long(), (0, -kv_length % 4)).unflatten(-1, (-1, 4))
        ranges = torch.cat([ranges, rows.expand(batch_size, -1, -1)], dim=1)
    return ranges[:, None]


def ranges_and_tokens(mask: torch.Tensor, queries: int, keys: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Split a mask of `mask_function` into the ranges of the queries and the tokens among the keys, or None."""
    ranges, rows = mask[:, 0, :queries], mask[:, 0, queries:]
    return ranges, rows.flatten(1)[:, :keys].bool() if rows.shape[1] else None


@constant_when_compiled
def _reject_custom_attention(kind: type) -> None:
    """Reject models whose attention calls no function; they would misread ranges as a mask, and None as no mask."""
    name = _custom_attention_name(kind)
    if name is not None:
        raise NotImplementedError(
            f"{name} computes attention with its own code and does not support "
            "attn_implementation='headspan': use 'eager'"
        )


@functools.cache
def _custom_attention_name(kind: type) -> str | None:
    """Return the name of a configuration's model if its attention calls no attention function."""
    from transformers import MODEL_MAPPING

    model = MODEL_MAPPING.get(kind, None)
    return model.__name__ if isinstance(model, type) and not calls_attention_functions(model) else None


def _reject_custom_mask(rule: Callable[..., Any], config: Any) -> None:
    """Reject models that compute with a mask of pairs.

    For rules outside `_CAUSAL`, and for a single query with a static cache, transformers requests the mask.
    """
    if "causal_mask_function" in _names_of(rule) <= _CAUSAL:
        raise NotImplementedError(
            f"the model of {type(config).__name__} requires a mask of pairs, which "
            "attn_implementation='headspan' does not create: use 'sdpa' or 'eager'"
        )


@functools.cache
def _can_request_masks() -> bool:
    """Whether models can request a mask of pairs; in older versions only static caches do."""
    from transformers.masking_utils import create_causal_mask

    return "allow_is_causal_skip" in inspect.signature(create_causal_mask).parameters


def _valid(attention_mask: torch.Tensor | None, kv_length: int, kv_offset: int) -> torch.Tensor | None:
    """Return which keys are tokens, or None if there is no padding."""
    if attention_mask is None:
        return None
    missing = kv_length + kv_offset - attention_mask.shape[-1]
    mask = torch.nn.functional.pad(attention_mask, (0, max(missing, 0))).bool()[:, kv_offset : kv_offset + kv_length]
    return None if not torch.compiler.is_compiling() and bool(mask.all()) else mask


def _edges(valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Return the first token, the key after the last token, and whether padding may lie between them."""
    count = valid.sum(-1, keepdim=True)
    begin = valid.int().argmax(-1, keepdim=True)
    end = torch.where(count > 0, valid.shape[-1] - valid.flip(-1).int().argmax(-1, keepdim=True), begin)
    return begin, end, torch.compiler.is_compiling() or bool((end - begin != count).any())


def _names_of(rule: Any) -> set[str]:
    """Return the names of all rules that a rule is composed of."""
    parts = parts_of_rule(rule)
    return set().union(*map(_names_of, parts)) if parts else {name_of_rule(rule)}


def _range_of(rule: Any, query: torch.Tensor, all_keys: Range) -> Range:
    """Return the range of keys that a rule allows for each query."""
    name = name_of_rule(rule)
    parts = [_range_of(part, query, all_keys) for part in parts_of_rule(rule)]
    if parts:
        return _intersection(parts) if name == "and_masks" else _union(parts)
    if name not in RULES:
        rule_name = getattr(rule, "__qualname__", repr(rule))
        raise NotImplementedError(
            f"the mask {rule_name} is unknown to attn_implementation='headspan': use 'sdpa' or 'eager'"
        )
    return RULES[name](query, all_keys, **arguments_of_rule(rule))


def _range_of_pairs(
    rule: Callable[..., Any], query: torch.Tensor, all_keys: Range, batch_size: int, kv_length: int
) -> Range:
    """Return the range that a rule allows for each query by evaluating all pairs, once for all layers."""
    begin = all_keys.first[:, :1]
    item = torch.arange(batch_size, device=query.device)[:, None, None, None]
    pairs = rule(
        item,
        item[:1] * 0,
        query[:, None, :, None],
        (begin + torch.arange(kv_length, device=query.device))[:, None, None],
    )
    sees = pairs.expand(batch_size, 1, query.shape[1], kv_length)[:, 0]
    count, first = sees.sum(-1), sees.int().argmax(-1)
    last = kv_length - sees.flip(-1).int().argmax(-1)
    assert_on_device(
        ((last - first == count) | (count == 0)).all(),
        "each query must see a range of keys where a model is compiled with attn_implementation='headspan'",
    )
    return Range(begin + first, begin + first + count)


def _intersection(parts: list[Range]) -> Range:
    first, end = parts[0]
    for part in parts[1:]:
        first, end = torch.maximum(first, part.first), torch.minimum(end, part.end)
    return Range(first, end)


def _union(parts: list[Range]) -> Range:
    """Return the union, which is a range because every range is empty or contains the query."""
    first, end = parts[0]
    for part in parts[1:]:
        is_filled = part.first < part.end
        first = torch.where(is_filled, torch.minimum(first, part.first), first)
        end = torch.where(is_filled, torch.maximum(end, part.end), end)
    return Range(first, end)


def _causal(query: torch.Tensor, all_keys: Range) -> Range:
    return Range(all_keys.first, query + 1)


def _bidirectional(query: torch.Tensor, all_keys: Range) -> Range:
    return all_keys


def _sliding(query: torch.Tensor, all_keys: Range, sliding_window: int) -> Range:
    return Range(query - sliding_window + 1, all_keys.end)


def _sliding_bidirectional(query: torch.Tensor, all_keys: Range, sliding_window: int) -> Range:
    return Range(query - sliding_window, query + sliding_window + 1)


def _chunked(query: torch.Tensor, all_keys: Range, chunk_size: int, left_padding: torch.Tensor) -> Range:
    left = left_padding.reshape(-1, 1)
    first = left + torch.div(query - left, chunk_size, rounding_mode="floor") * chunk_size
    return Range(first, first + chunk_size)


def _packed(query: torch.Tensor, all_keys: Range, packed_sequence_mask: torch.Tensor) -> Range:
    ids = packed_sequence_mask.contiguous()
    return Range(torch.searchsorted(ids, ids), torch.searchsorted(ids, ids, right=True))


def _within_packed(query: torch.Tensor, all_keys: Range, mask_function: Any, position_ids: torch.Tensor) -> Range:
    """Apply a rule to positions that restart in every sequence; another rule separates the sequences."""
    shift = query - position_ids
    inner = _range_of(mask_function, position_ids, Range(all_keys.first - shift, all_keys.end - shift))
    return Range(inner.first + shift, inner.end + shift)


def _blocks(query: torch.Tensor, all_keys: Range, block_sequence_ids: torch.Tensor) -> Range:
    """Return the run of adjacent keys with the same id as the query; it is empty for ids below 0."""
    ids = block_sequence_ids
    starts = torch.cat([torch.ones_like(ids[:, :1], dtype=torch.bool), ids[:, 1:] != ids[:, :-1]], dim=1)
    runs = starts.cumsum(-1).contiguous()
    for item, item_starts in zip(ids, starts, strict=True):
        named = item[item_starts & (item >= 0)]
        if named.numel() != named.unique().numel():
            raise NotImplementedError("block_sequence_ids that recur are not a range of keys: use 'sdpa' or 'eager'")
    run = runs.gather(1, query.expand(len(ids), -1))
    first, end = torch.searchsorted(runs, run), torch.searchsorted(runs, run, right=True)
    inside = ids.gather(1, query.expand(len(ids), -1)) >= 0
    return Range(torch.where(inside, first, 0), torch.where(inside, end, 0))


# The names of the rules and of their parameters are those of transformers.masking_utils.
RULES: dict[str, Callable[..., Range]] = {
    "causal_mask_function": _causal,
    "bidirectional_mask_function": _bidirectional,
    "sliding_window_overlay": _sliding,
    "sliding_window_bidirectional_overlay": _sliding_bidirectional,
    "chunked_overlay": _chunked,
    "packed_sequence_mask_function": _packed,
    "remap_positions_for_packed_sequence": _within_packed,
    "blockwise_overlay": _blocks,
}
# Rules that need no mask of pairs unless the model requests it.
_CAUSAL = {"causal_mask_function", "sliding_window_overlay", "chunked_overlay"}
