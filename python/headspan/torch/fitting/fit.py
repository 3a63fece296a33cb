"""Find the smallest spans for a trained PyTorch model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from headspan import _check
from headspan.fitting import DescentState, SpanFit
from headspan.fitting import fit_spans as fit_spans_of_functions
from headspan.ops.arguments.options import DEFAULTS
from headspan.torch.fitting.data import TOKENS, Data, evenly, windows_of
from headspan.torch.fitting.losses import Loss, Losses
from headspan.torch.fitting.mass import mass_by_distance
from headspan.torch.fitting.places import Places, Spans


def fit_spans(
    model: nn.Module,
    data: torch.Tensor | Sequence[Any] | str,
    *,
    budget: float | None = None,
    budget_of: Literal["pairs", "cache"] = "pairs",
    tolerance: float | None = None,
    method: Literal["profile", "learn"] = "learn",
    loss: Literal["distill", "next_token"] | Loss | None = None,
    held_out: torch.Tensor | Sequence[Any] | str | None = None,
    tokenizer: Any = None,
    ramp: float | None = None,
    first_tokens: int = 0,
    causal: bool | None = None,
    tokens: int | None = None,
    batch: int | None = None,
    steps: int = 150,
    eval_windows: int = 8,
    state: DescentState | None = None,
    progress: bool = True,
) -> SpanFit:
    """Find the smallest spans for a trained model, and set them in the model.

    The weights do not change. The fit also measures one uniform span for all heads. On the windows on which losses are
    measured, the spans of the model are never worse than the uniform span at the same number of pairs or bytes. Pairs
    are by default those of the attention of a transformers model, and causal otherwise; ``causal=False`` counts pairs
    on both sides.

    Parameters
    ----------
    model : Module
        A transformers decoder or encoder with ``attn_implementation="headspan"``, or a model of
        `AdaptiveSpanAttention`, or of `torch.nn.MultiheadAttention` with spans from `convert`. All layers must have the
        same heads.
    data : Tensor, sequence or str
        For a transformers model, token ids of shape (windows, tokens), or with `tokenizer` one text or several. With a
        function as `loss`, any tensor with windows along its first axis, or a sequence of batches for `loss`.
    budget : float
        Maximum number of pairs: up to 1 as a share of the pairs of full attention, above 1 as their number.
    budget_of : {"pairs", "cache"}
        What the budget counts: the pairs of a window, or the bytes of the caches of all layers at its last token.
    tolerance : float
        Maximum increase of the loss, as a fraction of the loss of full attention; 0.01 is 1 %. Replaces `budget`.
    method : {"profile", "learn"}
        "learn" minimises by gradient descent in the logarithm of the spans, one batch in each step. "profile" shortens
        the spans by measured steps, see `headspan.fit_spans`; for transformers models, the steps start from the spans
        that hold almost all attention.
    loss : {"distill", "next_token"} or callable, optional
        What "learn" minimises. "distill", the default for causal language models, is the distance of the model's
        predictions to those with full attention (Kullback-Leibler divergence, in nats); it needs less data than
        "next_token", the cross-entropy of each next token. Both count the tokens in the second half of each window, and
        the reported losses are those of the next token. A function ``loss(model, batch)`` returns the mean loss of a
        batch as a tensor of one number. A masked language model needs one, for example
        ``lambda model, batch: model(**batch).loss`` with batches of ``input_ids`` and ``labels``.
    held_out : Tensor, sequence or str, optional
        Data like `data` for the reported losses. Default: at most `eval_windows` windows of the last quarter of `data`,
        which the fit then excludes.
    tokenizer : transformers tokenizer, optional
        Turns texts into windows of token ids. What is left at the end of a text is dropped.
    ramp : float, optional
        Ramp of the soft mask, which every head reaches beyond its span. Default: the ramp of the model's spans, or 32.
    first_tokens : int
        Number of first tokens that are visible at any distance, see `set_spans`; only for transformers models.
    causal : bool, optional
        Whether the attention is causal, so that the pairs with earlier tokens only are counted. A transformers model
        tells; other models are causal by default.
    tokens : int, optional
        Length of the sequences; required if `data` is a sequence of batches. With texts the length of the windows, by
        default 1024.
    batch : int, optional
        Number of windows of a tensor in a batch. Default: 1024 divided by `tokens`, at least 1.
    steps : int
        Number of steps of "learn".
    eval_windows : int
        Maximum number of windows of `data`, or of batches of a sequence, on which losses are measured. The steps of
        "learn" use all windows.
    state : DescentState, optional
        The ``state`` of a result that was interrupted (Ctrl-C), to go on from it with the same arguments.
    progress : bool
        Whether to show a progress bar. It needs tqdm, and is shown in a terminal or a notebook only.

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
    In a bidirectional model, a head reaches as far ahead as back, and the pairs on both sides are counted.

    An interrupt during the steps of "learn" ends them: the model gets the best spans so far, within the budget or the
    tolerance.

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
    size = None if batch is None else _check.integer("batch", batch, at_least=1)
    count = _check.integer("eval_windows", eval_windows, at_least=1)
    function = _loss_function(loss, places)
    if tokenizer is not None:
        length = TOKENS if tokens is None else _check.integer("tokens", tokens, at_least=2)
        data = windows_of("data", data, tokenizer, length)
        held_out = None if held_out is None else windows_of("held_out", held_out, tokenizer, length)
    if function is None:
        for name, ids in {"data": data, "held_out": held_out}.items():
            if ids is not None and not (
                isinstance(ids, torch.Tensor) and ids.ndim == 2 and not ids.is_floating_point()
            ):
                raise TypeError(
                    f"{name} must be token ids of shape (windows, tokens), or texts with a tokenizer, if loss is not a "
                    "function"
                )
    if not isinstance(data, torch.Tensor):
        data = _check.sequence("data", data, "batches, or a tensor of windows")
    if held_out is None:
        if len(data) < 2:
            raise ValueError("data must have at least 2 windows if held_out is not given, so that one can be held out")
        kept = len(data) - max(len(data) // 4, 1)
        data, held_out = data[:kept], evenly(data[kept:], count)
    length = _length(data, tokens)
    size = max(TOKENS // max(length, 1), 1) if size is None else size
    fitted = Data("data", data, size)
    evaluated, others = Data("data", evenly(data, count), size), Data("held_out", held_out, size)
    sinks = _check.integer("first_tokens", first_tokens, at_least=0)
    if sinks and not places.of_transformers:
        raise ValueError("first_tokens are only for models of transformers; for other layers, use a pattern")
    model_ramp = places.ramp() if ramp is None else ramp
    ramp = DEFAULTS["ramp"] if model_ramp is None else model_ramp
    losses = Losses(model, function, distills=function is None and loss != "next_token")
    by_mass = method == "profile" and function is None and isinstance(data, torch.Tensor)

    with places.lent(ramp, sinks) as lent:
        device = next(model.parameters()).device
        full = np.full((len(lent), places.sizes.heads), float(length))

        def put(spans: Spans, *, needs_gradient: bool = False) -> list[torch.Tensor]:
            for layer, heads in zip(lent, spans, strict=True):
                layer.value = torch.tensor(heads, dtype=torch.float32, device=device, requires_grad=needs_gradient)
            return [layer.value for layer in lent]

        def loss_of(batches: Data, spans: Spans) -> float:
            put(spans)
            return batches.mean(losses.loss)

        def gradient(spans: Spans, step: int) -> tuple[float, Spans]:
            number = fitted.of_step(step)
            with torch.enable_grad():
                increase = losses.increase(
                    number, fitted.batches[number], lambda: put(full), lambda: put(spans, needs_gradient=True)
                )
            return float(increase.detach()), slopes_of(increase, [layer.value for layer in lent])

        profile = None
        if by_mass:
            put(full)
            profile = mass_by_distance(model, places.attentions, data)
        fit = fit_spans_of_functions(
            lambda spans: loss_of(evaluated, spans),
            lambda spans: loss_of(others, spans),
            tokens=length,
            num_layers=len(lent),
            num_heads=places.sizes.heads,
            num_key_heads=places.sizes.key_heads,
            head_dim=places.sizes.head_dim,
            budget=budget,
            budget_of=budget_of,
            tolerance=tolerance,
            ramp=ramp,
            method=method,
            profile=profile,
            gradient=gradient,
            steps=steps,
            state=state,
            first_tokens=sinks,
            causal=_causal(causal, places),
            progress=progress,
        )
    places.give(fit.spans, fit.ramp, length, sinks)
    return fit


def _causal(causal: bool | None, places: Places) -> bool:
    """Return whether to count the pairs of causal attention; a transformers model and the argument must agree."""
    if not places.of_transformers:
        return True if causal is None else _check.flag("causal", causal)
    is_causal = not places.is_bidirectional
    if causal is not None and _check.flag("causal", causal) != is_causal:
        raise ValueError(f"causal must be {is_causal} for {type(places.model).__name__}, or not given, not {causal}")
    return is_causal


def _loss_function(loss: Any, places: Places) -> Loss | None:
    """Return the function of the caller, or None for a loss of next tokens."""
    if callable(loss):
        function: Loss = loss
        return function
    if isinstance(loss, str):
        if loss not in ("distill", "next_token"):
            raise ValueError(f"loss must be 'distill', 'next_token' or a function, not {loss!r}")
    elif loss is not None:
        raise TypeError(f"loss must be a function of a model and a batch, not {_check.describe(loss)}")
    if not places.of_transformers:
        raise ValueError(
            "loss must be given for a model that is not one of transformers: a function of model and batch"
        )
    if places.is_bidirectional:
        raise ValueError(
            f"loss must be given for {type(places.model).__name__}, whose attention is bidirectional and sees the next "
            "token, which the default loss predicts; a masked language model takes loss=lambda model, batch: "
            "model(**batch).loss, with input_ids and labels in each batch"
        )
    return None


def slopes_of(value: torch.Tensor, spans: list[torch.Tensor]) -> Spans:
    """Return the gradient of a loss with respect to the spans that the model uses, (layers, heads)."""
    if not value.requires_grad:
        raise ValueError("loss must depend on the spans of the model, but has no gradient for them")
    slopes = torch.autograd.grad(value, spans, allow_unused=True)
    gradients = [torch.zeros_like(span) if slope is None else slope for span, slope in zip(spans, slopes, strict=True)]
    array: Spans = torch.stack(gradients).detach().to("cpu", torch.float64).numpy()
    return array


def _length(data: Any, tokens: int | None) -> int:
    if tokens is not None:
        return _check.integer("tokens", tokens, at_least=2)
    if not isinstance(data, torch.Tensor):
        raise ValueError("tokens must be given if data is not a tensor")
    if data.ndim < 2:
        raise ValueError(f"data must be of shape (windows, tokens, ...), not {tuple(data.shape)}")
    return int(data.shape[1])
