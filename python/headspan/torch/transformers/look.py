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
) -> Explorer:
    """Run a transformers model on a text and return the interactive view of its heads.

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

    Returns
    -------
    Explorer
        A widget for notebooks. ``save("view.html")`` writes the view to one file.

    Raises
    ------
    ValueError
        If the model uses another implementation, or a text has no tokenizer.
    NotImplementedError
        If a layer has options that the view does not show.

    See Also
    --------
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
    with torch.no_grad(), record(model) as recording:
        model(ids.reshape(1, -1))
    from headspan.explorer import explore as explore_arrays  # on first use, as everywhere

    tokens = None if tokenizer is None else tokenizer.convert_ids_to_tokens(ids.reshape(-1).tolist())
    return explore_arrays(**recording.trace(layers, tokens=tokens), max_tokens=max_tokens)
