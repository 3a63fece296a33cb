"""The names of headspan.torch, their documentation, and the examples that run with torch."""

import doctest
import importlib
import inspect
import pkgutil
import pydoc

import pytest
from docstrings import public_callables, says_whether_causal, takes_causal, wrong_references
from helpers import DOCUMENTS, ROOT, examples, needs, train_as_told
from tensors import torch

import headspan.torch  # isort: skip

PUBLIC = """
    AdaptiveSpan AdaptiveSpanAttention DynamicSpan HybridAttention LearnedBlocks SpanCache SpanPredictor
    TransformerBlock attention convert explore fit_spans flex_attention freeze_spans halo_attention head_cache
    hierarchical_attention parameter_groups record register retrieval_attention set_spans
    """
MODULES = sorted(
    m.name for m in pkgutil.walk_packages(headspan.torch.__path__, "headspan.torch.") if "cuda" not in m.name
)


def test_these_names_and_no_others():
    assert sorted(headspan.torch.__all__) == sorted(PUBLIC.split())


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)  # a random model may end its text early
        assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", PUBLIC.split())
def test_public_names_have_examples_and_sections(name):
    documented = getattr(headspan.torch, name)
    text = inspect.getdoc(documented)
    sections = ("Parameters",) if inspect.signature(documented).parameters else ()
    assert all(f"\n{section}\n---" in text for section in (*sections, "Examples"))
    assert any(test.examples for test in doctest.DocTestFinder(recurse=False).find(documented))
    opening = pydoc.plain(pydoc.render_doc(documented)).splitlines()[:10]
    assert not [line for line in opening if "Union[" in line or "numpy._typing" in line or "ForwardRef" in line]


def test_docstrings_say_whether_attention_is_causal():
    causal = [thing for thing in public_callables([headspan.torch]).values() if takes_causal(thing)]
    assert len(causal) > 2
    assert [thing for thing in causal if not says_whether_causal(thing)] == []


def test_docstrings_refer_to_related_names_that_exist():
    wrong = {name: wrong_references(name, thing) for name, thing in public_callables([headspan.torch]).items()}
    assert {name: names for name, names in wrong.items() if names} == {}


WITH_TORCH = [document for document in DOCUMENTS if needs(document.read_text(), "torch")]


@pytest.mark.parametrize("document", WITH_TORCH, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_of_documents(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train_as_told(document)
    exec(examples(document), {})
