"""The examples of docstrings and of the README run and print what they say."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import headspan as hs
import pytest

MODULES = sorted(m.name for m in pkgutil.walk_packages(hs.__path__, "headspan.") if not m.name.endswith("_core"))
README = Path(__file__).parent.parent / "README.md"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    threads = hs.get_num_threads()
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    hs.set_num_threads(threads)
    assert result.failed == 0


def test_public_functions_have_examples():
    finder = doctest.DocTestFinder(recurse=False)
    public = [getattr(hs, name) for name in hs.__all__]
    without = [
        f.__name__
        for f in public
        if callable(f) and not isinstance(f, type) and not any(t.examples for t in finder.find(f))
    ]
    assert without == []


def test_readme_examples():
    """They follow each other, as a reader would type them."""
    namespace = {}
    for code in re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL):
        exec(code, namespace)
    assert namespace["gradients"].span.shape == (4,)
    assert namespace["sparse"].mask(100).shape == (100, 100)
