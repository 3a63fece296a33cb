"""Find the smallest spans for a model of PyTorch that is already trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from headspan import _check
from headspan.fitting import SpanFit
from headspan.fitting import fit_spans as fit_spans_of_functions
from headspan.ops.arguments.options import DEFAULTS
from headspan.torch.fitting.places import Places, Spans
from headspan.torch.fitting.text import Data, Loss, mass_by_distance, next_token_loss


def fit_spans(
    model: nn.Module,
    data: torch.Tensor | Sequence[Any],
    *,
    budget: float | None = None,
    tolerance: float | None = None,
    method: Literal["profile", "learn"] = "learn",
    loss: Loss | None = None,
    held_out: torch.Tensor | Sequence[Any] | None = None,
    ramp: float | None = None,
    sink_tokens: int = 0,
    tokens: int | None = None,
    batch: int = 8,
) -> SpanFit:
    """Find the smallest spans for a model that is already trained, and give them to it.

    Its weights stay as they are. One span for all heads is measured beside what is found, and the model is never given
    spans that are worse than that at equal pairs, on the data that they are fitted to.

    Parameters
    ----------
    model : Module
        A decoder of transformers with ``attn_implementation="headspan"``; or a model of `AdaptiveSpanAttention`, or of
        `torch.nn.MultiheadAttention` that `convert` gave spans. All layers have the same heads.
    data : Tensor or sequence
        For a model of transformers, token ids of shape (windows, tokens). With `loss`, windows of any kind along the
        first axis of a tensor, or a sequence of batches as `loss` takes them.
    budget : float
        The pairs that there may be, as a share of those of full attention.
    tolerance : float
        Instead of a budget: by how much the loss may grow, as a share of that of full attention; 0.01 is 1 %.
    method : {"profile", "learn"}
        By descent in the logarithm of the spans, or by measured steps, see `headspan.fit_spans`. Steps begin where next
        to no attention lies farther, for models of transformers.
    loss : callable, optional
        ``loss(model, batch)`` gives the mean loss of a batch, a tensor of one number; the cross-entropy of each next
        token unless given.
    held_out : Tensor or sequence, optional
        As `data`, for the losses that are reported; unless given the last quarter of `data`, which is left out.
    ramp : float, optional
        Of the soft mask; that of the spans that the model has unless given, or else 32. It is what every head reaches
        beyond its span.
    sink_tokens : int
        So many first tokens are seen at any distance, see `set_spans`: of models of transformers.
    tokens : int, optional
        How long the texts are, where `data` is no tensor.
    batch : int
        So many windows of a tensor are computed at once.

    Returns
    -------
    SpanFit
        The spans, what they cost and lose, held out too, and the curve; `headspan.plot.span_fit` draws it.

    Raises
    ------
    ValueError
        For a budget that the ramp alone exceeds, a value out of its range, or a model whose attentions have no spans.
    TypeError
        For a wrong type, or spans that every token predicts.

    Notes
    -----
    Spans go to `set_spans`, or into the `AdaptiveSpan` of each attention where there are such. A head that needs all
    tokens of the windows is left without a limit. If anything fails the model is what it was. While it is measured the
    model is in eval mode.

    Examples
    --------
    >>> import torch, headspan.torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> headspan.torch.register()
    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> config = LlamaConfig(vocab_size=50, **sizes, num_key_value_heads=2, attn_implementation="headspan")
    >>> model = LlamaForCausalLM(config)
    >>> fit = headspan.torch.fit_spans(model, torch.randint(50, (8, 64)), budget=0.3, ramp=4)
    >>> fit.spans.shape, fit.share <= 0.3
    ((2, 4), True)
    >>> model.config.headspan_spans == fit.spans.tolist()
    True
    """
    places = Places(model)
    if loss is None and not places.of_transformers:
        raise ValueError(
            "loss must be given for a model that is not one of transformers: a function of model and batch"
        )
    if not callable(loss) and loss is not None:
        raise TypeError(f"loss must be a function of a model and a batch, not {_check.describe(loss)}")
    size = _check.integer("batch", batch, at_least=1)
    if loss is None:
        for name, given in {"data": data, "held_out": held_out}.items():
            if given is not None and not (
                isinstance(given, torch.Tensor) and given.ndim == 2 and not given.is_floating_point()
            ):
                raise TypeError(f"{name} must be token ids of shape (windows, tokens) where no loss is given")
    if not isinstance(data, torch.Tensor):
        data = _check.sequence("data", data, "batches, or a tensor of windows")
    if held_out is None:
        if len(data) < 2:
            raise ValueError("data must have at least 2 windows where held_out is not given, so that one is held out")
        kept = len(data) - max(len(data) // 4, 1)
        data, held_out = data[:kept], data[kept:]
    fitted, others = Data("data", data, size), Data("held_out", held_out, size)
    length = _length(data, tokens)
    sinks = _check.integer("sink_tokens", sink_tokens, at_least=0)
    if sinks and not places.of_transformers:
        raise ValueError("sink_tokens are for models of transformers; a pattern of the layer has them elsewhere")
    own = places.ramp() if ramp is None else ramp
    ramp = DEFAULTS["ramp"] if own is None else own
    measure: Loss = next_token_loss if loss is None else loss
    by_mass = method == "profile" and loss is None and isinstance(data, torch.Tensor)

    with places.lent(ramp, sinks) as lent:

        def put(spans: Spans, *, needs_gradient: bool = False) -> list[torch.Tensor]:
            for its, of_heads in zip(lent, spans, strict=True):
                its.value = torch.tensor(of_heads, dtype=torch.float32, requires_grad=needs_gradient)
            return [its.value for its in lent]

        def loss_of(of: Data, spans: Spans) -> float:
            put(spans)
            return of.loss(model, measure)

        def gradient(spans: Spans) -> tuple[float, Spans]:
            value, slopes = fitted.gradient(model, measure, put(spans, needs_gradient=True))
            return value, np.stack([its.numpy() for its in slopes])

        profile = None
        if by_mass:
            put(np.full((len(lent), places.sizes.heads), float(length)))
            profile = mass_by_distance(model, places.attentions, data)
        fit = fit_spans_of_functions(
            lambda spans: loss_of(fitted, spans),
            lambda spans: loss_of(others, spans),
            tokens=length,
            layers=len(lent),
            **places.sizes._asdict(),
            budget=budget,
            tolerance=tolerance,
            ramp=ramp,
            method=method,
            profile=profile,
            gradient=gradient,
            sink_tokens=sinks,
        )
    places.give(fit.spans, fit.ramp, length, sinks)
    return fit


def _length(data: Any, tokens: int | None) -> int:
    if tokens is not None:
        return _check.integer("tokens", tokens, at_least=2)
    if not isinstance(data, torch.Tensor):
        raise ValueError("tokens must be given where data is no tensor")
    return int(data.shape[1])
