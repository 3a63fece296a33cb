"""Spans apart from the weights of a model, for an optimizer."""

from __future__ import annotations

from typing import Any

from torch import nn

from headspan import _check
from headspan.torch.layers.spans import Shares


def parameter_groups(model: nn.Module, *, span_lr: float = 0.01) -> list[dict[str, Any]]:
    """Return the parameters of a model as groups for an optimizer: its weights, and what it learns of reach.

    A span is learned as a share of its limit and a gate as a factor, so that the rates that suit the weights of a
    trained model are too small for them: AdamW with ``lr=5e-5`` moves a span by .05 tokens a step where its limit is
    1000. Weight decay would draw spans to 0 beside the penalty.

    Parameters
    ----------
    model : Module
        With `AdaptiveSpan` or `LearnedBlocks`, as `convert` makes it.
    span_lr : float
        The learning rate of spans and gates, which have no weight decay.

    Returns
    -------
    list of dict
        Two groups: all other parameters, with what the optimizer is given for all, and spans and gates. Parameters
        without ``requires_grad`` are left out.

    Raises
    ------
    ValueError
        For a model without spans or gates that are learned, or a rate that is not positive.
    TypeError
        For a wrong type.

    See Also
    --------
    convert : Gives a model spans that are learned.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import convert, parameter_groups
    >>> model = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True)
    >>> spans = convert(model, limit=100, ramp=32)
    >>> optimizer = torch.optim.AdamW(parameter_groups(model, span_lr=0.02), lr=5e-5)
    >>> [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    [(5e-05, 0.01), (0.02, 0.0)]
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
    weights = [its for its in model.parameters() if its.requires_grad and id(its) not in shares]
    return [{"params": weights}, {"params": list(shares.values()), "lr": rate, "weight_decay": 0.0}]
