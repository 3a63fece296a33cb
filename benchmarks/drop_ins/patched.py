"""Apply the diffs of docs/howto/drop-ins.md to the models, as a reader would."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "drop-ins.md"


def diff_of(name: str) -> str:
    """Return the diff for a file on the page."""
    blocks = re.findall(r"^```diff\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    (diff,) = [block for block in blocks if block.startswith(f"--- {name}.py\n")]
    return str(diff)


def applied(source: str, diff: str) -> str:
    """Apply a diff to a source text. The lines of each hunk, which a line of @@ starts, must occur exactly once.

    Raises
    ------
    ValueError
        If the lines of a hunk do not occur in the source text, or occur more than once.
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
    """Return the module of a model with the diff of the page applied."""
    original = importlib.import_module(f"benchmarks.drop_ins.{name}")
    module = ModuleType(f"{name}_patched")
    source = applied(inspect.getsource(original), diff_of(name))
    exec(compile(source, module.__name__, "exec"), vars(module))
    return module
