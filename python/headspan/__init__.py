"""headspan: attention with learned spans.

Every head, or every token, learns its own span by gradient descent, and the cost is proportional to the number of
allowed pairs. A C++/OpenMP core takes and returns NumPy arrays and computes exact gradients.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headspan._compiled import __version__

# isort: split
from headspan import patterns, reference
from headspan.cache import SpanCache, StreamingAttention
from headspan.hybrid.layer import hybrid_attention, hybrid_attention_vjp
from headspan.hybrid.parameters import HybridParameters, hybrid_parameters
from headspan.ops.attention import Gradients, attention, attention_vjp
from headspan.ops.attention_map import attention_weights
from headspan.ops.buckets import t5_buckets
from headspan.ops.cost import Cost, cost
from headspan.ops.execution.runtime import build_info, get_num_threads, set_num_threads
from headspan.ops.gates import learned_blocks
from headspan.ops.hierarchical import hierarchical_attention, hierarchical_attention_vjp, hierarchical_cost
from headspan.ops.importance import importance_from, importance_from_vjp
from headspan.ops.merge import merge_attention, merge_attention_vjp
from headspan.ops.segments import segments_from
from headspan.ops.selected import selected_blocks
from headspan.ops.spans import dynamic_span, dynamic_span_vjp, soft_mask, span_penalty
from headspan.retrieval.attention import retrieval_attention, retrieval_attention_vjp
from headspan.retrieval.key_index import KeyIndex

if TYPE_CHECKING:
    from headspan import plot
    from headspan.demo.trained.loaded import load_run
    from headspan.explorer import explore
    from headspan.fitting import SpanFit, fit_spans
    from headspan.store import KeyValueStore

__all__ = [
    "Cost",
    "Gradients",
    "HybridParameters",
    "KeyIndex",
    "KeyValueStore",
    "SpanCache",
    "SpanFit",
    "StreamingAttention",
    "__version__",
    "attention",
    "attention_vjp",
    "attention_weights",
    "build_info",
    "cost",
    "dynamic_span",
    "dynamic_span_vjp",
    "explore",
    "fit_spans",
    "get_num_threads",
    "hierarchical_attention",
    "hierarchical_attention_vjp",
    "hierarchical_cost",
    "hybrid_attention",
    "hybrid_attention_vjp",
    "hybrid_parameters",
    "importance_from",
    "importance_from_vjp",
    "learned_blocks",
    "load_run",
    "merge_attention",
    "merge_attention_vjp",
    "patterns",
    "plot",
    "reference",
    "retrieval_attention",
    "retrieval_attention_vjp",
    "segments_from",
    "selected_blocks",
    "set_num_threads",
    "soft_mask",
    "span_penalty",
    "t5_buckets",
]


def __getattr__(name: str) -> Any:
    """Import plotting, the explorer, trained runs, fitting and the store on first use; attention does not need them."""
    if name == "plot":
        return import_module("headspan.plot")
    if name == "explore":
        return import_module("headspan.explorer").explore
    if name == "load_run":
        return import_module("headspan.demo.trained.loaded").load_run
    if name in ("SpanFit", "fit_spans"):
        return getattr(import_module("headspan.fitting"), name)
    if name == "KeyValueStore":
        return import_module("headspan.store").KeyValueStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
