"""Spans of the layers of a transformers model: from its configuration, or learned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headspan import _check
from headspan.patterns import Full, Global
from headspan.torch.transformers.models import check_implementation, decoder_config, number_attentions

UNLIMITED = 1e30  # a span that covers any sequence
NAME = "headspan"  # the name of the attention implementation


def set_spans(
    model: torch.nn.Module,
    spans: npt.ArrayLike | Sequence[npt.ArrayLike | None] | None,
    *,
    ramp: float = 32,
    first_tokens: int = 0,
) -> None:
    """Set the spans of the heads of a transformers model; its configuration stores and saves them.

    The model must use ``attn_implementation="headspan"``, see `register`. If a layer has a sliding window, both the
    window and the spans apply.

    Parameters
    ----------
    model : PreTrainedModel
        A decoder without an encoder, or an encoder alone.
    spans : array_like or None
        Spans in tokens: one number for all heads, an array of shape (layers, heads) or (layers, 1), or a list with the
        spans of the heads of each layer or None. A layer of None and a span of inf have no limit. None removes all
        spans. A flat list raises an error, because it could hold a span for each head or for each layer.
    ramp : float
        See `headspan.attention`.
    first_tokens : int
        Number of first tokens that are visible at any distance; in an encoder they also see all others. With sinks,
        left padding, packed sequences and sliding windows raise an error when the model runs, because the sinks would
        not be the first tokens or not be visible.

    Raises
    ------
    ValueError
        If the number of layers or heads does not match, a span is negative, the model uses another implementation, or
        it has learned spans from `convert`, which replace those of the configuration.
    TypeError
        If `model` is not a transformers model.

    See Also
    --------
    fit_spans : The smallest spans for a trained model, set in the model.
    freeze_spans : Replaces learned spans by fixed ones.
    head_cache : Cache for ``model.generate`` with the spans of each head.

    Notes
    -----
    The saved configuration also contains ``attn_implementation="headspan"``. Newer versions of transformers (5.10 does,
    5.0 does not) read it: `from_pretrained` then restores the spans without the argument, but requires a prior call of
    `register`. If you request another implementation, the model computes without spans.

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
    if spans is not None:
        check_implementation(config, "spans need")
    if any(hasattr(module, "headspan_span") and module.config is config for module in model.modules()):
        raise ValueError(
            "model must have no learned spans, which replace those of set_spans; headspan.torch.freeze_spans(model) "
            "turns them into fixed spans, which set_spans can change"
        )
    layers = None if spans is None else of_layers(spans, config)
    if layers is not None:
        number_attentions(model, config)
    checked_ramp = _check.number("ramp", ramp, at_least=0)
    config.headspan_first_tokens = _check.integer("first_tokens", first_tokens, at_least=0)
    config.headspan_spans, config.headspan_ramp = layers, checked_ramp
    note_learned(model, config)
    save_name(model, config, layers is not None)


def freeze_spans(model: torch.nn.Module) -> None:
    """Replace the learned spans of a transformers model by fixed spans in its configuration.

    The results of the model do not change. Its spans are then the same as after `set_spans`: `save_pretrained` saves
    them, and ``from_pretrained(..., attn_implementation="headspan")`` restores them. They are no longer parameters;
    `convert` turns them into learned spans again. To save a model during training, freeze a copy of it.

    Parameters
    ----------
    model : PreTrainedModel
        A model with learned spans from `convert`, but not one with both an encoder and a decoder.

    Raises
    ------
    ValueError
        If the model has no learned spans or several configurations, an attention has no `layer_idx`, or ramps differ.
    TypeError
        If `model` is not a transformers model.

    See Also
    --------
    convert : Adds learned spans to an existing model.
    set_spans : Sets the spans of a transformers model.

    Examples
    --------
    >>> import headspan.torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes))
    >>> spans = headspan.torch.convert(model, max_span=100, ramp=8)
    >>> headspan.torch.freeze_spans(model)
    >>> model.config.headspan_spans[1]
    [100.0, 100.0, 100.0, 100.0]
    """
    config = decoder_config(model)
    learned = [module for module in model.modules() if hasattr(module, "headspan_span")]
    if not learned:
        raise ValueError("model must have learned spans, which headspan.torch.convert gives it, but has none")
    number_attentions(model, config)
    for module in learned:
        if not isinstance(getattr(module, "layer_idx", None), int):
            raise ValueError(f"each attention must have a number, layer_idx, but a {type(module).__name__} has none")
        if module.config is not config:
            raise ValueError(f"model must be a single part with one configuration: {type(module).__name__} has another")
    spans, ramp = of_model(model, config), ramp_of(model, config)
    for module in learned:
        del module.headspan_span, module.headspan_ramp
    set_spans(model, spans, ramp=ramp, first_tokens=getattr(config, "headspan_first_tokens", 0))


@contextmanager
def temporary_spans(config: Any, spans: Sequence[list[float] | None], ramp: float) -> Iterator[None]:
    """Set the spans of all layers in a configuration, and restore them on exit even after an error."""
    names = ("headspan_spans", "headspan_ramp", "attn_implementation")  # `of_layer` sets the last one
    before = {name: vars(config)[name] for name in names if name in vars(config)}
    config.headspan_spans, config.headspan_ramp = list(spans), ramp
    try:
        yield
    finally:
        for name in names:
            if name in before:
                setattr(config, name, before[name])
            elif name in vars(config):
                delattr(config, name)


