"""Learned spans for a model that there is."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from headspan.ops.arguments.request import PLAIN
from headspan.torch.layers.multihead import give_spans
from headspan.torch.layers.spans import AdaptiveSpan
from headspan.torch.transformers.register import NAME, register
from headspan.torch.transformers.spans import note_learned, save_name, take_span


def convert(model: nn.Module, *, limit: float, ramp: float) -> list[AdaptiveSpan]:
    """Put learned spans into the attention of a model, in place.

    Every `torch.nn.MultiheadAttention`, also within the transformer layers of torch, and every attention of a model of
    transformers gets an `AdaptiveSpan` that starts at the limit, or at the span that its configuration has, see
    `set_spans`. With a limit of at least the number of tokens the model computes what it did; a penalty on the spans,
    or a limit below, makes it look less far.

    Parameters
    ----------
    model : Module
    limit : float
        The largest span, in tokens, and where those start that the configuration has none for.
    ramp : float
        Tokens over which the mask of a span falls from 1 to 0, see `headspan.attention`.

    Returns
    -------
    list of AdaptiveSpan
        One for each attention, in the order of ``model.modules()``: their `penalty` is to be added to the loss, and
        their parameters are the model's, so that an optimizer made afterwards has them.

    Raises
    ------
    ValueError
        For a model that has no such attention or has spans already, or a value out of its range.
    TypeError
        For a wrong type, or an attention of a class derived from torch's, whose ways are not known.

    Notes
    -----
    Modules stay the objects they are and keep their weights, hooks and names: a state dict of before is loaded, spans
    then stay as they are. Those of a model on the device "meta" have no numbers yet: a state dict of before that is
    loaded with ``assign=True`` lets them start at the limit. Modules are called as before, but give attention weights
    only where ``need_weights=True`` is given. A causal mask is recognised, by ``is_causal`` or by what it holds, and
    costs nothing; another one is added to the scores. The layers of torch no longer take their way past the module in
    eval mode, nor nested tensors. With more keys than queries, as from a decoder to an encoder, the last query is
    beside the last key.

    In a model of transformers each attention gets the spans as `headspan_span`, beside `headspan_ramp`, and the
    attention function "headspan", which reads them; there a state dict of before is loaded with ``strict=False``. Of a
    model of several parts, one part can be given. `freeze_spans` writes what is learned into the configuration, to be
    saved. What was saved without that has it among its weights alone: a model that `from_pretrained` makes of it says
    so when it is called, and takes it by `convert` with the same limit and ``load_state_dict(..., strict=False)``.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import convert
    >>> model = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).eval()
    >>> x = torch.randn(2, 100, 64)
    >>> before = model(x)
    >>> spans = convert(model, limit=100, ramp=32)
    >>> torch.allclose(model(x), before, atol=1e-5)
    True
    >>> loss = model(x).square().mean() + 1e-4 * sum(span.penalty() for span in spans)
    >>> loss.backward()
    >>> spans[0].fraction.grad.shape
    torch.Size([4])
    """
    checked: Any = PLAIN["ramp"]("ramp", ramp)
    attentions = [(name, its) for name, its in model.named_modules() if _is_of_torch(its) or is_of_transformers(its)]
    if not attentions:
        raise ValueError("model must have a torch.nn.MultiheadAttention or an attention of transformers, but has none")
    for name, its in attentions:
        if isinstance(getattr(its, "span", None) or getattr(its, "headspan_span", None), AdaptiveSpan):
            raise ValueError(f"model has learned spans already, in {name or 'itself'}")
        if _is_of_torch(its) and type(its) is not nn.MultiheadAttention:
            raise TypeError(f"{name or 'model'} is a {type(its).__name__}, not a plain torch.nn.MultiheadAttention")
    spans = [_span_of(its, limit) for _, its in attentions]  # or an error, before anything is changed
    if any(is_of_transformers(its) for _, its in attentions):
        _switch(model)
    for (_, its), span in zip(attentions, spans, strict=True):
        if isinstance(its, nn.MultiheadAttention):
            give_spans(its, span, checked)
        else:
            _start(span, take_span(its))
            its.headspan_span, its.headspan_ramp = span, checked
    for config in {id(its.config): its.config for _, its in attentions if is_of_transformers(its)}.values():
        note_learned(model, config, getattr(config, "headspan_learned", ()))  # model may be one part
        if config._attn_implementation == NAME:
            save_name(model, config, True)
    for its in model.modules():
        if isinstance(its, nn.TransformerEncoder):
            its.use_nested_tensor = False  # which only its way past the module can read
    return spans


def _is_of_torch(module: nn.Module) -> bool:
    return isinstance(module, nn.MultiheadAttention)


def is_of_transformers(module: nn.Module) -> bool:
    """Whether it is what calls attention functions, by what all of them have, and but for whole models nothing else."""
    return hasattr(module, "config") and hasattr(module, "is_causal") and not hasattr(module, "set_attn_implementation")


def _span_of(module: Any, limit: float) -> AdaptiveSpan:
    """Return spans for the heads of an attention, where its weights are."""
    own = (getattr(module, name, None) for name in ("num_heads", "num_attention_heads", "n_heads"))
    heads = next((count for count in own if count is not None), None) or module.config.num_attention_heads
    with torch.device(next(module.parameters(), torch.empty(0)).device):
        return AdaptiveSpan(heads, limit, initial=limit)


def _start(span: AdaptiveSpan, spans: list[float] | None) -> None:
    """Let spans start where the configuration had them, as far as their limit allows."""
    if spans is not None:
        span.start_at([min(its, span.limit) for its in spans])


def _switch(model: nn.Module) -> None:
    """Let the models of transformers within a model call the attention function that reads the spans."""
    for its in model.modules():
        if hasattr(its, "set_attn_implementation"):
            register()
            its.set_attn_implementation(NAME)
            if its.config._attn_implementation != NAME:
                raise ValueError(f"model must call attention functions, which {type(its).__name__} does not")
