"""Old names of arguments, which go on working for a while."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def renamed(**names: str) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Let a function take keyword arguments by their old names, ``old="new"``, with a DeprecationWarning."""

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(function)
        def call(*args: _Arguments.args, **given: _Arguments.kwargs) -> _Result:
            for old, new in names.items():
                if old not in given:
                    continue
                if new in given:
                    raise TypeError(f"{old} is the old name of {new}, and both are given")
                warnings.warn(f"{old} is called {new} now", DeprecationWarning, stacklevel=2)
                given[new] = given.pop(old)
            return function(*args, **given)

        return call

    return decorate
