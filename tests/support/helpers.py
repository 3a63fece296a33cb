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


USES_TORCH = re.compile(r"import torch|headspan\.torch")


def examples(document):
    """The blocks of Python in a document, one after another, as a reader would type them, as far as torch is there."""
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    torch = importlib.util.find_spec("torch")
    return "\n".join(textwrap.dedent(block) for block in blocks if torch or not USES_TORCH.search(block))


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
