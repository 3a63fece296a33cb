"""The options of an attention, sorted for frameworks into tensors and plain options."""

from __future__ import annotations

from headspan.ops.arguments.options import DIFFERENTIABLE, Options
from headspan.ops.functional import ARRAYS

# The annotation of each option as written in `Options`.
WRITTEN = {name: str(getattr(hint, "__forward_arg__", hint)) for name, hint in Options.__annotations__.items()}
# Array options are tensors, the differentiable ones first; the others are plain.
WITH_GRADIENT = (*ARRAYS, *DIFFERENTIABLE)
TENSORS = (
    *WITH_GRADIENT,
    *(name for name in WRITTEN if WRITTEN[name] == "npt.ArrayLike | None" and name not in DIFFERENTIABLE),
)
PLAIN = tuple(name for name in WRITTEN if name not in TENSORS)
SAVED = ("grad_out", "grad_lse", "out", "statistics")  # arguments of the backward pass, before the tensors

# The axes of each tensor: b for batch items, h for heads, . for others. Leading axes may be omitted.
AXES = dict.fromkeys((*ARRAYS, "grad_out", "out", "statistics", "pair_bias"), "bh..")
AXES |= dict.fromkeys(("grad_lse", "span", "temperature", "key_bias"), "bh.")
AXES |= {"alibi_slopes": "bh", "sinks": "bh", "memory_key": "h..", "memory_value": "h..", "distance_bias": "h."}
AXES |= {"block_gates": "h..", "key_ranges": "b..", "distance_buckets": ".", "gate_block": "."}
AXES |= dict.fromkeys(("query_positions", "key_positions", "segment_ids", "query_segments", "key_segments"), "b.")
AXES |= dict.fromkeys(("key_begin", "key_lengths", "prefix_lengths"), "b") | {"seed": ""}
PER_TOKEN = ("span", "temperature")  # the last axis may be omitted
