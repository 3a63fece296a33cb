"""Settings of every run, and a stop when a forced instruction set is not the one that runs."""

import os
import sys
from pathlib import Path

# Two pools of threads that spin on few cores get in each other's way: the oracle's many small
# products are three times as fast on one. To be set before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest

# What fails in a helper shows its values, as it does in a test.
SUPPORT = Path(__file__).parent / "support"
pytest.register_assert_rewrite(
    *(".".join(path.relative_to(SUPPORT).with_suffix("").parts) for path in SUPPORT.rglob("*.py"))
)


@pytest.fixture(autouse=True)
def _no_picture_left_open():
    """Close what a test has drawn: examples in docstrings leave theirs, and matplotlib warns of more than 20."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def pytest_configure(config):
    forced = os.environ.get("HEADSPAN_ISA")
    if not forced:
        return
    from headspan import _core

    if _core.isa() != forced:
        raise pytest.UsageError(f"HEADSPAN_ISA is {forced!r} but {_core.isa()!r} runs")
