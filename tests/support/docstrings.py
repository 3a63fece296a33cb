"""Public functions and classes, and how their docstrings begin."""

import inspect
import re

import headspan as hs


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
