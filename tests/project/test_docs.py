"""Docstrings have their sections, and the examples in them and in the README run and print what they say."""

import doctest
import importlib
import inspect
import pkgutil
import re

import headspan as hs
import pytest
from bad_calls import TABLE, public
from helpers import ROOT

MODULES = sorted(m.name for m in pkgutil.walk_packages(hs.__path__, "headspan.") if not m.name.endswith("_core"))
README = ROOT / "README.md"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    threads = hs.get_num_threads()
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    hs.set_num_threads(threads)
    assert result.failed == 0


@pytest.mark.parametrize("name", ["headspan", "headspan.lm", "headspan.train", "headspan.report"])
def test_public_functions_have_examples(name):
    finder = doctest.DocTestFinder(recurse=False)
    module = importlib.import_module(name)
    public = [getattr(module, name) for name in module.__all__]
    without = [f.__name__ for f in public if inspect.isfunction(f) and not any(t.examples for t in finder.find(f))]
    assert without == []


def public_names():
    """What the package exports, and what the modules among it do."""
    modules = [hs, *(thing for thing in map(public, hs.__all__) if inspect.ismodule(thing))]
    for module in modules:
        own = (name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__)
        for name in getattr(module, "__all__", None) or (name for name in own if not name.startswith("_")):
            if callable(getattr(module, name)):
                yield f"{module.__name__}.{name}".removeprefix("headspan.")


def sections(documented):
    """The sections of a docstring, and what each lists."""
    _, *parts = re.split(r"^(\w+)\n-+$", inspect.getdoc(documented), flags=re.MULTILINE)
    listed = (re.findall(r"^(\S.*?)(?: :.*)?$", text, flags=re.MULTILINE) for text in parts[1::2])
    return dict(zip(parts[::2], [set(", ".join(lines).split(", ")) for lines in listed], strict=True))


@pytest.mark.parametrize("name", sorted(public_names()))
def test_docstring_has_its_sections(name):
    """Whoever takes arguments checks them, and can raise; named tuples are what functions return."""
    documented = public(name)
    found = sections(documented)
    if hasattr(documented, "_fields"):
        assert found["Attributes"] == set(documented._fields)
        return
    signature = inspect.signature(documented)
    assert found.get("Parameters", set()) == set(signature.parameters)
    assert ("Raises" in found) == bool(signature.parameters)
    assert ("Returns" in found) == (inspect.isfunction(documented) and signature.return_annotation is not None)


@pytest.mark.parametrize("function", TABLE)
def test_docstring_names_the_errors_of_bad_calls(function):
    named = sections(public(function))["Raises"]
    for _, error, _ in (row for rows in TABLE[function].values() for row in rows):
        alternatives = error if isinstance(error, tuple) else (error,)
        assert named & {one.__name__ for one in alternatives}


def test_readme_examples():
    """They follow each other, as a reader would type them."""
    namespace = {}
    for code in re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL):
        exec(code, namespace)
    assert namespace["gradients"].span.shape == (4,)
    assert namespace["sparse"].mask(100).shape == (100, 100)