def take_span(module: torch.nn.Module) -> list[float] | None:
    """Remove the spans of a layer from its configuration and return them."""
    config: Any = getattr(module, "config", None)
    spans, layer = getattr(config, "headspan_spans", None), getattr(module, "layer_idx", None)
    if spans is None or layer is None:
        return None
    taken: list[float] | None = spans[layer]
    rest = [None if index == layer else heads for index, heads in enumerate(spans)]
    config.headspan_spans = None if all(heads is None for heads in rest) else rest
    return taken


def note_learned(model: torch.nn.Module, config: Any, others: Sequence[int] = ()) -> None:
    """Record in a configuration which layers have learned spans, to detect later if they are not loaded."""
    learned = [module for module in model.modules() if hasattr(module, "headspan_span") and module.config is config]
    numbers = {getattr(module, "layer_idx", None) for module in learned} - {None} | set(others)
    if numbers and not getattr(config, "is_encoder_decoder", False):
        config.headspan_learned = sorted(numbers)
    elif hasattr(config, "headspan_learned"):
        del config.headspan_learned


def save_name(model: torch.nn.Module, config: Any, has_spans: bool) -> None:
    """Add the name of the attention implementation to the saved configuration, or remove it.

    For a sub-configuration, the name is set in the parent configuration, which transformers reads.
    """
    named: Any = NAME
    for parent in (module.config for module in model.modules() if hasattr(module, "config")):
        keys = [key for key in getattr(parent, "sub_configs", ()) if getattr(parent, key, None) is config]
        if keys:
            config, named = parent, {keys[0]: NAME}
            break
    if has_spans:
        config.attn_implementation = named
    elif vars(config).get("attn_implementation") == named:
        del config.attn_implementation


def of_model(model: torch.nn.Module, config: Any) -> list[list[float] | None]:
    """Return the spans of each layer of a model: learned spans if they exist, else those of the configuration."""
    fixed = getattr(config, "headspan_spans", None)
    result = [None] * config.num_hidden_layers if fixed is None else list(fixed)
    learned = {m.layer_idx: m.headspan_span for m in model.modules() if hasattr(m, "headspan_span")}
    for layer in range(len(result)):
        if layer in learned:
            result[layer] = learned[layer]().detach().tolist()
        else:
            _check_loaded(config, layer)
    return result


def ramp_of(model: torch.nn.Module, config: Any) -> float:
    """Return the ramp of the spans of a model."""
    ramps = {module.headspan_ramp for module in model.modules() if hasattr(module, "headspan_ramp")}
    if not ramps or getattr(config, "headspan_spans", None) is not None:
        ramps.add(getattr(config, "headspan_ramp", 32))
    if len(ramps) > 1:
        raise ValueError(f"ramp must be given, because layers have different ones: {sorted(ramps)}")
    ramp: float = ramps.pop()
    return ramp


def of_layers(spans: Any, config: Any) -> list[list[float] | None]:
    """Return the argument `spans` as a list with the spans of the heads, or None, for each layer."""
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    rows = list(spans) if isinstance(spans, Sequence) or np.ndim(spans) else [[spans]] * layers
    if any(row is not None and np.ndim(row) == 0 for row in rows):
        raise ValueError(
            "spans must be one number for all, or (layers, heads), not a flat list: [[s, ...]] * layers has one for "
            "each head of every layer, [[s], ...] one for each layer"
        )
    if len(rows) != layers:
        raise ValueError(f"spans must be for all {layers} layers, not of {len(rows)}")
    result: list[list[float] | None] = []
    for layer, row in enumerate(rows):
        if row is None:
            result.append(None)
            continue
        array = np.minimum(_check.spans("spans", row), UNLIMITED)  # a configuration in JSON has no inf
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
    """Return the spans of a layer as options of attention: learned spans if they exist, else configured ones."""
    config: Any = getattr(module, "config", None)
    count = getattr(config, "headspan_first_tokens", 0)
    sinks = {"pattern": Full() | Global(range(count))} if count else {}
    learned = getattr(module, "headspan_span", None)
    if learned is not None:
        return {"span": learned(), "ramp": module.headspan_ramp, **sinks}
    heads = _configured(module)
    if heads is None:
        return {}
    # Loading removes the name from the configuration, but it must be saved again.
    if not hasattr(config, "attn_implementation") and not torch.compiler.is_compiling():
        config.attn_implementation = NAME
    return {"span": torch.tensor(heads), "ramp": config.headspan_ramp, **sinks}


@torch.no_grad()
def settings_of_layer(module: torch.nn.Module) -> dict[str, Any]:
    """Return the spans of a layer as numbers, or None, with their ramp and the number of first tokens."""
    config, learned = getattr(module, "config", None), getattr(module, "headspan_span", None)
    if learned is None:
        spans, ramp = _configured(module), getattr(config, "headspan_ramp", None)
    else:
        spans, ramp = learned().tolist(), module.headspan_ramp
    if spans is None:
        return {"spans": None}
    return {"spans": spans, "ramp": ramp, "first_tokens": getattr(config, "headspan_first_tokens", 0)}


def _configured(module: torch.nn.Module) -> list[float] | None:
    """Return the spans of a layer in its configuration, or None."""
    config: Any = getattr(module, "config", None)
    layer: Any = getattr(module, "layer_idx", None)
    _check_loaded(config, layer)
    spans = getattr(config, "headspan_spans", None)
    if spans is None:
        return None
    if layer is None:
        raise ValueError(
            f"{type(module).__name__} has no number, layer_idx, by which it finds its spans in the configuration; "
            "headspan.torch.set_spans(model, model.config.headspan_spans, ramp=model.config.headspan_ramp) numbers it"
        )
    heads: list[float] | None = spans[layer]
    return heads
