"""headspan: attention whose reach is learned.

Every head, and every token, has its own span, chosen by gradient descent, and the work done is proportional to the
pairs that are allowed. A C++/OpenMP core with NumPy arrays in and out and exact gradients.
"""

from headspan._load import __version__

# isort: split
from headspan import plot, reference
from headspan.attention import Gradients, attention, attention_vjp, attention_weights
from headspan.cost import Cost, cost
from headspan.explore import explore
from headspan.merge import merge_attention, merge_attention_vjp
from headspan.runtime import build_info, get_num_threads, set_num_threads
from headspan.spans import dynamic_span, dynamic_span_vjp, soft_mask, span_penalty

__all__ = [
    "Cost",
    "Gradients",
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
    "merge_attention",
    "merge_attention_vjp",
    "plot",
    "reference",
    "set_num_threads",
    "soft_mask",
    "span_penalty",
]
