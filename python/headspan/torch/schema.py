"""How a call of attention is written for torch: its tensors, and its other options as numbers and texts."""

from __future__ import annotations

import functools
import weakref

from headspan.ops.arguments.options import DEFAULTS, DIFFERENTIABLE, Options
from headspan.ops.functional import ARRAYS
from headspan.patterns.base import Pattern
from headspan.patterns.per_head import listed

_TYPES = {
    "npt.ArrayLike | None": "Tensor?",
    "Pattern | Sequence[Pattern] | Sequence[Sequence[Pattern]] | None": "str?",
    "int | None": "SymInt?",  # a new seed in every step is no reason to compile again
    "float | None": "float?",
    "bool | None": "bool?",
    "float": "float",
    "bool": "bool",
}
_OPTIONS = {
    name: _TYPES[str(getattr(written, "__forward_arg__", written))] for name, written in Options.__annotations__.items()
}
# The options that are arrays are tensors, those with a gradient first; the others are plain.
WITH_GRADIENT = (*ARRAYS, *DIFFERENTIABLE)
TENSORS = (*WITH_GRADIENT, *(name for name in _OPTIONS if _OPTIONS[name] == "Tensor?" and name not in DIFFERENTIABLE))
PLAIN = tuple(name for name in _OPTIONS if name not in TENSORS)
SAVED = ("grad_out", "grad_lse", "out", "statistics")  # what the backward pass takes before them

_tensors = ", ".join(f"Tensor {name}" if name in ARRAYS else f"Tensor? {name}=None" for name in TENSORS)
_plain = ", ".join(f"{_OPTIONS[name]} {name}={DEFAULTS.get(name)}" for name in PLAIN)
_saved = ", ".join(f"Tensor{'?' * (name == 'grad_lse')} {name}" for name in SAVED)
# What comes back is what was asked for, in the order of the flags and of the arguments.
FORWARD = f"attention({_tensors}, *, {_plain}, bool return_lse=False, bool return_statistics=False) -> Tensor[]"
BACKWARD = f"attention_backward({_saved}, {_tensors}, *, {_plain}, bool[] needs) -> Tensor[]"

_SEEDS = 2**64


def written_seed(seed: int) -> int:
    """Return a seed of 64 bits as the signed number that torch has for it."""
    return seed - _SEEDS if seed >= _SEEDS // 2 else seed


def read_seed(written: int) -> int:
    """Return the seed again."""
    return written % _SEEDS


def written_pattern(given: object) -> str:
    """Return a pattern as its spec, a list as a line for each, and of lists each list with an empty line at its end."""
    if isinstance(given, Pattern):
        one: str = _spec(given)
        return one
    rows, is_nested = listed(given)
    end = "\n" if is_nested else ""
    return "".join(["".join([f"{_spec(part)}\n" for part in row]) + end for row in rows])


# A pattern that is still there need not be read: of thousands of blocks that would take as long as their attention.
_alive: weakref.WeakValueDictionary[str, Pattern] = weakref.WeakValueDictionary()


def _spec(pattern: Pattern) -> str:
    written = pattern.to_spec()
    _alive[written] = pattern
    return written


def _read(line: str) -> Pattern:
    known = _alive.get(line)
    return Pattern.from_spec(line) if known is None else known


# Constant as long as the pattern is the same, which is looked at. `torch.compiler.assume_constant_result` says so, too,
# but loads the compiler, which takes a second.
_spec._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=256)
def read_pattern(written: str) -> Pattern | list[Pattern] | list[list[Pattern]]:
    """Return the pattern or the list again."""
    if written.endswith("\n\n"):
        return [[_read(line) for line in row.split("\n")] for row in written[:-2].split("\n\n")]
    *lines, last = written.split("\n")
    return _read(last) if last else [_read(line) for line in lines]
