"""The prepared call of a contender for a case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.cases import Array

Result = tuple[Array | None, ...]


@dataclass(frozen=True)
class Prepared:
    """A call that is ready to be timed.

    Attributes
    ----------
    call : callable
        The timed function.
    result : callable, optional
        Converts the value of `call` into arrays: the output and, after a backward pass, the gradients of query, key,
        value and span (if any). None for a call that computes no attention.
    held : int
        Bytes of the masks that were made before and that `call` needs.
    """

    call: Callable[[], Any]
    result: Callable[[Any], Result] | None
    held: int = 0
