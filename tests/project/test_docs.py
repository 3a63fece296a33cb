"""Docstrings have their sections, and the examples in them and in the README run and print what they say.

The other documents name files that exist and every folder of the code, and their examples run, too.
"""

import doctest
import importlib
import inspect
import pkgutil
import re

import headspan as hs
import pytest
from bad_calls import public
from docstrings import (
    public_callables,
    public_modules,
    says_whether_causal,
    sections,
    takes_causal,
    wrong_references,
)
from helpers import DOCUMENTS, ROOT, compile_library, examples, run_python, train_as_told

# Tests in tests/integrations check the modules of JAX and torch if these are installed.
LEFT_OUT = (
    "headspan._core",
    "headspan.jax",
    "headspan.torch",
    "headspan.lab.pretrained.",
    "headspan.lab.training.engines.by_torch",
    "headspan.lab.training.engines.torch_layers",
)
MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(hs.__path__, "headspan.", onerror=lambda name: None)
    if not m.name.startswith(LEFT_OUT)
)
README, DOCS = ROOT / "README.md", ROOT / "docs"
ARCHITECTURE, GLOSSARY = DOCS / "develop" / "architecture.md", DOCS / "develop" / "glossary.md"
MODELS = DOCS / "howto" / "models.md"
# A path from the root of the project, wherever it stands; what is in <> stands for any name.
PATH = re.compile(r"(?<![\w./-])(?:src|python|tests|docs|benchmarks|notebooks)/[\w./-]*")
# And one by its name alone; a json is mostly what a command writes.
FILE = re.compile(r"`([\w.-]+\.(?:cpp|h|in|cmake|txt|py|pyi|js|md|toml|cff|ya?ml))`")
# A name of code, such as `RowSource`, `hs.attention` or `fit()`.
NAME = re.compile(r"`([A-Za-z_]\w*(?:(?:\.|::)\w+)*)(?:\(\))?`")
# Names on the pages that no code here has: of other projects, of tools, and one that style.md advises against.
OTHERS = set(
    re.findall(
        r"\w+",
        """CausalSelfAttention _sdpa_attention rpb attn_softclamp_logits global_attention_mask
        global_attn_every_n_layers and_mask_function or_mask_function generate_batch unsafe_buffer_pointer
        __builtin_cpu_supports manylinux_2_28 musllinux_1_2 pypi grep concerned sink_size""",
    )
)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    threads = hs.get_num_threads()
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    hs.set_num_threads(threads)
    assert result.failed == 0


@pytest.mark.parametrize(
    "name", ["headspan", "headspan.hybrid", "headspan.lab", "headspan.lab.lm", "headspan.memory", "headspan.sparse"]
)
def test_public_functions_have_examples(name):
    finder = doctest.DocTestFinder(recurse=False)
    module = importlib.import_module(name)
    public = [getattr(module, name) for name in module.__all__]
    without = [f.__name__ for f in public if inspect.isfunction(f) and not any(t.examples for t in finder.find(f))]
    assert without == []


def public_names():
    """Yield the names that the package exports, and those that the modules among them export."""
    modules = [hs, *(thing for thing in map(public, hs.__all__) if inspect.ismodule(thing))]
    for module in modules:
        defined = (name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__)
        for name in getattr(module, "__all__", None) or (name for name in defined if not name.startswith("_")):
            if callable(getattr(module, name)):
                yield f"{module.__name__}.{name}".removeprefix("headspan.")


@pytest.mark.parametrize("name", sorted(public_names()))
def test_docstring_has_its_sections(name):
    """Named tuples are results of functions, which have attributes only."""
    documented = public(name)
    described = sections(documented)
    if hasattr(documented, "_fields"):
        assert described["Attributes"] == set(documented._fields)
        return
    signature = inspect.signature(documented)
    assert described.get("Parameters", set()) == set(signature.parameters)
    gives = inspect.isfunction(documented) and signature.return_annotation not in (None, "None")
    assert ("Returns" in described) == gives


def test_docstrings_say_whether_attention_is_causal():
    causal = [name for name, thing in public_callables(public_modules()).items() if takes_causal(thing)]
    assert len(causal) > 15
    assert [name for name in causal if not says_whether_causal(public(name.removeprefix("headspan.")))] == []


def test_docstrings_refer_to_related_names_that_exist():
    wrong = {name: wrong_references(name, thing) for name, thing in public_callables(public_modules()).items()}
    assert len(wrong) > 70
    assert {name: names for name, names in wrong.items() if names} == {}


def test_readme_examples():
    namespace = {}
    exec(examples(README), namespace)
    assert namespace["gradients"].span.shape == (4,)


def test_readme_is_short():
    assert len(README.read_text().splitlines()) < 120


documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@pytest.mark.unsanitized
@documents
def test_examples_of_documents(document, tmp_path, monkeypatch):
    """Each document has a separate interpreter, because a pattern that it defines is known to all later code.

    The folder contains only the trainings that the document calls for, which are cut short.
    """
    monkeypatch.chdir(tmp_path)
    train_as_told(document)
    run_python(examples(document))


def paths_of(text):
    """The files and folders that a text names, in whatever surroundings."""
    return {path.rstrip(".") for path in PATH.findall(text)} | set(FILE.findall(text))


@documents
def test_named_files_exist(document):
    named = paths_of(document.read_text())
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def words_of_code(*folders):
    """The words of the code, without the comments of C++ and without what comments and docstrings put in back-ticks."""
    kinds = {".h", ".cpp", ".in", ".py", ".pyi", ".js", ".cmake"}
    files = [file for folder in folders for file in (ROOT / folder).rglob("*") if file.suffix in kinds]
    files += [ROOT / "noxfile.py", ROOT / "pyproject.toml", ROOT / "CMakePresets.json"]
    return set(re.findall(r"\w+", re.sub(r"//.*|`[^`\n]*`", "", "\n".join(file.read_text() for file in files))))


def missing_names(text, words):
    names = {name for name in NAME.findall(text) if not FILE.fullmatch(f"`{name}`")}
    return sorted(name for name in names if not set(re.split(r"\W+", name)) <= words)


def test_named_things_exist():
    words = words_of_code("src", "python", "tests", "benchmarks") | OTHERS
    missing = {}
    for document in DOCUMENTS:
        text = document.read_text()
        blocks = " ".join(re.findall(r"^ *```\w*\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE))
        missing[document.name] = missing_names(text, words | set(re.findall(r"\w+", blocks)))
    assert {name: names for name, names in missing.items() if names} == {}


def test_names_in_comments_of_the_core_exist():
    files = [file for file in (ROOT / "src").rglob("*.[ch]*") if "third_party" not in file.parts]
    comments = "\n".join(comment for file in files for comment in re.findall("//.*", file.read_text()))
    assert len(NAME.findall(comments)) > 50
    assert missing_names(comments, words_of_code("src")) == []


@pytest.mark.unsanitized
def test_recipe_of_a_pattern_compiles(tmp_path):
    """The recipe replaces the class and the function of the shortest pattern, whose file a reader copies."""
    (snippet,) = re.findall(r"^ *```cpp\n(.*?)^ *```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL | re.MULTILINE)
    full = (ROOT / "src" / "patterns" / "primitives" / "full.cpp").read_text()
    includes = "\n".join(re.findall("^#include .*", full, flags=re.MULTILINE))
    source = f"{includes}\nnamespace headspan {{\n{snippet}}}\n"
    compile_library(source, tmp_path / "prefix.so", f"-I{ROOT / 'src'}", "-Wall", "-Wextra", "-Wshadow", "-Werror")


@documents
def test_links_lead_somewhere(document):
    prose = re.sub(r"^ *```.*?^ *```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)#\s]+)\)", prose)
    local = [target for target in targets if not target.startswith(("http://", "https://"))]
    assert [target for target in local if not (document.parent / target).exists()] == []


def folders_of_the_code():
    files = (file.relative_to(ROOT) for top in ("src", "python") for file in (ROOT / top).rglob("*") if file.is_file())
    kept = (file for file in files if not any(re.search(r"^__pycache__$|\.egg-info$|^\.", part) for part in file.parts))
    return {f"{folder}/" for file in kept for folder in file.parents if folder.parts}


def test_the_architecture_lists_every_folder_of_the_code():
    rows = re.findall(r"^\| `((?:src|python)/\S*)` \|", ARCHITECTURE.read_text(), flags=re.MULTILINE)
    assert sorted(rows) == sorted(folders_of_the_code())


def test_glossary_is_in_order_and_names_a_file_for_each_term():
    entries = re.split(r"^- \*\*", GLOSSARY.read_text(), flags=re.MULTILINE)[1:]
    terms = [entry.partition("**")[0].casefold() for entry in entries]
    assert len(terms) > 40
    assert terms == sorted(terms)
    assert [term for term, entry in zip(terms, entries, strict=True) if not paths_of(entry)] == []


def test_every_row_of_the_models_names_tests_that_exist():
    folder = ROOT / "tests" / "integrations" / "peers"
    tests = set(re.findall(r"^def (test_\w+)", "\n".join(f.read_text() for f in folder.glob("*.py")), re.MULTILINE))
    rows = [line for line in MODELS.read_text().splitlines() if line.startswith("| ")][2:]
    named = [re.findall(r"`(test_\w+)`", re.split(r"(?<!\\)\|", row)[-2]) for row in rows]
    assert len(rows) > 20
    assert [row for row, names in zip(rows, named, strict=True) if not names] == []
    assert {name for names in named for name in names} == tests  # and no test without its row
