"""A call as XLA passes it to the handler: arrays, and a text that describes them and all other options."""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple

from headspan.ops.adapters.options import EACH_CALL, SAVED, TENSORS
from headspan.ops.adapters.patterns import read_pattern
from headspan.ops.arguments.options import ARRAY_OPTIONS

# Checks of arrays that must be known when a function is traced, because they determine shapes.
STATIC = {name: row.static for name, row in ARRAY_OPTIONS.items() if row.static is not None}
# Arguments that may be arrays in a call.
OPERANDS = (*(name for name in TENSORS if name not in STATIC), *EACH_CALL)


class Call(NamedTuple):
    """A self-contained description of a call, because compiled code may be cached and run by another process.

    Attributes
    ----------
    results : tuple of str
        Forward: names among out, lse, exact (out before rounding to 16 bits) and statistics. Backward: the arguments
        whose gradients are computed.
    operands : tuple of str
        Names of the arguments that are arrays. Backward: preceded by those of `SAVED`.
    axes : int
        Number of axes of the query, 2 to 4. Arrays with more axes are mapped.
    plain : str
        The other options, in the format of `written`.
    """

    results: tuple[str, ...]
    operands: tuple[str, ...]
    axes: int
    plain: str


@functools.lru_cache(maxsize=256)
def read(text: str) -> Call:
    """Parse a call from JSON."""
    results, operands, axes, plain = json.loads(text)
    return Call(tuple(results), tuple(operands), axes, plain)


def in_order(names: Any) -> tuple[str, ...]:
    """Return names of arguments in the order of calls."""
    return tuple(name for name in (*SAVED, *OPERANDS) if name in names)


def written(plain: dict[str, Any]) -> str:
    """Return checked options that are not arrays as text; a pattern must already be text."""
    return json.dumps(plain, sort_keys=True)


def options(plain: str) -> dict[str, Any]:
    """Parse such options into those of `headspan.attention`."""
    read: dict[str, Any] = json.loads(plain)
    if "pattern" in read:
        read["pattern"] = read_pattern(read["pattern"])
    return read
