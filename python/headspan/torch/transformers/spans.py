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
NAME = "headspan"  # of the attention function that reads spans


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

    Notes
    -----
    The configuration also holds ``attn_implementation="headspan"`` when it is saved. Newer versions of transformers
    (5.10 does, 5.0 does not) read it: a model has its spans again where the argument of `from_pretrained` is left out,
    and is not loaded before `register`. Any other implementation that is asked for computes without spans.

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
    if spans is not None and config._attn_implementation != NAME:
        raise ValueError(
            f"spans need a model with attn_implementation='headspan', not {config._attn_implementation!r}: "
            "headspan.torch.register(), then model.set_attn_implementation('headspan')"
        )
    each = None if spans is None else of_layers(spans, config)
    reached = _check.number("ramp", ramp, at_least=0)
    config.headspan_sink_tokens = _check.integer("sink_tokens", sink_tokens, at_least=0)
    config.headspan_spans, config.headspan_ramp = each, reached
    note_learned(model, config)
    save_name(model, config, each is not None)


def freeze_spans(model: torch.nn.Module) -> None:
    """Write the spans that a model of transformers has learned into its configuration, in their place.

    The model computes what it did. Its spans are those of `set_spans` from then on: `save_pretrained` keeps them, and
    ``from_pretrained(..., attn_implementation="headspan")`` has them again. They are no parameters any longer;
    `convert` makes spans that are learned of them. To save a model that is trained on, freeze a copy of it.

    Parameters
    ----------
    model : PreTrainedModel
        A model to which `convert` gave spans, without an encoder beside a decoder.

    Raises
    ------
    ValueError
        For a model without learned spans or of several parts, an attention without a number, or different ramps.
    TypeError
        For what is no model of transformers.

    Examples
    --------
    >>> import headspan.torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes))
    >>> spans = headspan.torch.convert(model, limit=100, ramp=8)
    >>> headspan.torch.freeze_spans(model)
    >>> model.config.headspan_spans[1]
    [100.0, 100.0, 100.0, 100.0]
    """
    config = decoder_config(model)
    learned = [its for its in model.modules() if hasattr(its, "headspan_span")]
    if not learned:
        raise ValueError("model must have learned spans, which headspan.torch.convert gives it, but has none")
    for module in learned:
        if not isinstance(getattr(module, "layer_idx", None), int):
            raise ValueError(f"each attention must have a number, layer_idx, but a {type(module).__name__} has none")
        if module.config is not config:
            raise ValueError(
                f"model must be one part alone, with one configuration: {type(module).__name__} has another"
            )
    spans, ramp = of_model(model, config), ramp_of(model, config)
    for module in learned:
        del module.headspan_span, module.headspan_ramp
    set_spans(model, spans, ramp=ramp, sink_tokens=getattr(config, "headspan_sink_tokens", 0))


def take_span(module: torch.nn.Module) -> list[float] | None:
    """Return the spans that a layer has in its configuration, which then has none for it."""
    config: Any = getattr(module, "config", None)
    spans, layer = getattr(config, "headspan_spans", None), getattr(module, "layer_idx", None)
    if spans is None or layer is None:
        return None
    own: list[float] | None = spans[layer]
    left = [None if number == layer else each for number, each in enumerate(spans)]
    config.headspan_spans = None if all(each is None for each in left) else left
    return own


def note_learned(model: torch.nn.Module, config: Any, others: Sequence[int] = ()) -> None:
    """Write into a configuration which layers have learned spans, so that they are missed if they are not loaded."""
    learned = [its for its in model.modules() if hasattr(its, "headspan_span") and its.config is config]
    numbers = {getattr(its, "layer_idx", None) for its in learned} - {None} | set(others)
    if numbers and not getattr(config, "is_encoder_decoder", False):
        config.headspan_learned = sorted(numbers)
    elif hasattr(config, "headspan_learned"):
        del config.headspan_learned


def save_name(model: torch.nn.Module, config: Any, has_spans: bool) -> None:
    """Let a configuration be saved with the name of the attention that reads its spans, or without it.

    Where it is a part of another one, that of the whole model says so, which is what transformers reads.
    """
    named: Any = NAME
    for whole in (its.config for its in model.modules() if hasattr(its, "config")):
        keys = [key for key in getattr(whole, "sub_configs", ()) if getattr(whole, key, None) is config]
        if keys:
            config, named = whole, {keys[0]: NAME}
            break
    if has_spans:
        config.attn_implementation = named
    elif vars(config).get("attn_implementation") == named:
        del config.attn_implementation


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
    learned = {its.layer_idx: its.headspan_span for its in model.modules() if hasattr(its, "headspan_span")}
    for layer in range(len(result)):
        if layer in learned:
            result[layer] = learned[layer]().detach().tolist()
        else:
            _check_loaded(config, layer)
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


def _check_loaded(config: Any, layer: int | None) -> None:
    if layer in (getattr(config, "headspan_learned", None) or ()):
        raise ValueError(
            f"layer {layer} was saved with learned spans, which are not loaded: headspan.torch.convert with the limit "
            "of before, then load_state_dict(..., strict=False); or give others by headspan.torch.set_spans"
        )


def of_layer(module: torch.nn.Module) -> dict[str, Any]:
    """Return the spans of a layer as options of an attention: those that it learns, else those of its configuration."""
    config: Any = getattr(module, "config", None)
    count = getattr(config, "headspan_sink_tokens", 0)
    sinks = {"pattern": Full() | Global(range(count))} if count else {}
    learned = getattr(module, "headspan_span", None)
    if learned is not None:
        return {"span": learned(), "ramp": module.headspan_ramp, **sinks}
    _check_loaded(config, getattr(module, "layer_idx", None))
    spans = getattr(config, "headspan_spans", None)
    its = None if spans is None else spans[module.layer_idx]
    if its is None:
        return {}
    if not hasattr(config, "attn_implementation") and not torch.compiler.is_compiling():
        config.attn_implementation = NAME  # which loading takes out of the configuration, to be saved again
    return {"span": torch.tensor(its), "ramp": config.headspan_ramp, **sinks}
