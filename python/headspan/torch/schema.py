"""How a call of attention is written for torch: its tensors, and its other options as numbers and texts."""

from __future__ import annotations

from headspan.ops.adapters import options
from headspan.ops.adapters.options import SAVED, WITH_GRADIENT, WRITTEN
from headspan.ops.adapters.patterns import read_pattern, spec_of, written_pattern
from headspan.ops.arguments.options import DEFAULTS
from headspan.ops.functional import ARRAYS

__all__ = ["BACKWARD", "FORWARD", "PLAIN", "SAVED", "TENSORS", "WITH_GRADIENT", "read_pattern", "written_pattern"]

_TYPES = {
    "npt.ArrayLike | None": "Tensor?",
    "Pattern | Sequence[Pattern] | Sequence[Sequence[Pattern]] | None": "str?",
    "float | None": "float?",
    "bool | None": "bool?",
    "float": "float",
    "bool": "bool",
}

# The seed is a tensor, as torch draws it: another one in every step, of which what is compiled knows no number.
TENSORS = (*options.TENSORS, "seed")
PLAIN = tuple(name for name in options.PLAIN if name != "seed")

_tensors = ", ".join(f"Tensor {name}" if name in ARRAYS else f"Tensor? {name}=None" for name in TENSORS)
_plain = ", ".join(f"{_TYPES[WRITTEN[name]]} {name}={DEFAULTS.get(name)}" for name in PLAIN)
_saved = ", ".join(f"Tensor{'?' * (name == 'grad_lse')} {name}" for name in SAVED)
# What comes back is what was asked for, in the order of the flags and of the arguments.
FORWARD = f"attention({_tensors}, *, {_plain}, bool return_lse=False, bool return_statistics=False) -> Tensor[]"
BACKWARD = f"attention_backward({_saved}, {_tensors}, *, {_plain}, bool[] needs) -> Tensor[]"

# Constant as long as the pattern is the same, which is looked at. `torch.compiler.assume_constant_result` says so, too,
# but loads the compiler, which takes a second.
spec_of._dynamo_marked_constant = True  # type: ignore[attr-defined]

_SEEDS = 2**64


def written_seed(seed: int) -> int:
    """Return a seed of 64 bits as the signed number that torch has for it."""
    return seed - _SEEDS if seed >= _SEEDS // 2 else seed


def read_seed(written: int) -> int:
    """Return the seed again."""
    return written % _SEEDS
