"""headspan: attention with learned spans.

Every head, or every token, learns its own span by gradient descent, and the cost is proportional to the number of
allowed pairs. A C++/OpenMP core takes and returns NumPy arrays and computes exact gradients.

The modules `patterns`, `memory`, `sparse`, `hybrid`, `plot`, `torch`, `jax`, `autograd`, `reference` and `lab` are
imported on first use; some of them need an extra, which the error names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headspan._compiled import __version__

# isort: split
from headspan import patterns
from headspan.cache import SpanCache
from headspan.ops.attention import Gradients, attention, attention_vjp
from headspan.ops.attention_map import attention_weights
from headspan.ops.buckets import t5_buckets
from headspan.ops.cost import Cost, cost
from headspan.ops.execution.runtime import build_info, get_num_threads, set_num_threads
from headspan.ops.importance import key_importance, key_importance_vjp
from headspan.ops.merge import merge_attention, merge_attention_vjp
from headspan.ops.segments import segment_ids
from headspan.ops.spans import dynamic_span, dynamic_span_vjp, soft_mask, span_penalty, span_penalty_vjp

if TYPE_CHECKING:
    from headspan import autograd as autograd
    from headspan import hybrid as hybrid
    from headspan import jax as jax
    from headspan import lab as lab
    from headspan import memory as memory
    from headspan import plot as plot
    from headspan import reference as reference
    from headspan import sparse as sparse
    from headspan import torch as torch
    from headspan.explorer import explore
    from headspan.fitting import ModelSpans, SpanFit, fit_spans

__all__ = [
    "Cost",
    "Gradients",
    "ModelSpans",
    "SpanCache",
    "SpanFit",
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
    "key_importance",
    "key_importance_vjp",
    "merge_attention",
    "merge_attention_vjp",
    "patterns",
    "segment_ids",
    "set_num_threads",
    "soft_mask",
    "span_penalty",
    "span_penalty_vjp",
    "t5_buckets",
]

_MODULES = ("autograd", "hybrid", "jax", "lab", "memory", "plot", "reference", "sparse", "torch")
_ON_FIRST_USE = {"explore": "explorer", "ModelSpans": "fitting", "SpanFit": "fitting", "fit_spans": "fitting"}


def __getattr__(name: str) -> Any:
    """Import modules and names that attention does not need on first use."""
    if name in _MODULES:
        try:
            return import_module(f"headspan.{name}")
        except ModuleNotFoundError as error:
            if error.name is not None and error.name.partition(".")[0] == "headspan":
                raise
            # What looks through all names, such as `help(headspan)`, expects this error of a name that is not there.
            raise AttributeError(str(error)) from error.__cause__
    if name in _ON_FIRST_USE:
        return getattr(import_module(f"headspan.{_ON_FIRST_USE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
