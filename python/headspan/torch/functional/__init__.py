"""Attention of tensors as functions, without parameters of their own."""

from headspan.torch.functional.attend import alike, attention, beside, check_device, readable
from headspan.torch.functional.hierarchical import hierarchical_attention
from headspan.torch.functional.retrieval import retrieval_attention
from headspan.torch.functional.weights import weights

__all__ = [
    "alike",
    "attention",
    "beside",
    "check_device",
    "hierarchical_attention",
    "readable",
    "retrieval_attention",
    "weights",
]
