"""Attention as the layers of transformers call it."""

from __future__ import annotations

from typing import Any

import torch

from headspan.patterns import Local
from headspan.torch.functional import attention, weights
from headspan.torch.transformers import recording, spans
from headspan.torch.transformers.masks import BEGIN, END, FIRST, PLACE, ranges_and_tokens

# What some layers hand on and no other implementation of theirs may leave out.
_REFUSED = {
    "indices": "the keys that a layer has chosen for each query",
    "block_indices": "the blocks that a layer has chosen for each query",
    "head_mask": "a mask of heads",
    "layer_head_mask": "a mask of heads",
}


def attention_function(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the outputs of a layer, (batch, tokens, heads, head_dim), and its weights or None.

    Weights are those of all pairs, (batch, heads, tokens, key tokens), after dropout and without the sinks, as "eager"
    has them. They are returned for ``output_attentions=True`` alone, at a cost that grows with the cube of the tokens.

    Parameters
    ----------
    module : Module
        The layer; its spans are those of `set_spans` or `convert`.
    query : Tensor, shape (batch, heads, tokens, head_dim)
    key, value : Tensor, shape (batch, key heads, key tokens, head_dim)
        Not repeated for the heads that share them.
    attention_mask : Tensor or None
        Ranges of keys, as `mask_function` gives them, or a mask of pairs that the caller has made.
    dropout, scaling, sliding_window, softcap, is_causal
        As layers give them.
    s_aux : Tensor, shape (heads,)
        Sinks.
    position_bias : Tensor, shape (1, heads, tokens, key tokens)
        T5's.

    Raises
    ------
    NotImplementedError
        For what some layers ask for and this does not compute.
    """
    for name, what in _REFUSED.items():
        if others.get(name) is not None:
            raise NotImplementedError(f"{name}, {what}, cannot be honoured: use attn_implementation='eager'")
    if others.get("cu_seq_lens_q") is not None and not is_ranges(attention_mask):
        raise NotImplementedError(
            "cu_seq_lens_q, the lengths of packed texts, must come with position_ids, attention_mask=None and "
            "use_cache=False, which tell attn_implementation='headspan' where texts begin"
        )
    with_weights = bool(others.get("output_attentions")) or recording.are_weights_collected()
    sinks = others.get("sinks") if s_aux is None else s_aux
    options: dict[str, Any] = {"scale": scaling, "softcap": softcap}
    if sinks is not None:
        options["sinks"] = sinks.to(torch.float32 if query.dtype.itemsize < 4 else query.dtype)
    if dropout:
        options |= {"dropout": float(dropout), "seed": torch.randint(2**62, (), device=query.device)}
    causal = bool(is_causal if is_causal is not None else getattr(module, "is_causal", True))
    cache = getattr(key, "_headspan_cache", None)
    if cache is not None:  # it has its own spans, and keys as far as these reach
        for name, asked in (("position_bias", position_bias is not None), ("output_attentions", with_weights)):
            if asked:
                raise NotImplementedError(f"{name} cannot be honoured where each head has a cache of its own")
        options |= _with_cache(attention_mask, query.shape[2], cache.window, causal or query.shape[2] == 1)
        out = cache.attend(query, **{name: option for name, option in options.items() if option is not None})
        return out.transpose(1, 2), None
    options |= spans.of_layer(module)
    if "pattern" in options:
        _check_sinks(attention_mask, sliding_window)
    options |= _who_sees_whom(attention_mask, query, key, causal, sliding_window, "span" in options)
    if position_bias is not None:
        bias = position_bias.to(query.dtype)
        options["pair_bias"] = bias if "pair_bias" not in options else options["pair_bias"] + bias
    recording.note(module, query, key, options)
    options = {name: option for name, option in options.items() if option is not None}
    out = attention(query, key, value, **options)
    return out.transpose(1, 2), weights(query, key, options) if with_weights else None


def is_ranges(attention_mask: torch.Tensor | None) -> bool:
    """Whether a mask is one that `mask_function` made."""
    return attention_mask is not None and attention_mask.dtype == torch.int64 and attention_mask.shape[-1] == 4


def _who_sees_whom(
    attention_mask: torch.Tensor | None,
    query: torch.Tensor,
    key: torch.Tensor,
    causal: bool,
    window: int | None,
    has_spans: bool,
) -> dict[str, Any]:
    if attention_mask is None:
        if window is not None and not causal:
            raise NotImplementedError("sliding_window cannot be honoured without causality or a mask that has it")
        return {"causal": causal, **({} if window is None else {"pattern": Local(window - 1)})}
    if is_ranges(attention_mask):
        ranges, tokens = ranges_and_tokens(attention_mask, query.shape[2], key.shape[2])
        places = ranges[0, :, PLACE]
        options = {"causal": False, "key_ranges": ranges[..., [FIRST, END]]}
        # Where queries stand matters to spans alone, and is known without where they are the last ones.
        if has_spans and (torch.compiler.is_compiling() or int(places[-1]) != key.shape[2] - 1):
            options["query_positions"] = places
        if tokens is not None:
            nothing = torch.zeros(tokens.shape, dtype=query.dtype)
            options["key_bias"] = nothing.masked_fill(~tokens, -torch.inf)[:, None]
        return options
    mask = attention_mask[..., : key.shape[2]]
    if mask.dtype == torch.bool:
        bias = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, -torch.inf)
    elif not mask.is_floating_point():
        raise TypeError(f"attention_mask of pairs must be of bool, or of floats that are added, not {mask.dtype}")
    else:  # where pairs are left out by the least number there is
        bias = mask.to(query.dtype)
        bias = bias.masked_fill(bias <= torch.finfo(query.dtype).min / 2, -torch.inf)
    return {"causal": False, "pair_bias": bias}


def _check_sinks(attention_mask: torch.Tensor | None, window: int | None) -> None:
    """Refuse sinks of `set_spans` where they are not the first tokens of a text, or not seen."""
    if window is not None:
        raise NotImplementedError("sink_tokens cannot be honoured beside a sliding window")
    if attention_mask is not None and is_ranges(attention_mask) and bool(attention_mask[..., 0, BEGIN].any()):
        raise NotImplementedError("sink_tokens are the first ones, which with padding on the left are padding")


def _with_cache(attention_mask: torch.Tensor | None, queries: int, window: int | None, causal: bool) -> dict[str, Any]:
    """Return how much padding is on the left; all else a cache goes by itself, and what differs from it is refused."""
    refusal = "cannot be honoured where each head has a cache of its own, which is causal: use a DynamicCache"
    if attention_mask is None:
        if not causal:
            raise NotImplementedError(f"is_causal=False {refusal}")
        return {}
    if not is_ranges(attention_mask):
        raise NotImplementedError(f"attention_mask of pairs {refusal}")
    if attention_mask.shape[2] > queries:
        raise NotImplementedError(f"padding within a text {refusal}")
    first, end, place, begin = attention_mask[:, 0].unbind(-1)
    own_first = begin if window is None else begin.maximum(place - window + 1)
    if bool(((first < end) & ((first != own_first) | (end > place + 1))).any()):
        raise NotImplementedError(f"a mask that is more than padding and the layer's window {refusal}")
    return {"key_begin": begin[:, 0]} if bool(begin.any()) else {}
