"""What a contender makes of a case before the clock starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.cases import Array

Result = tuple[Array | None, ...]


@dataclass(frozen=True)
class Prepared:
    """A contender ready to go.

    Attributes
    ----------
    call : callable
        What is timed.
    result : callable, optional
        Turns what `call` returns into arrays: out and, after the backward pass, the gradients of query, key, value and,
        if there is one, span. None for a call that computes no attention.
    held : int
        Bytes of the masks that `call` needs and that were made before.
    """

    call: Callable[[], Any]
    result: Callable[[Any], Result] | None
    held: int = 0
