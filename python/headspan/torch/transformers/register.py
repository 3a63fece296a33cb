"""Registration of headspan as an attention implementation of transformers."""

from __future__ import annotations

from headspan import _extra
from headspan.torch.transformers.function import attention_function
from headspan.torch.transformers.masks import mask_function
from headspan.torch.transformers.recording import follow_outputs
from headspan.torch.transformers.spans import NAME

__all__ = ["NAME", "register"]


def register() -> None:
    """Register headspan in transformers as ``attn_implementation="headspan"``.

    Raises
    ------
    ModuleNotFoundError
        If transformers is not installed.

    See Also
    --------
    set_spans : Sets the spans of a transformers model.
    convert : Adds learned spans to an existing model.
    record : Records queries and keys of a model, to inspect its heads.

    Notes
    -----
    Causal masks, sliding windows, chunks, padding on both sides, packed sequences and static caches become a range of
    keys for each query, without a mask of pairs. Soft caps, sinks, the biases of T5 and dropout are supported. Other
    options of a layer raise an error that names the option. See docs/howto/transformers.md.

    Examples
    --------
    >>> import torch, headspan.torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> headspan.torch.register()
    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes, attn_implementation="headspan"))
    >>> model(torch.arange(10)[None]).logits.shape
    torch.Size([1, 10, 50])
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ModuleNotFoundError as error:
        raise _extra.missing("headspan.torch.register", "transformers", "transformers", error.name) from error
    follow_outputs()
    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, mask_function)
