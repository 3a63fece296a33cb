"""The interactive view of a transformers model on a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from headspan import _check
from headspan.torch.transformers.models import check_implementation, decoder_config
from headspan.torch.transformers.recording import record

if TYPE_CHECKING:
    from headspan.explorer.widget import Explorer


def explore(
    model: torch.nn.Module,
    text: str | torch.Tensor | Sequence[int],
    tokenizer: Any = None,
    *,
    layers: int | Sequence[int] | None = None,
    max_tokens: int = 512,
    live: bool | None = None,
) -> Explorer:
    """Run a transformers model on a text and return the interactive view of its heads.

    For a causal language model, the view also shows the loss on the text and the most probable next tokens. If you move
    the span of a head or of all heads of a layer, Python runs the model with these spans from that layer on, and the
    view shows the new loss and predictions. Maps keep the queries and keys of the recording.

    Parameters
    ----------
    model : PreTrainedModel
        A model with ``attn_implementation="headspan"``, see `register`.
    text : str, Tensor or sequence of int
        A text, or token ids of shape (tokens,) or (1, tokens).
    tokenizer : PreTrainedTokenizer, optional
        Required for a text. With token ids, the view shows the tokens as text if there is a tokenizer.
    layers : int or sequence of int, optional
        The indices of the layers to show, from 0. Default: all.
    max_tokens : int
        See `headspan.explore`.
    live : bool, optional
        Whether the model is recomputed when spans change. The view then keeps the model and the hidden states after
        each layer, which take ``tokens * layers * hidden_size`` numbers. By default, they are kept if they take up to
        256 MB.

    Returns
    -------
    Explorer
        A widget for notebooks. ``save("view.html")`` writes the view to one file, which has the loss and predictions,
        but no model. For a causal language model, the widget also has ``model_spans``, the spans that you set as
        `headspan.ModelSpans`, ``loss``, the loss with these spans, and ``recorded_loss``.

    Raises
    ------
    ValueError
        If the model uses another implementation, a text has no tokenizer, or ``live=True`` and the model cannot be
        recomputed because its spans are learned.
    NotImplementedError
        If a layer has options that the view does not show.

    Notes
    -----
    Every recomputation sets the spans in the configuration of the model, runs the model in eval mode without gradients,
    and restores the spans and modes afterwards, even after an error. Weights are not touched. To keep the spans, set
    them: ``set_spans(model, spans.spans, ramp=spans.ramp, first_tokens=spans.first_tokens)`` with ``spans =
    view.model_spans``. If you change weights or spans of the model, make a new view.

    See Also
    --------
    set_spans : Sets the spans of a transformers model.
    record : Records queries, keys and values of a model, for more than the view.
    headspan.explore : The same view of arrays.

    Examples
    --------
    >>> import torch, headspan.torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> headspan.torch.register()
    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes, attn_implementation="headspan"))
    >>> view = headspan.torch.explore(model, torch.arange(30))
    >>> view.head
    [0, 0]
    >>> view.span = 8
    >>> view.model_spans.spans
    array([[8., 8., 8., 8.],
           [8., 8., 8., 8.]])
    >>> view.loss != view.recorded_loss
    True
    """
    check_implementation(decoder_config(model), "the view needs")
    if isinstance(text, str):
        if tokenizer is None:
            raise ValueError("tokenizer must be given for a text")
        text = tokenizer(text, return_tensors="pt", verbose=False).input_ids
    ids = torch.as_tensor(text, device=next(model.parameters()).device)
    if ids.is_floating_point() or ids.ndim not in (1, 2) or (ids.ndim == 2 and len(ids) != 1) or not ids.numel():
        raise ValueError(
            f"text must be a text or token ids of shape (tokens,) or (1, tokens), not {_check.describe(text)}"
        )
    # On first use, as everywhere.
    from headspan.explorer import explore as explore_arrays
    from headspan.torch.transformers.rerun import ModelRun, view_of

    run = ModelRun(model, ids.reshape(1, -1), tokenizer, live=live)
    with record(model) as recording:
        run.record()
    tokens = None if tokenizer is None else tokenizer.convert_ids_to_tokens(ids.reshape(-1).tolist())
    arguments = recording.trace(layers, tokens=tokens)
    if not run.predicts_next:
        return explore_arrays(**arguments, max_tokens=max_tokens)
    return view_of(run, **arguments, max_tokens=max_tokens)
