"""Which instructions the compiled module holds, and where.

One function compiled for a new instruction set and merged by the linker into shared code ends
an older machine's process, and nothing but the machine code shows it.
"""

import re
import shutil
import subprocess
from collections import defaultdict

import headspan as hs
import pytest
from headspan import _core
from helpers import is_x86

# Which namespaces of headspan may use which registers.
MAY_USE = {"zmm": {"avx512"}, "ymm": {"avx2", "avx512"}, "mask": {"avx512"}}
REGISTERS = {"zmm": r"%zmm\d", "ymm": r"%ymm\d", "mask": r"%k[0-7]\b"}
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
# The name itself, not a template argument: at the start or after the return type.
NAMESPACE = re.compile(r"(?:^|[ *&])headspan::(?:\(anonymous namespace\)::)?(\w+)::")

pytestmark = [
    pytest.mark.unsanitized,
    pytest.mark.skipif(not is_x86(), reason="registers of x86"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed"),
]


@pytest.fixture(scope="module")
def users():
    """For each kind of register, the functions that use it."""
    text = subprocess.run(
        ["objdump", "-d", "--demangle", "--no-show-raw-insn", _core.__file__],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    patterns = {kind: re.compile(pattern) for kind, pattern in REGISTERS.items()}
    functions, function = defaultdict(set), ""
    for line in text.splitlines():
        label = FUNCTION.match(line)
        if label:
            function = label[1]
        elif "%" in line:
            for kind, pattern in patterns.items():
                if pattern.search(line):
                    functions[kind].add(function)
    return functions


@pytest.mark.parametrize("kind", MAY_USE)
def test_wide_registers_stay_in_their_namespace(users, kind):
    strays = set()
    for function in users[kind]:
        namespace = NAMESPACE.search(function)
        if namespace is None or namespace[1] not in MAY_USE[kind]:
            strays.add(function)
    assert not strays


def test_wide_registers_are_used_where_the_build_says_so(users):
    """Otherwise the test above could not fail: names are stripped or nothing is vectorised."""
    spaces = {kind: {m[1] for m in map(NAMESPACE.search, functions) if m} for kind, functions in users.items()}
    for isa, kind in (("avx512", "zmm"), ("avx2", "ymm")):
        if isa in hs.build_info()["isas"]:
            assert isa in spaces.get(kind, set()), f"{isa} does not use {kind}"
