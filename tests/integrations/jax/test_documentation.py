"""The names of headspan.jax, their documentation, and the examples that run with JAX."""

import doctest
import importlib
import inspect
import pkgutil
import pydoc

import pytest
from docstrings import says_whether_causal, wrong_references
from helpers import DOCUMENTS, ROOT, examples, needs
from jax_arrays import jax  # noqa: F401

import headspan.jax  # isort: skip

MODULES = sorted(m.name for m in pkgutil.walk_packages(headspan.jax.__path__, "headspan.jax."))


def test_these_names_and_no_others():
    assert headspan.jax.__all__ == ["attention"]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_function_has_examples_and_sections():
    text = inspect.getdoc(headspan.jax.attention)
    assert all(f"\n{section}\n---" in text for section in ("Parameters", "Returns", "Examples"))
    opening = pydoc.plain(pydoc.render_doc(headspan.jax.attention)).splitlines()[:10]
    assert not [line for line in opening if "Union[" in line or "numpy._typing" in line or "ForwardRef" in line]


def test_docstring_says_that_attention_is_causal():
    assert says_whether_causal(headspan.jax.attention)


def test_docstring_refers_to_related_names_that_exist():
    assert wrong_references("headspan.jax.attention", headspan.jax.attention) == []


WITH_JAX = [document for document in DOCUMENTS if needs(document.read_text(), "jax")]


@pytest.mark.parametrize("document", WITH_JAX, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_of_documents(document):
    exec(examples(document), {})
