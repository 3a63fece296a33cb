"""Every notebook runs from a clean kernel, in time and without a word on stderr, and is stored without outputs."""

import ast
import importlib
import json
import os
import re
from pathlib import Path

import pytest
from helpers import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 240

notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def module_of(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return None
        pytest.skip(f"needs {error.name}: pip install 'headspan[notebooks]'")


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == [
        "01_soft_mask",
        "02_spans_that_learn",
        "03_patterns_and_hybrids",
        "04_long_context",
        "05_encoder",
    ]


@notebooks
def test_is_stored_without_outputs(path):
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(path, "code"))
    notebook = json.loads(path.read_text())
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert path.read_text() == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"  # one form, small changes


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


@pytest.mark.slow
@notebooks
def test_runs(path, tmp_path, monkeypatch):
    for name in ("nbclient", "ipykernel", "matplotlib", "anywidget", "autograd"):
        pytest.importorskip(name, reason=f"needs {name}: pip install 'headspan[notebooks]'")
    import nbclient
    import nbformat

    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):  # settings of nobody
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MPLBACKEND"):
        monkeypatch.delenv(name, raising=False)
    python = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(p).resolve()) for p in python.split(os.pathsep) if p))
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    folder = tmp_path / "work"
    folder.mkdir()
    client = nbclient.NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert list(folder.iterdir()) == []  # it leaves nothing behind
