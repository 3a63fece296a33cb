"""Attention to blocks that are selected by content, learned, or summarised in a hierarchy of means."""

from headspan.sparse.gates import learned_blocks, learned_blocks_vjp
from headspan.sparse.hierarchical import hierarchical_attention, hierarchical_attention_vjp, hierarchical_cost
from headspan.sparse.selected import selected_blocks

__all__ = [
    "hierarchical_attention",
    "hierarchical_attention_vjp",
    "hierarchical_cost",
    "learned_blocks",
    "learned_blocks_vjp",
    "selected_blocks",
]


def __dir__() -> list[str]:
    return __all__
