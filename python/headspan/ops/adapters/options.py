"""The options of an attention, sorted for frameworks: those that are tensors, and the plain ones."""

from __future__ import annotations

from headspan.ops.arguments.options import DIFFERENTIABLE, Options
from headspan.ops.functional import ARRAYS

# As each is written in `Options`.
WRITTEN = {name: str(getattr(its, "__forward_arg__", its)) for name, its in Options.__annotations__.items()}
# The options that are arrays are tensors, those with a gradient first; the others are plain.
WITH_GRADIENT = (*ARRAYS, *DIFFERENTIABLE)
TENSORS = (
    *WITH_GRADIENT,
    *(name for name in WRITTEN if WRITTEN[name] == "npt.ArrayLike | None" and name not in DIFFERENTIABLE),
)
PLAIN = tuple(name for name in WRITTEN if name not in TENSORS)
SAVED = ("grad_out", "grad_lse", "out", "statistics")  # what the backward pass takes before them

# The axes of each tensor, of which the first may be left out: of batch items, of heads, and others.
AXES = dict.fromkeys((*ARRAYS, "grad_out", "out", "statistics", "pair_bias"), "bh..")
AXES |= dict.fromkeys(("grad_lse", "span", "temperature", "key_bias"), "bh.")
AXES |= {"alibi_slopes": "bh", "sinks": "bh", "memory_key": "h..", "memory_value": "h..", "distance_bias": "h."}
AXES |= {"block_gates": "h..", "key_ranges": "b..", "distance_buckets": ".", "gate_block": "."}
AXES |= dict.fromkeys(("query_positions", "key_positions", "segment_ids", "query_segments", "key_segments"), "b.")
AXES |= dict.fromkeys(("key_begin", "key_lengths", "prefix_lengths"), "b") | {"seed": ""}
PER_TOKEN = ("span", "temperature")  # or without their last axis
