"""Run the notebooks and store them with their outputs: ``python notebooks/store.py [NAME ...]``.

The stored files contain measured numbers, but no paths or times of day. Pictures are reduced to 256 colours, which look
the same and take a third of the bytes. The interactive view needs a running notebook, so only its name is stored.
Progress bars are left out.
"""

from __future__ import annotations

import base64
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat
from PIL import Image

FOLDER = Path(__file__).parent
SECONDS = 1800  # a cell that needs longer hangs: the fit of notebook 11 takes minutes on a busy machine
VIEW = "application/vnd.jupyter.widget-view+json"


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Run a notebook in a new kernel, with `folder` as the working directory and without settings of the user."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    settings = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "MPLCONFIGDIR")
    skipped = (*settings, "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MPLBACKEND")
    environment = {name: value for name, value in os.environ.items() if name not in skipped}
    python = [str(Path(part).resolve()) for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part]
    environment["PYTHONPATH"] = os.pathsep.join(python)
    with tempfile.TemporaryDirectory() as empty:
        environment |= {name: str(Path(empty) / name) for name in settings}
        client = nbclient.NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,  # where a stream is split varies between runs
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute(env=environment)
    return notebook


def as_stored(notebook: nbformat.NotebookNode) -> str:
    """Return the text of the file in a normal form, so that differences between versions are small."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not is_progress_bar(output)]
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if data.pop(VIEW, None):
                data["text/plain"] = re.sub(" at 0x[0-9a-f]+", "", data["text/plain"])
            if "image/png" in data:
                data["image/png"] = in_few_colours(data["image/png"])
    return nbformat.writes(notebook) + "\n"


def is_progress_bar(output: nbformat.NotebookNode) -> bool:
    data = output.get("data", {})
    return VIEW in data and "it/s]" in data["text/plain"]


def in_few_colours(picture: str) -> str:
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    small = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def main(names: list[str]) -> None:
    for path in [FOLDER / f"{Path(name).stem}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            path.write_text(as_stored(executed(path, Path(folder))), encoding="utf-8")
        print(f"{path.stem}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
