"""Find the smallest spans for a trained PyTorch model."""

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
    first_tokens: int = 0,
    tokens: int | None = None,
    batch: int = 8,
) -> SpanFit:
    """Find the smallest spans for a trained model, and set them in the model.

    The weights do not change. The fit also measures one uniform span for all heads. On the fitting data, the spans of
    the model are never worse than the uniform span at the same number of pairs.

    Parameters
    ----------
    model : Module
        A transformers decoder with ``attn_implementation="headspan"``, or a model of `AdaptiveSpanAttention`, or of
        `torch.nn.MultiheadAttention` with spans from `convert`. All layers must have the same heads.
    data : Tensor or sequence
        For a transformers model, token ids of shape (windows, tokens). With `loss`, any tensor with windows along its
        first axis, or a sequence of batches that `loss` accepts.
    budget : float
        Maximum number of pairs, as a fraction of the pairs of full attention.
    tolerance : float
        Maximum increase of the loss, as a fraction of the loss of full attention; 0.01 is 1 %. Replaces `budget`.
    method : {"profile", "learn"}
        "learn" minimises by gradient descent in the logarithm of the spans, and "profile" by measured steps, see
        `headspan.fit_spans`. For transformers models, the steps start from the spans that hold almost all attention.
    loss : callable, optional
        ``loss(model, batch)`` returns the mean loss of a batch as a tensor of one number. Default: the cross-entropy of
        each next token, for causal language models. A masked language model needs its own loss, for example
        ``lambda model, batch: model(**batch).loss`` with batches of ``input_ids`` and ``labels``.
    held_out : Tensor or sequence, optional
        Data like `data` for the reported losses. Default: the last quarter of `data`, which the fit then excludes.
    ramp : float, optional
        Ramp of the soft mask, which every head reaches beyond its span. Default: the ramp of the model's spans, or 32.
    first_tokens : int
        Number of first tokens that are visible at any distance, see `set_spans`; only for transformers models.
    tokens : int, optional
        Length of the sequences; required if `data` is not a tensor.
    batch : int
        Number of windows of a tensor in a batch.

    Returns
    -------
    SpanFit
        The spans, their cost, their losses on both data sets, and the curve; `headspan.plot.span_fit` draws it.

    Raises
    ------
    ValueError
        If the ramp alone exceeds the budget, or an attention of the model has no spans.
    TypeError
        If tokens predict the spans of the model.

    See Also
    --------
    headspan.fit_spans : The same for any model whose loss a function measures.
    set_spans : Sets the spans of a transformers model.

    Notes
    -----
    `set_spans` sets the spans, or they are stored in the `AdaptiveSpan` of each attention if there is one. A head whose
    span covers the window gets no limit. During the fit, the model is in eval mode. After an error, it is restored.
    Pairs, budget and share are those of causal attention, also for a bidirectional model.

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
    if loss is None and places.is_bidirectional:
        raise ValueError(
            f"loss must be given for {type(model).__name__}, whose attention is bidirectional and sees the next token, "
            "which the default loss predicts; a masked language model takes loss=lambda model, batch: "
            "model(**batch).loss, with input_ids and labels in each batch"
        )
    if not callable(loss) and loss is not None:
        raise TypeError(f"loss must be a function of a model and a batch, not {_check.describe(loss)}")
    size = _check.integer("batch", batch, at_least=1)
    if loss is None:
        for name, ids in {"data": data, "held_out": held_out}.items():
            if ids is not None and not (
                isinstance(ids, torch.Tensor) and ids.ndim == 2 and not ids.is_floating_point()
            ):
                raise TypeError(f"{name} must be token ids of shape (windows, tokens) if no loss is given")
    if not isinstance(data, torch.Tensor):
        data = _check.sequence("data", data, "batches, or a tensor of windows")
    if held_out is None:
        if len(data) < 2:
            raise ValueError("data must have at least 2 windows if held_out is not given, so that one can be held out")
        kept = len(data) - max(len(data) // 4, 1)
        data, held_out = data[:kept], data[kept:]
    fitted, others = Data("data", data, size), Data("held_out", held_out, size)
    length = _length(data, tokens)
    sinks = _check.integer("first_tokens", first_tokens, at_least=0)
    if sinks and not places.of_transformers:
        raise ValueError("first_tokens are only for models of transformers; for other layers, use a pattern")
    model_ramp = places.ramp() if ramp is None else ramp
    ramp = DEFAULTS["ramp"] if model_ramp is None else model_ramp
    measure: Loss = next_token_loss if loss is None else loss
    by_mass = method == "profile" and loss is None and isinstance(data, torch.Tensor)

    with places.lent(ramp, sinks) as lent:
        device = next(model.parameters()).device

        def put(spans: Spans, *, needs_gradient: bool = False) -> list[torch.Tensor]:
            for layer, heads in zip(lent, spans, strict=True):
                layer.value = torch.tensor(heads, dtype=torch.float32, device=device, requires_grad=needs_gradient)
            return [layer.value for layer in lent]

        def loss_of(batches: Data, spans: Spans) -> float:
            put(spans)
            return batches.loss(model, measure)

        def gradient(spans: Spans) -> tuple[float, Spans]:
            value, slopes = fitted.gradient(model, measure, put(spans, needs_gradient=True))
            return value, np.stack([slope.numpy() for slope in slopes])

        profile = None
        if by_mass:
            put(np.full((len(lent), places.sizes.heads), float(length)))
            profile = mass_by_distance(model, places.attentions, data)
        fit = fit_spans_of_functions(
            lambda spans: loss_of(fitted, spans),
            lambda spans: loss_of(others, spans),
            tokens=length,
            num_layers=len(lent),
            num_heads=places.sizes.heads,
            num_key_heads=places.sizes.key_heads,
            head_dim=places.sizes.head_dim,
            budget=budget,
            tolerance=tolerance,
            ramp=ramp,
            method=method,
            profile=profile,
            gradient=gradient,
            first_tokens=sinks,
        )
    places.give(fit.spans, fit.ramp, length, sinks)
    return fit


def _length(data: Any, tokens: int | None) -> int:
    if tokens is not None:
        return _check.integer("tokens", tokens, at_least=2)
    if not isinstance(data, torch.Tensor):
        raise ValueError("tokens must be given if data is not a tensor")
    return int(data.shape[1])
