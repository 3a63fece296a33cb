"""The torch schema of attention: tensors, and the other options as numbers and strings."""

from __future__ import annotations

from headspan.ops.adapters import options
from headspan.ops.adapters.options import EACH_CALL, SAVED, WITH_GRADIENT
from headspan.ops.adapters.patterns import read_pattern, spec_of, written_pattern
from headspan.ops.arguments.options import DEFAULTS, PLAIN_OPTIONS, TYPES
from headspan.ops.execution.functional import ARRAYS
from headspan.torch.private import constant_when_compiled

__all__ = ["BACKWARD", "FORWARD", "PLAIN", "SAVED", "TENSORS", "WITH_GRADIENT", "read_pattern", "written_pattern"]

TENSORS = (*options.TENSORS, *EACH_CALL)
PLAIN = tuple(name for name in options.PLAIN if name not in EACH_CALL)
# Numbers and flags have the same types in torch; patterns are text.
_types = {name: TYPES[name].replace(" | None", "?") if name in PLAIN_OPTIONS else "str?" for name in PLAIN}

_tensors = ", ".join(f"Tensor {name}" if name in ARRAYS else f"Tensor? {name}=None" for name in TENSORS)
_plain = ", ".join(f"{_types[name]} {name}={DEFAULTS.get(name)}" for name in PLAIN)
_saved = ", ".join(f"Tensor{'?' * (name == 'grad_lse')} {name}" for name in SAVED)
# The operators return only the requested tensors, in the order of the flags and of the arguments.
FORWARD = f"attention({_tensors}, *, {_plain}, bool return_lse=False, bool return_statistics=False) -> Tensor[]"
BACKWARD = f"attention_backward({_saved}, {_tensors}, *, {_plain}, bool[] needs) -> Tensor[]"

constant_when_compiled(spec_of)

_SEEDS = 2**64


def written_seed(seed: int) -> int:
    """Return a 64-bit seed as the signed integer that torch can represent."""
    return seed - _SEEDS if seed >= _SEEDS // 2 else seed


def read_seed(written: int) -> int:
    """Return the unsigned seed that `written_seed` encoded."""
    return written % _SEEDS
