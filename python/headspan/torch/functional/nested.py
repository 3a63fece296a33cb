"""Attention on nested tensors: sequences of different lengths are concatenated as the segments of one batch item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from headspan.ops.arguments.options import ARRAY_OPTIONS, options_in, refuse_unknown
from headspan.ops.arguments.rows import In
from headspan.ops.segments import segment_ids
from headspan.torch.arrays import array_of
from headspan.torch.private import ragged_axis

# Options that apply to all sequences alike. Those in `_PER_HEAD` must be one number or one number for each head.
_OPTIONS = options_in(In.NESTED)
_PER_HEAD = tuple(name for name in _OPTIONS if name in ARRAY_OPTIONS and ARRAY_OPTIONS[name].per_head)


def nested_attention(
    attention: Callable[..., torch.Tensor], tensors: dict[str, torch.Tensor], options: dict[str, Any]
) -> torch.Tensor:
    """Compute attention within each sequence; the result is nested like `query`: (batch, heads, tokens, head_dim).

    Raises
    ------
    ValueError
        If a tensor has another layout, or if the sequences of the tensors do not match.
    NotImplementedError
        For an option that has values for single sequences or tokens.
    """
    for name, tensor in tensors.items():
        _check_form(name, tensor)
    query, key, value = tensors.values()
    if len(query.offsets()) != len(key.offsets()):
        raise ValueError(f"key must have as many texts as query, {len(query)}, got {len(key)}")
    if not torch.equal(value.offsets(), key.offsets()):
        raise ValueError("value must have as many tokens in each text as key")
    refuse_unknown(options)
    for name, option in options.items():
        if option is not None and (name not in _OPTIONS or (name in _PER_HEAD and np.ndim(option) > 1)):
            suffix = " but as one number or one for each head" if name in _PER_HEAD else ""
            raise NotImplementedError(
                f"{name} cannot be given with nested tensors{suffix}: pad the texts, see key_stop"
            )
    offsets = {"query_segments": query.offsets(), "key_segments": key.offsets()}
    segments = {name: segment_ids(array_of(ends)) for name, ends in offsets.items()}
    out = attention(*map(_as_one_item, (query, key, value)), **options, **segments)
    nested: torch.Tensor = torch.nested.nested_tensor_from_jagged(out[0].transpose(0, 1), query.offsets())
    return nested.transpose(1, 2)


def _check_form(name: str, tensor: torch.Tensor) -> None:
    form = "nested with layout=torch.jagged, of shape (batch, heads, tokens, head_dim), where tokens alone differ"
    if not tensor.is_nested:
        raise ValueError(f"{name} must be {form}, as query, key and value all are or none, got a plain tensor")
    if tensor.layout != torch.jagged or tensor.ndim != 4 or ragged_axis(tensor) != 2:
        raise ValueError(f"{name} must be {form}, got layout={tensor.layout} and {tensor.ndim} axes")


def _as_one_item(nested: torch.Tensor) -> torch.Tensor:
    return nested.transpose(1, 2).values().transpose(0, 1)[None]
