"""Optimizer parameter groups that separate spans and gates from the other weights of a model."""

from __future__ import annotations

from typing import Any

from torch import nn

from headspan import _check
from headspan.torch.layers.spans import Shares


def parameter_groups(model: nn.Module, *, span_lr: float = 0.001) -> list[dict[str, Any]]:
    """Return the parameters of a model as two groups for an optimizer: weights, and spans and gates.

    A span is learned as a fraction of its `max_span` and a gate as a factor. With ``span_lr=0.001``, AdamW moves a span
    by at most a thousandth of its `max_span` a step. The usual learning rates for the weights of a trained model are
    smaller, and too small for spans. In models that are trained from scratch, a rate of 0.01 closes heads before they
    have learned to look far. Weight decay would pull spans to 0 in addition to the penalty.

    Parameters
    ----------
    model : Module
        A model with `AdaptiveSpan`, for example from `convert`, or `LearnedBlocks`.
    span_lr : float
        Learning rate of spans and gates, which get no weight decay. Increase it if a trained model is trained further
        for less than about 1000 steps.

    Returns
    -------
    list of dict
        Two groups: all other parameters with the settings of the optimizer, then spans and gates. Parameters without
        ``requires_grad`` are excluded.

    Raises
    ------
    ValueError
        If the model has no learned spans or gates, or if `span_lr` is not positive.
    TypeError
        If `span_lr` is not a number.

    See Also
    --------
    convert : Adds learned spans to an existing model.
    AdaptiveSpan : A learned span for each head.
    LearnedBlocks : Learned gates of blocks, as a module.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import convert, parameter_groups
    >>> model = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True)
    >>> spans = convert(model, max_span=100, ramp=32)
    >>> optimizer = torch.optim.AdamW(parameter_groups(model, span_lr=0.002), lr=5e-5)
    >>> [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    [(5e-05, 0.01), (0.002, 0.0)]
    """
    rate = _check.positive("span_lr", span_lr)
    shares = {
        id(parameter): parameter
        for module in model.modules()
        if isinstance(module, Shares)
        for parameter in module.parameters(recurse=False)
        if parameter.requires_grad
    }
    if not shares:
        raise ValueError("model must have learned spans, which headspan.torch.convert gives it, or learned gates")
    weights = [weight for weight in model.parameters() if weight.requires_grad and id(weight) not in shares]
    return [{"params": weights}, {"params": list(shares.values()), "lr": rate, "weight_decay": 0.0}]
