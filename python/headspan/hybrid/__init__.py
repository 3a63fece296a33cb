"""Hybrid attention, in which a global branch predicts the span of a local branch."""

from headspan.hybrid.layer import hybrid_attention, hybrid_attention_vjp
from headspan.hybrid.parameters import HybridParameters, hybrid_parameters

__all__ = ["HybridParameters", "hybrid_attention", "hybrid_attention_vjp", "hybrid_parameters"]


def __dir__() -> list[str]:
    return __all__
