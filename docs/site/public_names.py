"""The directive `{public}`: all that a module exports, documented, or what of it comes from the rooms that are named.

    ```{public} headspan
    ops.attention cache
    ```

Names are those of `__all__`. A name that no page documents is a warning, so that a new one needs no list here. An
example of a function of `headspan.plot` is run, and stands with the picture that it draws.
"""

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

import headspan
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

log = logging.getLogger(__name__)


def exported(module: ModuleType) -> dict[str, Any]:
    """Return what a module exports, without modules and without its version."""
    things = {name: getattr(module, name) for name in module.__all__ if not name.startswith("_")}
    return {name: thing for name, thing in things.items() if not inspect.ismodule(thing)}


def of_rooms(name: str, thing: Any, rooms: list[str]) -> bool:
    """Whether a thing was made in one of these rooms of headspan; in any, if none is named."""
    made_in = getattr(thing, "__module__", "") + "."
    return not rooms or any(made_in.startswith(f"headspan.{room}.") for room in rooms)


def directive(full: str, thing: Any) -> str:
    """Return the directive that documents it."""
    if inspect.isclass(thing):
        # The fields of a named tuple stand in its section Attributes.
        return f".. autoclass:: {full}\n" + ("" if hasattr(thing, "_fields") else "   :members:\n")
    if inspect.isroutine(thing):
        return f".. autofunction:: {full}\n"
    return f".. py:data:: {full}\n   :type: {thing}\n"  # an alias of a type


class Public(SphinxDirective):
    """Document what a module exports."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the descriptions, in the order in which the rooms are named, and of the alphabet within them."""
        module = importlib.import_module(self.arguments[0])
        _SHOWN.add(module)
        rooms = " ".join(self.content).split()
        parts = []
        for room in rooms or [""]:
            chosen = {n: t for n, t in exported(module).items() if of_rooms(n, t, [room] if room else [])}
            if not chosen:
                raise self.error(f"{module.__name__} exports nothing of {room}")
            parts += [directive(f"{module.__name__}.{name}", chosen[name]) for name in sorted(chosen)]
        return self.parse_text_to_nodes("```{eval-rst}\n" + "\n".join(parts) + "```\n")


_SHOWN = {headspan}  # and what the pages name beside it


def all_are_documented(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of what is exported and documented under none of its names."""
    documented = [_thing(full) for full in env.get_domain("py").objects]
    for module in sorted(_SHOWN, key=lambda shown: shown.__name__):
        for name, thing in exported(module).items():
            if not any(thing is one for one in documented):
                log.warning("%s.%s is exported, and no page of docs/reference documents it", module.__name__, name)


def _thing(full: str) -> Any:
    """Return what a dotted name stands for, or None for a member of a class."""
    module, _, name = full.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError:
        return None


def resolve(app: Sphinx, env: BuildEnvironment, node: nodes.Element, child: nodes.Element) -> nodes.Node | None:
    """Lead `attention` and `Window` to what is public under that name; an argument's name is left as it is.

    A name that begins with the package's must exist.
    """
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py":
        return None
    domain = env.get_domain("py")
    for prefix in ("headspan.", "headspan.patterns.", "headspan.torch."):
        if prefix + target in domain.objects:
            entry = domain.objects[prefix + target]
            return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, child, prefix + target)
    module = sys.modules.get(target)
    if target.startswith("headspan.") and module is None:
        return None
    return child


def draw_examples(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Let the example of a function of headspan.plot be drawn."""
    if name.startswith("headspan.plot.") and "Examples" in lines:
        first = lines.index("Examples") + 2
        lines[first:] = [".. plot::", "", *(f"    {line}" for line in lines[first:])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the checks."""
    app.add_directive("public", Public)
    app.connect("env-check-consistency", all_are_documented)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", draw_examples, priority=400)  # before numpydoc
    return {"parallel_read_safe": True, "parallel_write_safe": True}
