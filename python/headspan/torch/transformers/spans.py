"""Spans of the layers of a model of transformers: in its configuration, or learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headspan import _check
from headspan.patterns import Full, Global

UNLIMITED = 1e30  # a span that nothing lies beyond


def set_spans(
    model: torch.nn.Module,
    spans: npt.ArrayLike | Sequence[npt.ArrayLike | None] | None,
    *,
    ramp: float = 32,
    sink_tokens: int = 0,
) -> None:
    """Give the heads of a decoder of transformers spans, which its configuration then holds and saves.

    The model must compute with ``attn_implementation="headspan"``, see `register`; where a layer has a sliding window,
    both apply.

    Parameters
    ----------
    model : PreTrainedModel
        A decoder without an encoder.
    spans : array_like or None
        In tokens: one number for all heads; or (layers, heads); or a column of one for each layer; or a list with the
        spans of the heads of each layer, or None for no limit. None takes all spans away. A flat list is refused: in
        `attention` it has one for each head, and here it might have one for each layer.
    ramp : float
        As for `headspan.attention`.
    sink_tokens : int
        So many first tokens are seen at any distance. They are refused when the model runs with padding on the left,
        packed texts or a sliding window, where they are not the first ones, or not seen.

    Raises
    ------
    ValueError
        For another number of layers or heads, a negative span, or a model that computes otherwise.
    TypeError
        For a wrong type, or what is no model of transformers.

    Examples
    --------
    >>> import headspan.torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> headspan.torch.register()
    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> config = LlamaConfig(vocab_size=50, **sizes, attn_implementation="headspan")
    >>> model = LlamaForCausalLM(config)
    >>> headspan.torch.set_spans(model, [[4, 8, 16, 100], None], ramp=8)
    >>> model.config.headspan_spans
    [[4.0, 8.0, 16.0, 100.0], None]
    """
    config = decoder_config(model)
    if spans is not None and config._attn_implementation != "headspan":
        raise ValueError(
            f"spans need a model with attn_implementation='headspan', not {config._attn_implementation!r}: "
            "headspan.torch.register(), then model.set_attn_implementation('headspan')"
        )
    each = None if spans is None else of_layers(spans, config)
    reached = _check.number("ramp", ramp, at_least=0)
    config.headspan_sink_tokens = _check.integer("sink_tokens", sink_tokens, at_least=0)
    config.headspan_spans, config.headspan_ramp = each, reached


def decoder_config(model: torch.nn.Module) -> Any:
    """Return the configuration of a decoder, or refuse what is none."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "get_text_config"):
        raise TypeError(f"model must be one of transformers, not {type(model).__name__}")
    config = config.get_text_config(decoder=True)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError("model must be a decoder alone: spans of encoders and decoders would be taken for each other")
    return config


def of_model(model: torch.nn.Module, config: Any) -> list[list[float] | None]:
    """Return the spans that a model has, layer by layer: those that it learns, else those of its configuration."""
    written = getattr(config, "headspan_spans", None)
    result = [None] * config.num_hidden_layers if written is None else list(written)
    for module in model.modules():
        if hasattr(module, "headspan_span") and hasattr(module, "layer_idx"):
            result[module.layer_idx] = module.headspan_span().detach().tolist()
    return result


def ramp_of(model: torch.nn.Module, config: Any) -> float:
    """Return the ramp of the spans that a model has."""
    learned = {module.headspan_ramp for module in model.modules() if hasattr(module, "headspan_ramp")}
    if len(learned) > 1:
        raise ValueError(f"ramp must be given where layers have different ones, here {sorted(learned)}")
    ramp: float = learned.pop() if learned else getattr(config, "headspan_ramp", 32)
    return ramp


def of_layers(spans: Any, config: Any) -> list[list[float] | None]:
    """Return spans as they are given for the heads of each layer."""
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    each = list(spans) if isinstance(spans, Sequence) or np.ndim(spans) else [[spans]] * layers
    if any(its is not None and np.ndim(its) == 0 for its in each):
        raise ValueError(
            "spans must be one number for all, or (layers, heads), not a flat list: [[s, ...]] * layers has one for "
            "each head of every layer, [[s], ...] one for each layer"
        )
    if len(each) != layers:
        raise ValueError(f"spans must be of all {layers} layers, not of {len(each)}")
    result: list[list[float] | None] = []
    for layer, its in enumerate(each):
        if its is None:
            result.append(None)
            continue
        array = _check.as_array("spans", its)
        low, _ = _check.limits("spans", array)
        if low < 0:
            raise ValueError(f"spans must not be negative, but hold {low:g}")
        if array.shape not in ((1,), (heads,)):
            raise ValueError(
                f"spans of layer {layer} must be one for each of {heads} heads, not of shape {array.shape}"
            )
        result.append(np.broadcast_to(array.astype(np.float64), (heads,)).tolist())
    return result


def of_layer(module: torch.nn.Module) -> dict[str, Any]:
    """Return the spans of a layer as options of an attention: those that it learns, else those of its configuration."""
    config: Any = getattr(module, "config", None)
    count = getattr(config, "headspan_sink_tokens", 0)
    sinks = {"pattern": Full() | Global(range(count))} if count else {}
    learned = getattr(module, "headspan_span", None)
    if learned is not None:
        return {"span": learned(), "ramp": module.headspan_ramp, **sinks}
    spans = getattr(config, "headspan_spans", None)
    its = None if spans is None else spans[module.layer_idx]
    if its is None:
        return {}
    return {"span": torch.tensor(its), "ramp": config.headspan_ramp, **sinks}
