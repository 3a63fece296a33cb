"""Signatures as `help` and editors display them."""

from __future__ import annotations

from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type[tuple[Any, ...]])


def as_written(cls: _Class) -> _Class:
    """Make the signature of a named tuple show its annotations as written instead of as `ForwardRef` objects."""
    annotations = cls.__new__.__annotations__
    annotations.update({name: getattr(value, "__forward_arg__", value) for name, value in annotations.items()})
    return cls
