"""The tensors that a function captures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from headspan.torch.private import version_of


def leaves(function: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Yield what a function consists of: code, and the tensors, numbers and texts that it captures, also indirectly."""
    seen = set() if seen is None else seen
    if isinstance(function, torch.Tensor | int | float | str | bool | None):
        yield function
        return
    if id(function) in seen:
        return
    seen.add(id(function))
    parts: list[Any] = []
    if isinstance(function, dict):
        parts = list(function.values())
    elif isinstance(function, list | tuple | set | frozenset):
        parts = list(function)
    elif isinstance(function, functools.partial):
        parts = [function.func, function.args, function.keywords]
    elif isinstance(function, torch.nn.Module):
        parts = [*function.parameters(), *function.buffers(), type(function).forward]
    elif callable(function) and not isinstance(function, type):
        parts = [getattr(function, name, None) for name in _PARTS]
        parts += [_contents(cell) for cell in getattr(function, "__closure__", None) or ()]
        code, names = getattr(function, "__code__", None), getattr(function, "__globals__", {})
        if code is not None:
            yield code
            values = [names.get(name) for name in code.co_names]
            parts += [x for x in values if isinstance(x, torch.Tensor | int | float) or hasattr(x, "__code__")]
    for part in parts:
        yield from leaves(part, seen)


_PARTS = ("__self__", "__func__", "__wrapped__", "__defaults__", "__kwdefaults__", "__dict__")


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the name has no value yet
        return None


class State:
    """The tensors that a function captures, and their versions when this was made."""

    def __init__(self, function: Any) -> None:
        self.tensors = _tensors(function)
        self._versions = [version_of(tensor) for tensor in self.tensors]

    def is_of(self, function: Any) -> bool:
        """Whether a function captures the same tensors, and nothing was written to them since."""
        now = _tensors(function)
        return (
            len(now) == len(self.tensors)
            and all(one is other for one, other in zip(now, self.tensors, strict=True))
            and [version_of(tensor) for tensor in now] == self._versions
        )


def _tensors(function: Any) -> list[torch.Tensor]:
    return [leaf for leaf in leaves(function) if isinstance(leaf, torch.Tensor)]


def signature(function: Any) -> tuple[Any, ...]:
    """Return what decides how a function depends on its arguments: its code, and what it captures.

    Of tensors of floating-point numbers the shapes count, and of other tensors, such as ids of documents, the tensors
    themselves with their versions.
    """
    return tuple(_part_of_signature(leaf) for leaf in leaves(function))


def _part_of_signature(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.is_floating_point():
        return leaf.shape, leaf.dtype, leaf.requires_grad
    return _Identity(leaf), version_of(leaf)


class _Identity:
    """Is equal for the same object only, which it keeps alive."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


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
