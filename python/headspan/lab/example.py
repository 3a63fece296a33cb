"""The trained run that comes with the package: ``headspan report --example`` unpacks it.

``example.zip`` holds the files of a run folder and the text of the run, tinyshakespeare: scenes from Shakespeare's
plays, in the public domain. The configuration has the command that trained the run.
"""

import tempfile
import zipfile
from pathlib import Path

from headspan.lab.runs import Run, RunError

ARCHIVE = Path(__file__).with_name("example.zip")
TEXT = "shakespeare.txt"


def example_run(path: Path) -> Run:
    """Open the example run in the folder `path`, into which it is unpacked if the folder does not exist."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(ARCHIVE) as archive, tempfile.TemporaryDirectory(dir=path.parent) as folder:
            archive.extractall(Path(folder) / path.name)
            (Path(folder) / path.name).rename(path)
    if not (path / TEXT).exists():
        raise RunError(f"{path} is not the example run; rename the folder")
    run = Run.open(path)
    run.note_text({**run.config["text"], "path": str((path / TEXT).resolve())})
    return run
