"""Settings of every run and of its workers, and a stop when a forced instruction set is not the one that runs."""

import os
import sys
from pathlib import Path

# Two pools of threads that spin on few cores get in each other's way: the oracle's many small
# products are three times as fast on one. To be set before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Workers of pytest-xdist share the processors. Each keeps two threads, without which nothing would be divided.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "2")

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


@pytest.fixture(autouse=True, scope="session")
def _empty_cache_of_the_compiler(tmp_path_factory):
    """Give `torch.compile` a directory of its own.

    The compiler keeps its code between runs and does not look at the schema of our operator: code that was compiled
    before an option was renamed calls the operator with the old name.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers():
    """The workers of `-n auto`: as many as processors, but each collects all tests and more than four save no time."""
    return min(os.cpu_count() or 1, 4)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    """List each reason for skipped tests once, with their number, where `-ra` would have a line for each test."""
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (str(Path(__file__).parent), None, report.longrepr[2])


pytest_collectreport = pytest_runtest_logreport


def pytest_configure(config):
    forced = os.environ.get("HEADSPAN_ISA")
    if not forced:
        return
    from headspan import _core

    if _core.isa() != forced:
        raise pytest.UsageError(f"HEADSPAN_ISA is {forced!r} but {_core.isa()!r} runs")
