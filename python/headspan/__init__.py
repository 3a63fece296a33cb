"""headspan: attention whose reach is learned.

Every head, and every token, has its own span, chosen by gradient descent, and the work done is proportional to the
pairs that are allowed. A C++/OpenMP core with NumPy arrays in and out and exact gradients.
"""

from headspan._load import __version__

# isort: split
from headspan import patterns, plot, reference
from headspan._hybrid_parameters import HybridParameters, hybrid_parameters
from headspan._visibility import segments_from
from headspan.attention import Gradients, attention, attention_vjp
from headspan.cost import Cost, cost
from headspan.explore import explore
from headspan.hybrid import hybrid_attention, hybrid_attention_vjp
from headspan.importance import importance_from, importance_from_vjp
from headspan.merge import merge_attention, merge_attention_vjp
from headspan.runtime import build_info, get_num_threads, set_num_threads
from headspan.spans import dynamic_span, dynamic_span_vjp, soft_mask, span_penalty
from headspan.weights import attention_weights

__all__ = [
    "Cost",
    "Gradients",
    "HybridParameters",
    "__version__",
    "attention",
    "attention_vjp",
    "attention_weights",
    "build_info",
    "cost",
    "dynamic_span",
    "dynamic_span_vjp",
    "explore",
    "get_num_threads",
    "hybrid_attention",
    "hybrid_attention_vjp",
    "hybrid_parameters",
    "importance_from",
    "importance_from_vjp",
    "merge_attention",
    "merge_attention_vjp",
    "patterns",
    "plot",
    "reference",
    "segments_from",
    "set_num_threads",
    "soft_mask",
    "span_penalty",
]
