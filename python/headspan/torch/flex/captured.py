"""The tensors that a function captures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from headspan.torch.private import version_of


def captured(function: Any, seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """Yield the tensors in the closure, defaults and attributes of a function, and in those of its functions."""
    seen = set() if seen is None else seen
    if id(function) in seen:
        return
    seen.add(id(function))
    if isinstance(function, torch.Tensor):
        yield function
    elif isinstance(function, dict):
        for value in function.values():
            yield from captured(value, seen)
    elif isinstance(function, list | tuple | set | frozenset):
        for value in function:
            yield from captured(value, seen)
    elif isinstance(function, functools.partial):
        for value in (function.func, function.args, function.keywords):
            yield from captured(value, seen)
    elif isinstance(function, torch.nn.Module):
        yield from function.parameters()
        yield from function.buffers()
    elif callable(function) and not isinstance(function, type):
        for name in ("__self__", "__func__", "__wrapped__", "__defaults__", "__kwdefaults__", "__dict__"):
            yield from captured(getattr(function, name, None), seen)
        for cell in getattr(function, "__closure__", None) or ():
            yield from captured(_contents(cell), seen)
        code, names = getattr(function, "__code__", None), getattr(function, "__globals__", {})
        for name in getattr(code, "co_names", ()):
            value = names.get(name)
            if isinstance(value, torch.Tensor) or (callable(value) and hasattr(value, "__code__")):
                yield from captured(value, seen)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the name has no value yet
        return None


class State:
    """The tensors that a function captures, and their versions when this was made."""

    def __init__(self, function: Any) -> None:
        self.tensors = list(captured(function))
        self._versions = [version_of(tensor) for tensor in self.tensors]

    def is_of(self, function: Any) -> bool:
        """Whether a function captures the same tensors, and nothing was written to them since."""
        now = list(captured(function))
        return (
            len(now) == len(self.tensors)
            and all(one is other for one, other in zip(now, self.tensors, strict=True))
            and [version_of(tensor) for tensor in now] == self._versions
        )


def depends_on(mod: Callable[..., torch.Tensor], place: int, arguments: int) -> bool:
    """Whether the result of a mod depends on one of its arguments, by its operations and not by its numbers."""
    zeros = [torch.zeros((), dtype=torch.int64) for _ in range(arguments)]
    zeros[place] = torch.zeros(2, dtype=torch.int64)
    axes = tuple(0 if i == place else None for i in range(arguments))
    try:
        torch.vmap(mod, in_dims=axes, out_dims=None)(*zeros)
    except ValueError:  # the result has the mapped axis
        return True
    return False
