"""Conversion of existing models to learned spans."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from headspan.ops.arguments.options import PLAIN_OPTIONS
from headspan.torch.layers.multihead import add_spans
from headspan.torch.layers.spans import AdaptiveSpan
from headspan.torch.transformers.models import is_of_transformers
from headspan.torch.transformers.private import implementation_of
from headspan.torch.transformers.register import NAME, register
from headspan.torch.transformers.spans import note_learned, save_name, take_span


def convert(model: nn.Module, *, max_span: float, ramp: float = 32) -> list[AdaptiveSpan]:
    """Add learned spans to the attention of an existing model, in place.

    Every `torch.nn.MultiheadAttention`, including those in the transformer layers of torch, and every attention of a
    transformers model gets an `AdaptiveSpan`, which starts at the configured span (see `set_spans`) or at the limit.
    The results do not change if `max_span` is at least the number of tokens; a penalty on the spans, or a smaller
    limit, shortens the reach of the heads.

    Parameters
    ----------
    model : Module
    max_span : float
        The largest span, in tokens, and the initial span of heads without one in the configuration.
    ramp : float
        Tokens over which the mask of a span falls from 1 to 0, see `headspan.attention`.

    Returns
    -------
    list of AdaptiveSpan
        One for each attention, in the order of ``model.modules()``. Add their `penalty` to the loss. Their parameters
        belong to the model, so create the optimizer after the conversion, with `parameter_groups`. An optimizer that
        already exists does not know the spans and never changes them; the second example adds the spans to it.

    Raises
    ------
    ValueError
        If the model has no supported attention or already has learned spans.
    TypeError
        If `max_span` or `ramp` is not a number, or if an attention is of a subclass of `torch.nn.MultiheadAttention`.

    See Also
    --------
    parameter_groups : Parameter groups with a learning rate for spans.
    freeze_spans : Replaces learned spans by fixed ones.
    AdaptiveSpan : A learned span for each head.

    Notes
    -----
    Modules keep their identity, weights, hooks and names. A state dict from before the conversion can be loaded, and
    leaves the spans unchanged. In a model on the device "meta", such a state dict loaded with ``assign=True`` sets the
    spans to `max_span`. Calls of the modules do not change, but they return attention weights only for
    ``need_weights=True``. A causal mask, recognised by ``is_causal`` or by its values, costs nothing; other masks are
    added to the scores. In eval mode the torch layers no longer use their fast path or nested tensors. With more keys
    than queries, as in cross-attention, the last query is at the position of the last key.

    In a transformers model, each attention gets the attributes `headspan_span` and `headspan_ramp`, and the attention
    function "headspan" reads them; load an older state dict with ``strict=False``. You can convert one part of a model
    that has several. `freeze_spans` writes the learned spans into the configuration before you save the model.
    Without it, only the weights contain the spans. `from_pretrained` then creates a model that raises an error when
    called; restore its spans by `convert` with the same `max_span` and ``load_state_dict(..., strict=False)``.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import convert, parameter_groups
    >>> model = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).eval()
    >>> x = torch.randn(2, 100, 64)
    >>> before = model(x)
    >>> spans = convert(model, max_span=100, ramp=32)
    >>> torch.allclose(model(x), before, atol=1e-5)
    True
    >>> loss = model(x).square().mean() + 1e-4 * sum(span.penalty() for span in spans)
    >>> loss.backward()
    >>> spans[0].fraction.grad.shape
    torch.Size([4])

    An optimizer from before the conversion gets the spans as a group of their own, with their learning rate and without
    weight decay. Create a learning rate scheduler afterwards.

    >>> model = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True)
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    >>> spans = convert(model, max_span=100, ramp=32)
    >>> optimizer.add_param_group(parameter_groups(model, span_lr=0.01)[1])
    >>> spans[0].penalty().backward()
    >>> optimizer.step()
    >>> (spans[0]() - 99).abs().max() < 1e-3
    tensor(True)
    """
    checked_ramp: Any = PLAIN_OPTIONS["ramp"].check("ramp", ramp)
    attentions = [(name, m) for name, m in model.named_modules() if _is_of_torch(m) or is_of_transformers(m)]
    if not attentions:
        raise ValueError("model must have a torch.nn.MultiheadAttention or an attention of transformers, but has none")
    for name, module in attentions:
        if isinstance(getattr(module, "span", None) or getattr(module, "headspan_span", None), AdaptiveSpan):
            raise ValueError(f"model already has learned spans, in {name or 'itself'}")
        if _is_of_torch(module) and type(module) is not nn.MultiheadAttention:
            raise TypeError(f"{name or 'model'} is a {type(module).__name__}, not a plain torch.nn.MultiheadAttention")
    # Errors must occur before the model changes.
    spans = [_span_of(module, max_span) for _, module in attentions]
    if any(is_of_transformers(module) for _, module in attentions):
        _select_headspan(model)
    for (_, module), span in zip(attentions, spans, strict=True):
        if isinstance(module, nn.MultiheadAttention):
            add_spans(module, span, checked_ramp)
        else:
            _initialise(span, take_span(module))
            module.headspan_span, module.headspan_ramp = span, checked_ramp
    for config in {id(module.config): module.config for _, module in attentions if is_of_transformers(module)}.values():
        # The configuration may already list layers outside `model`, which may be one part of a larger model.
        note_learned(model, config, getattr(config, "headspan_learned", ()))
        if implementation_of(config) == NAME:
            save_name(model, config, True)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # only the fast path can read nested tensors
    return spans


def _is_of_torch(module: nn.Module) -> bool:
    return isinstance(module, nn.MultiheadAttention)


def _span_of(module: Any, max_span: float) -> AdaptiveSpan:
    """Return new spans for the heads of an attention, on the device of its weights."""
    counts = (getattr(module, name, None) for name in ("num_heads", "num_attention_heads", "n_heads"))
    heads = next((count for count in counts if count is not None), None) or module.config.num_attention_heads
    with torch.device(next(module.parameters(), torch.empty(0)).device):
        return AdaptiveSpan(heads, max_span)


def _initialise(span: AdaptiveSpan, spans: list[float] | None) -> None:
    """Initialise learned spans to those of the configuration, at most to their `max_span`."""
    if spans is not None:
        span.start_at([min(initial, span.max_span) for initial in spans])


def _select_headspan(model: nn.Module) -> None:
    """Select the attention implementation "headspan" in all transformers models within a model."""
    for module in model.modules():
        if hasattr(module, "set_attn_implementation"):
            register()
            module.set_attn_implementation(NAME)
            if implementation_of(module.config) != NAME:
                raise ValueError(f"model must call attention functions, which {type(module).__name__} does not")
