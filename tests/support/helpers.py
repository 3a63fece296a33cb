"""Small things several test files need: fresh interpreters and a tiny compiled library."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parent.parent


def run_python(code, *arguments, timeout=120, **environment):
    """Runs code in a fresh interpreter that can import what stands here; returns what it printed."""
    path = os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# All documents. Tests run their examples and check their links and the files that they name.
DOCUMENTS = sorted([*ROOT.glob("*.md"), ROOT / "experiments" / "README.md", *(ROOT / "docs").rglob("*.md")])
# How to see that a block of code needs a large package, which is not in the extra `test`.
HEAVY = {
    "jax": r"import jax|@jax\.|= jax\.",
    "torch": r"import torch|headspan\.torch",
    "transformers": r"from transformers import",
}


def needs(text, framework):
    return re.search(HEAVY[framework], text) is not None


def examples(document):
    """The blocks of Python in a document as a reader types them, without those that need a missing package."""
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    missing = [framework for framework in HEAVY if importlib.util.find_spec(framework) is None]
    return "\n".join(textwrap.dedent(b) for b in blocks if not any(needs(b, framework) for framework in missing))


def train_as_told(document):
    """Run the trainings of a document in the working folder, with two steps each."""
    Path("book.txt").write_text("How far does this text look back? " * 60)
    for line in re.findall(r"^\S*headspan (train .*)$", document.read_text(), flags=re.MULTILINE):
        short = re.sub(r"--steps \d+", "--steps 2", line)
        run_python(f"import sys, headspan_command\nsys.argv[1:] = {short.split()}\nheadspan_command.main()")


def compile_library(source, path, *options):
    """A shared library of a few lines of C++; the compiler that builds the package builds it."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    text = path.with_suffix(".cpp")
    text.write_text(source)
    command = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", *options]
    command += [str(text), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return path


def is_x86():
    return sysconfig.get_platform().endswith(("x86_64", "amd64"))
