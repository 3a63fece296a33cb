"""The models with the diffs of the page, as a reader would apply them."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "drop-ins.md"


def diff_of(name: str) -> str:
    """Return the diff that the page has for a file."""
    blocks = re.findall(r"^```diff\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if block.startswith(f"--- {name}.py\n")]
    return str(found)


def applied(source: str, diff: str) -> str:
    """Return a text with a diff applied, each part of which, between lines of @@, must be there once.

    Raises
    ------
    ValueError
        For a part that is not there, or more than once.
    """
    _, *parts = re.split(r"^@@.*\n", diff, flags=re.MULTILINE)
    for part in parts:
        lines = part.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line[0] in kinds) for kinds in (" -", " +"))
        if f"\n{source}".count(f"\n{before}") != 1:
            raise ValueError(f"the diff must begin with lines that are there once, not\n{before}")
        source = f"\n{source}".replace(f"\n{before}", f"\n{after}")[1:]
    return source


def patched(name: str) -> ModuleType:
    """Return the module of a model with the page's diff applied."""
    original = importlib.import_module(f"benchmarks.drop_ins.{name}")
    module = ModuleType(f"{name}_patched")
    source = applied(inspect.getsource(original), diff_of(name))
    exec(compile(source, module.__name__, "exec"), vars(module))
    return module
