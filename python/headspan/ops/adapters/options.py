"""The options of an attention, sorted for frameworks into tensors and plain options."""

from __future__ import annotations

from headspan.ops.arguments.options import ARRAY_OPTIONS, DIFFERENTIABLE, PLAIN_OPTIONS, ROWS
from headspan.ops.execution.functional import ARRAYS

# Array options are tensors, the differentiable ones first; the others are plain.
WITH_GRADIENT = (*ARRAYS, *DIFFERENTIABLE)
TENSORS = (*WITH_GRADIENT, *(name for name in ARRAY_OPTIONS if name not in DIFFERENTIABLE))
PLAIN = tuple(name for name in ROWS if name not in ARRAY_OPTIONS)
# Plain options that are tensors in compiled functions, because a compiled function must not contain their values.
EACH_CALL = tuple(name for name, row in PLAIN_OPTIONS.items() if row.each_call)
SAVED = ("grad_out", "grad_lse", "out", "statistics")  # arguments of the backward pass, before the tensors

# The axes of each tensor, see `ArrayRow`.
AXES = dict.fromkeys((*ARRAYS, "grad_out", "out", "statistics"), "bh..") | {"grad_lse": "bh."}
AXES |= {name: row.axes for name, row in ARRAY_OPTIONS.items()} | dict.fromkeys(EACH_CALL, "")
PER_TOKEN = tuple(name for name, row in ARRAY_OPTIONS.items() if row.per_token)  # the last axis may be omitted
