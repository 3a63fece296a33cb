"""Attention functions on tensors, without learned parameters."""

from headspan.torch.functional.attend import attention, check_device, check_tensor, replicate_like, unify_dtypes
from headspan.torch.functional.hierarchical import hierarchical_attention
from headspan.torch.functional.retrieval import retrieval_attention
from headspan.torch.functional.weights import weights

__all__ = [
    "attention",
    "check_device",
    "check_tensor",
    "hierarchical_attention",
    "replicate_like",
    "retrieval_attention",
    "unify_dtypes",
    "weights",
]
