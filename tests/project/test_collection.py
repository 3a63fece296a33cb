"""What is made where tests are collected outlives the core's types, which a pattern must not."""

import ast

import headspan as hs
import pytest
from helpers import ROOT

# What the sanitizers run, which see it; pictures, torch and JAX they leave out.
FILES = sorted(
    path
    for path in (ROOT / "tests").rglob("*.py")
    if not {"views", "demo", "jax", "torch", "peers"} & set(path.relative_to(ROOT).parts)
)


def made_at_once(node):
    """The calls in what is run when a module is loaded: not in functions, but in what decorates them."""
    if isinstance(node, ast.FunctionDef):
        inner = [*node.decorator_list, *node.args.defaults]
    else:
        inner = [] if isinstance(node, ast.Lambda) else ast.iter_child_nodes(node)
    for each in inner:
        yield from made_at_once(each)
    if isinstance(node, ast.Call):
        yield node


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_patterns_are_made_within_tests(path):
    functions = (call.func for call in made_at_once(ast.parse(path.read_text())))
    names = {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in functions}
    assert not names & {*hs.patterns.__all__, "SpanCache"}
