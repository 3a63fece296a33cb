"""An error names the extra or the compiler that is missing, and extras are installed in one way everywhere."""

import os
import re
import shutil
import subprocess
import tomllib

import pytest
from helpers import DOCUMENTS, ROOT, run_python

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
FOLDERS = ("python", "tests", "benchmarks", "examples", "experiments", "notebooks")
FILES = [file for folder in FOLDERS for kind in ("*.py", "*.ipynb") for file in (ROOT / folder).rglob(kind)]
INSTALLED = re.compile(r"pip install[^`\n]*?['\" ]([\w./-]*)\[([a-z0-9,]+)\]")


def test_without_optional_libraries_modules_calls_and_commands_name_their_extra():
    run_python(
        "import runpy, sys\nsys.argv[1:] = sys.argv[2:]\nrunpy.run_path(sys.orig_argv[3], run_name='__main__')",
        ROOT / "tests" / "project" / "imports.py",
        "--hide",
    )


def test_extras_are_installed_from_the_project_folder():
    """The package is not on PyPI yet, where another project could take its name."""
    commands = [(file, *match) for file in [*DOCUMENTS, *FILES] for match in INSTALLED.findall(file.read_text())]
    assert len(commands) > 50
    assert [(file, source) for file, source, _ in commands if source != "."] == []
    assert [(file, extras) for file, _, extras in commands if not set(extras.split(",")) <= set(EXTRAS)] == []


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake: pip install cmake")
def test_without_a_compiler_an_error_says_what_to_install(tmp_path):
    done = subprocess.run(
        ["cmake", "-S", ROOT, "-B", tmp_path],
        env=os.environ | {"CXX": "no-such-compiler"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "headspan needs a C++ compiler and found none. Install one first" in " ".join(done.stderr.split())
