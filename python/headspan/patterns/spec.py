"""Parser of patterns written as text, which is never executed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from headspan import _check

_Classes = Mapping[str, Callable[..., Any]]


def read_spec(spec: str, classes: _Classes) -> Any:
    """Evaluate an expression of the named classes, ``|`` and ``&``."""
    try:
        tree = ast.parse(spec.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"the description of a pattern must be an expression, not {_check.describe(spec)}") from None
    return _read(tree, classes)


def _read(tree: ast.expr, classes: _Classes) -> Any:
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr | ast.BitAnd):
        left, right = _read(tree.left, classes), _read(tree.right, classes)
        return left | right if isinstance(tree.op, ast.BitOr) else left & right
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in classes:
        name = tree.func.id
        arguments = [_read_argument(argument, name, classes) for argument in tree.args]
        named = {word.arg: _read_argument(word.value, name, classes) for word in tree.keywords if word.arg}
        return classes[name](*arguments, **named)
    raise ValueError(f"{ast.unparse(tree)} is not a pattern; patterns are {', '.join(sorted(classes))}")


def _read_argument(tree: ast.expr, name: str, classes: _Classes) -> Any:
    if isinstance(tree, ast.Call | ast.BinOp):
        return _read(tree, classes)
    try:
        return ast.literal_eval(tree)
    except ValueError:
        raise ValueError(f"the arguments of {name} must be numbers or patterns, not {ast.unparse(tree)}") from None
