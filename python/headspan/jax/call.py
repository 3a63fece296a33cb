"""A call as XLA carries it to the handler: arrays, and a text that says what they are and all else."""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple

from headspan.ops.adapters.options import SAVED, TENSORS
from headspan.ops.adapters.patterns import read_pattern

# What an array may be in a call: the size of blocks decides about shapes, and the seed changes from step to step.
OPERANDS = (*(name for name in TENSORS if name != "gate_block"), "seed")


class Call(NamedTuple):
    """What is asked for. It says all by itself: compiled code may be kept, and run by another process.

    Attributes
    ----------
    results : tuple of str
        Forward of out, lse, exact (out before it was rounded to 16 bits) and statistics; backward the arguments whose
        gradients are wanted.
    operands : tuple of str
        The arguments that are arrays; backward with those of `SAVED` before them.
    axes : int
        Of the query, 2 to 4. What has more is mapped.
    plain : str
        The other options, as `written` gives them.
    """

    results: tuple[str, ...]
    operands: tuple[str, ...]
    axes: int
    plain: str


@functools.lru_cache(maxsize=256)
def read(text: str) -> Call:
    """Return a call that was written as JSON."""
    results, operands, axes, plain = json.loads(text)
    return Call(tuple(results), tuple(operands), axes, plain)


def in_order(names: Any) -> tuple[str, ...]:
    """Return names of arguments in the order that calls have them."""
    return tuple(name for name in (*SAVED, *OPERANDS) if name in names)


def written(plain: dict[str, Any]) -> str:
    """Return checked options that are no arrays as text; a pattern is one already."""
    return json.dumps(plain, sort_keys=True)


def options(plain: str) -> dict[str, Any]:
    """Return these options as `headspan.attention` takes them."""
    read: dict[str, Any] = json.loads(plain)
    if "pattern" in read:
        read["pattern"] = read_pattern(read["pattern"])
    return read
