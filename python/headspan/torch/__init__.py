"""headspan for PyTorch: attention with learned spans as an operator on tensors, and layers that use it."""

from headspan import _extra

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise _extra.missing("headspan.torch", "PyTorch", "torch", error.name) from error

from headspan.torch.cache import SpanCache
from headspan.torch.distributed import halo_attention
from headspan.torch.fitting import fit_spans
from headspan.torch.flex import flex_attention
from headspan.torch.functional import attention, hierarchical_attention, retrieval_attention
from headspan.torch.layers import (
    AdaptiveSpan,
    AdaptiveSpanAttention,
    DynamicSpan,
    HybridAttention,
    LearnedBlocks,
    SpanPredictor,
    TransformerBlock,
    convert,
    parameter_groups,
)
from headspan.torch.transformers import (
    explore,
    freeze_spans,
    head_cache,
    record,
    register,
    set_spans,
)

__all__ = [
    "AdaptiveSpan",
    "AdaptiveSpanAttention",
    "DynamicSpan",
    "HybridAttention",
    "LearnedBlocks",
    "SpanCache",
    "SpanPredictor",
    "TransformerBlock",
    "attention",
    "convert",
    "explore",
    "fit_spans",
    "flex_attention",
    "freeze_spans",
    "halo_attention",
    "head_cache",
    "hierarchical_attention",
    "parameter_groups",
    "record",
    "register",
    "retrieval_attention",
    "set_spans",
]
