"""Public functions and classes, how their docstrings begin, and to what they refer."""

import ast
import inspect
import re

import headspan as hs
from helpers import ROOT


def public_modules():
    """The public modules except those of torch and JAX, which have tests of their own."""
    modules = [hs, *(getattr(hs, name) for name in dir(hs) if name not in ("jax", "torch"))]
    for module in filter(inspect.ismodule, modules):
        yield module
        yield from (thing for name in module.__all__ if inspect.ismodule(thing := getattr(module, name)))


def public_callables(modules):
    """The functions and classes that modules export, by their full names."""
    exported = {f"{module.__name__}.{name}": getattr(module, name) for module in modules for name in module.__all__}
    return {name: thing for name, thing in exported.items() if inspect.isfunction(thing) or inspect.isclass(thing)}


def takes_causal(documented):
    """Whether `causal` is an argument, of the function or of the class."""
    return "causal" in inspect.signature(documented).parameters


def says_whether_causal(documented):
    """Whether the first line of the docstring, or the paragraph after it, says what `causal` is by default."""
    opening = inspect.getdoc(documented).partition("\n\nParameters\n")[0].split("\n\n")[:2]
    return re.search(r"by default\b.*``causal=(True|False)``", " ".join(opening), flags=re.DOTALL) is not None


def sections(documented):
    """The sections of a docstring, and what each lists, without headings such as "Dropout:"."""
    _, *parts = re.split(r"^(\w[\w ]*)\n-+$", inspect.getdoc(documented), flags=re.MULTILINE)
    listed = (re.findall(r"^(?!.*:$)(\S.*?)(?: :.*)?$", text, flags=re.MULTILINE) for text in parts[1::2])
    return dict(zip(parts[::2], [set(", ".join(lines).split(", ")) for lines in listed], strict=True))


def wrong_references(full, documented):
    """What See Also lists and is not public, by a full name or by one of the same module; or that nothing is listed."""
    known = _names_in("headspan") | _names_in("headspan.lab.lm")
    for module in set(dir(hs)) - set(hs.__all__) | {"patterns"}:
        known |= _names_in(f"headspan.{module}")
    related = sections(documented).get("See Also", {"no section See Also"})
    return [name for name in related if name not in known and f"{full.rpartition('.')[0]}.{name}" not in known]


def _names_in(module):
    """The full names that a module exports, read from its file, so that the libraries that it needs may be missing."""
    path = ROOT / "python" / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    (exported,) = re.findall(r"^__all__ = (\[.*?\])", file.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {f"{module}.{name}" for name in ast.literal_eval(exported)}
