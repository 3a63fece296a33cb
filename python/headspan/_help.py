"""What help and editors show of the package."""

from __future__ import annotations

from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type[tuple[Any, ...]])


def as_written(cls: _Class) -> _Class:
    """Let the signature of a named tuple show its annotations as they are written, and not as references to them."""
    annotations = cls.__new__.__annotations__
    annotations.update({name: getattr(its, "__forward_arg__", its) for name, its in annotations.items()})
    return cls
