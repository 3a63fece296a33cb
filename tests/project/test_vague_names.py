"""The check of names, which `nox -s lint` runs, finds vague names and no others."""

import subprocess
import sys

import pytest
from helpers import ROOT

PYTHON = '''
class Whole:
    """The whole, its own words."""

def given_rows(own, *, rows):
    its: int = own
    for found, row in rows:
        row.own_name = lambda there: row.its
    print(f"{its}")  # the whole text
'''
CPP = """
// its own line
int ownership = 1'000;
const char* whole_text = "there it's";
/* found
   beside */ int own;
"""
JAVASCRIPT = """
const text = `the whole ${wholeText} of "its" row`; // given
function some({ own, rows }) { return 'it\\'s there'; }
"""


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("a.py", PYTHON, ["2: Whole", "5: given_rows", "5: own", "6: its", "7: found", "8: own_name", "8: there"]),
        ("a.cpp", CPP, ["4: whole_text", "6: own"]),
        ("a.js", JAVASCRIPT, ["2: wholeText", "3: own"]),
    ],
)
def test_vague_names_are_found(tmp_path, name, code, expected):
    (tmp_path / name).write_text(code)
    command = [sys.executable, ROOT / "tests" / "project" / "vague_names.py", tmp_path]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.stdout.splitlines() == [f"{tmp_path / name}:{line}" for line in expected]
    assert run.returncode == 1


def test_clear_names_pass(tmp_path):
    (tmp_path / "a.py").write_text("foundation = ownership = 1\n")
    run = subprocess.run([sys.executable, ROOT / "tests" / "project" / "vague_names.py", tmp_path], capture_output=True)
    assert (run.returncode, run.stdout) == (0, b"")
