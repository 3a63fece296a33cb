"""Access to the spans of a model: find them, replace them temporarily, and set them permanently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from headspan.torch.layers.adaptive import AdaptiveSpanAttention
from headspan.torch.layers.multihead import SpanMultiheadAttention
from headspan.torch.layers.spans import AdaptiveSpan
from headspan.torch.transformers.models import (
    check_implementation,
    decoder_config,
    is_bidirectional,
    is_of_transformers,
    layers_of,
    number_attentions,
)
from headspan.torch.transformers.spans import UNLIMITED, set_spans

Spans = npt.NDArray[np.float64]


class Lent(nn.Module):
    """Temporary spans that replace an `AdaptiveSpan` and are set from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.value = torch.zeros(())

    def forward(self) -> torch.Tensor:
        """Return the spans in tokens, of shape (heads,)."""
        return self.value


class Sizes(NamedTuple):
    """Sizes of an attention module."""

    heads: int
    key_heads: int
    head_dim: int


class Places:
    """The attention modules of a model that have spans, in the order of the layers.

    Attributes
    ----------
    model : Module
    attentions : list of Module
    sizes : Sizes
    of_transformers : bool
    is_bidirectional : bool
        Whether the model is a bidirectional transformers model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        named = [(name, m) for name, m in model.named_modules() if _is_of_layers(m) or is_of_transformers(m)]
        if not named:
            raise ValueError(
                "model must have attentions with spans: AdaptiveSpanAttention, a torch.nn.MultiheadAttention that "
                "headspan.torch.convert gave spans, or a model of transformers"
            )
        kinds = {is_of_transformers(module) for _, module in named}
        if len(kinds) > 1:
            raise ValueError("model must have attentions of either torch or transformers, not of both")
        self.of_transformers = kinds.pop()
        self.is_bidirectional = self.of_transformers and is_bidirectional(model, decoder_config(model))
        self.attentions: list[Any] = [module for _, module in named]
        if self.of_transformers:
            self._check_transformers()
        for name, module in named:
            span = getattr(module, "headspan_span" if self.of_transformers else "span", None)
            if not isinstance(span, AdaptiveSpan) and not (span is None and self.of_transformers):
                raise TypeError(f"the spans of {name or 'model'} must be an AdaptiveSpan, not {type(span).__name__}")
        if self.of_transformers and len({hasattr(module, "headspan_span") for module in self.attentions}) > 1:
            raise ValueError("model must have learned spans in all attentions or in none, got learned spans in some")
        sizes = {self._sizes_of(module) for module in self.attentions}
        if len(sizes) > 1:
            raise ValueError(f"all attentions of the model must have the same heads, not {sorted(map(tuple, sizes))}")
        self.sizes = sizes.pop()

    def _check_transformers(self) -> None:
        config = decoder_config(self.model)
        check_implementation(config, "fitting needs")
        kinds = layers_of(config)[0]
        if set(kinds) != {"full_attention"}:
            raise ValueError(f"fitting is for layers of full attention, not of {', '.join(sorted(set(kinds)))}")
        number_attentions(self.model, config)
        self.attentions.sort(key=lambda module: module.layer_idx)
        numbers = [module.layer_idx for module in self.attentions]
        if numbers != list(range(config.num_hidden_layers)):
            raise ValueError(
                f"each of {config.num_hidden_layers} layers must have one attention, not those of {numbers}"
            )

    def _sizes_of(self, attention: Any) -> Sizes:
        if not self.of_transformers:
            heads = attention.num_heads
            return Sizes(heads, getattr(attention, "num_key_heads", heads), attention.head_dim)
        config = attention.config
        heads = config.num_attention_heads
        head_dim = getattr(attention, "head_dim", None) or config.hidden_size // heads
        return Sizes(heads, getattr(config, "num_key_value_heads", None) or heads, head_dim)

    def ramp(self) -> float | None:
        """Return the ramp of the model's spans, or None."""
        name = "headspan_ramp" if self.of_transformers else "ramp"
        ramps = {getattr(module, name) for module in self.attentions if hasattr(module, name)}
        if len(ramps) > 1:
            raise ValueError(f"ramp must be given, because layers have different ones: {sorted(ramps)}")
        return float(ramps.pop()) if ramps else None

    @contextmanager
    def lent(self, ramp: float, first_tokens: int = 0) -> Iterator[list[Lent]]:
        """Replace the spans of the model in a context, and restore them on exit even after an error.

        Within the context, the weights require no gradient and the model is in eval mode.
        """
        span_name, ramp_name = ("headspan_span", "headspan_ramp") if self.of_transformers else ("span", "ramp")
        missing = object()
        kept = [(getattr(m, span_name, missing), getattr(m, ramp_name, missing)) for m in self.attentions]
        needed = [(parameter, parameter.requires_grad) for parameter in self.model.parameters()]
        modes = [(module, module.training) for module in self.model.modules()]
        lent = [Lent() for _ in self.attentions]
        config = decoder_config(self.model) if self.of_transformers else None
        sinks = getattr(config, "headspan_first_tokens", 0)
        try:
            if config is not None:
                config.headspan_first_tokens = first_tokens
            for attention, spans in zip(self.attentions, lent, strict=True):
                setattr(attention, span_name, spans)
                setattr(attention, ramp_name, ramp)
            for parameter, _ in needed:
                parameter.requires_grad_(False)
            self.model.eval()
            yield lent
        finally:
            if config is not None:
                config.headspan_first_tokens = sinks
            for attention, originals in zip(self.attentions, kept, strict=True):
                for name, original in zip((span_name, ramp_name), originals, strict=True):
                    if original is missing:
                        delattr(attention, name)
                    else:
                        setattr(attention, name, original)
            for parameter, needs in needed:
                parameter.requires_grad_(needs)
            for module, training in modes:
                module.training = training

    def give(self, spans: Spans, ramp: float, tokens: int, first_tokens: int) -> None:
        """Set spans of shape (layers, heads) permanently; a span of all tokens means no limit."""
        if self.of_transformers:
            if not any(hasattr(module, "headspan_span") for module in self.attentions):
                unlimited = np.where(spans >= tokens, UNLIMITED, spans).tolist()
                set_spans(self.model, unlimited, ramp=ramp, first_tokens=first_tokens)
                return
            decoder_config(self.model).headspan_first_tokens = first_tokens
        for attention, heads in zip(self.attentions, spans, strict=True):
            span: AdaptiveSpan = attention.headspan_span if self.of_transformers else attention.span
            setattr(attention, "headspan_ramp" if self.of_transformers else "ramp", ramp)
            span.max_span = max(span.max_span, float(heads.max()))
            with torch.no_grad():
                span.fraction.copy_(torch.as_tensor(heads / span.max_span))


def _is_of_layers(module: nn.Module) -> bool:
    return isinstance(module, AdaptiveSpanAttention | SpanMultiheadAttention)
