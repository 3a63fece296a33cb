"""The attention function that transformers layers call."""

from __future__ import annotations

from typing import Any

import torch

from headspan.patterns import Window
from headspan.torch.functional import attention, weights
from headspan.torch.transformers import recording, spans
from headspan.torch.transformers.masks import BEGIN, END, FIRST, PLACE, ranges_and_tokens

# Arguments of some layers that headspan does not support and must not ignore.
_UNSUPPORTED = {
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
    """Return the output of a layer, (batch, tokens, heads, head_dim), and its attention weights or None.

    As in "eager", the weights cover all pairs, (batch, heads, tokens, key tokens), after dropout and without the sinks.
    Only ``output_attentions=True`` returns them, at a cost that grows with the cube of the number of tokens.

    Parameters
    ----------
    module : Module
        The attention layer; `set_spans` or `convert` sets its spans.
    query : Tensor, shape (batch, heads, tokens, head_dim)
    key, value : Tensor, shape (batch, key heads, key tokens, head_dim)
        Heads that share keys and values do not repeat them.
    attention_mask : Tensor or None
        Key ranges from `mask_function`, or a mask of pairs from the caller.
    dropout, scaling, sliding_window, softcap, is_causal
        Options of the layer.
    s_aux : Tensor, shape (heads,)
        Attention sinks.
    position_bias : Tensor, shape (1, heads, tokens, key tokens)
        The position bias of T5.

    Raises
    ------
    NotImplementedError
        If a layer requests an option that headspan does not support.
    """
    for name, description in _UNSUPPORTED.items():
        if others.get(name) is not None:
            raise NotImplementedError(f"{name}, {description}, is not supported: use attn_implementation='eager'")
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
    cache = getattr(key, "headspan_cache", None)
    # A cache of heads has its own spans and keeps only the keys within their reach.
    if cache is not None:
        unsupported = {
            "position_bias": position_bias is not None,
            "output_attentions": with_weights,
            "headspan.torch.record": recording.is_recorded(module),
        }
        for name, is_requested in unsupported.items():
            if is_requested:
                raise NotImplementedError(f"{name} is not supported if each head has its own cache")
        cache.check_source(module)
        options |= _cache_mask(attention_mask, query.shape[2], cache.window, causal or query.shape[2] == 1)
        out = cache.attend(query, **{name: option for name, option in options.items() if option is not None})
        return out.transpose(1, 2), None
    options |= spans.of_layer(module)
    if "span" in options:
        options["span"] = options["span"].to(query.device)  # spans of a configuration have no device
    if "pattern" in options:
        _check_sinks(attention_mask, sliding_window)
    options |= _mask_options(attention_mask, query, key, causal, sliding_window, "span" in options)
    if position_bias is not None:
        bias = position_bias.to(query.dtype)
        options["pair_bias"] = bias if "pair_bias" not in options else options["pair_bias"] + bias
    recording.note(module, query, key, value, options)
    options = {name: option for name, option in options.items() if option is not None}
    out = attention(query, key, value, **options)
    return out.transpose(1, 2), weights(query, key, options) if with_weights else None


def is_ranges(attention_mask: torch.Tensor | None) -> bool:
    """Whether `mask_function` made a mask."""
    return attention_mask is not None and attention_mask.dtype == torch.int64 and attention_mask.shape[-1] == 4


def _mask_options(
    attention_mask: torch.Tensor | None,
    query: torch.Tensor,
    key: torch.Tensor,
    causal: bool,
    window: int | None,
    has_spans: bool,
) -> dict[str, Any]:
    if attention_mask is None:
        if window is not None and not causal:
            raise NotImplementedError("sliding_window requires causality or a mask that includes it")
        return {"causal": causal, **({} if window is None else {"pattern": Window(window)})}
    if is_ranges(attention_mask):
        ranges, tokens = ranges_and_tokens(attention_mask, query.shape[2], key.shape[2])
        positions = ranges[0, :, PLACE]
        options = {"causal": False, "key_ranges": ranges[..., [FIRST, END]]}
        # Only spans depend on the positions of the queries, and by default the queries are the last tokens.
        if has_spans and (positions.is_cuda or torch.compiler.is_compiling() or int(positions[-1]) != key.shape[2] - 1):
            options["query_positions"] = positions
        if tokens is not None:
            bias = torch.zeros(tokens.shape, dtype=query.dtype, device=query.device)
            options["key_bias"] = bias.masked_fill(~tokens, -torch.inf)[:, None]
        return options
    mask = attention_mask[..., : key.shape[2]]
    if mask.dtype == torch.bool:
        bias = torch.zeros(mask.shape, dtype=query.dtype, device=query.device).masked_fill(~mask, -torch.inf)
    elif not mask.is_floating_point():
        raise TypeError(f"attention_mask of pairs must be of bool, or of floats that are added, not {mask.dtype}")
    else:
        # Masks of floats exclude pairs by the lowest finite number.
        bias = mask.to(query.dtype)
        bias = bias.masked_fill(bias <= torch.finfo(query.dtype).min / 2, -torch.inf)
    return {"causal": False, "pair_bias": bias}


def _check_sinks(attention_mask: torch.Tensor | None, window: int | None) -> None:
    """Raise an error if padding or a sliding window affects the sinks of `set_spans`."""
    if window is not None:
        raise NotImplementedError("first_tokens cannot be combined with a sliding window")
    if attention_mask is not None and is_ranges(attention_mask) and bool(attention_mask[..., 0, BEGIN].any()):
        raise NotImplementedError("first_tokens are the first tokens, which are padding if padding is on the left")


def _cache_mask(attention_mask: torch.Tensor | None, queries: int, window: int | None, causal: bool) -> dict[str, Any]:
    """Return the left padding as an option; raise an error if the mask has more than padding and the window."""
    refusal = "is not supported if each head has its own cache, which is causal: use a DynamicCache"
    if attention_mask is None:
        if not causal:
            raise NotImplementedError(f"is_causal=False {refusal}")
        return {}
    if not is_ranges(attention_mask):
        raise NotImplementedError(f"attention_mask of pairs {refusal}")
    if attention_mask.shape[2] > queries:
        raise NotImplementedError(f"padding within a text {refusal}")
    first, end, position, begin = attention_mask[:, 0].unbind(-1)
    expected = begin if window is None else begin.maximum(position - window + 1)
    if bool(((first < end) & ((first != expected) | (end > position + 1))).any()):
        raise NotImplementedError(f"a mask that is more than padding and the layer's window {refusal}")
    return {"key_start": begin[:, 0]} if bool(begin.any()) else {}
