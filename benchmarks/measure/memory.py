"""Peak memory of one contender, measured in a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.cases import Case, make_inputs
from benchmarks.contenders import OWN, PEERS, use_threads

_TIMEOUT = 600
_TINY = 16


def peak_growth(case: Case, passes: str, contender: str, threads: int) -> int | None:
    """Bytes by which a call outgrows its inputs: results, scratch, and masks made before.

    Measured in a fresh process, so that nobody's peak hides another's. None where it cannot be measured.
    """
    if not Path("/proc/self/clear_refs").exists():
        return None
    order = json.dumps({"case": asdict(case), "passes": passes, "contender": contender, "threads": threads})
    root = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.measure.memory", order],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=True,
        )
        return int(done.stdout.split()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError):
        return None


def status(field: str) -> int:
    """Bytes of a field of the kernel's account of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/self/status has no {field}")


def resident() -> int:
    """Bytes that this process has in memory, but for what malloc keeps for later."""
    _trim()
    return status("VmRSS")


def _trim() -> None:
    """Give back what malloc keeps: memory that is free already would hide what the call takes."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # another C library than GNU's has none
        ctypes.CDLL(None).malloc_trim(0)


def _measure(case: Case, passes: str, name: str, threads: int) -> int:
    contender = next(c for c in (*OWN, *PEERS) if c.name == name)
    inputs = make_inputs(case, passes)
    tiny = replace(case, queries=min(case.queries, _TINY), keys=min(case.keys, _TINY), batch=1, heads=1)
    contender.prepare(tiny, passes, make_inputs(tiny, passes)).call()
    prepared = contender.prepare(case, passes, inputs)
    use_threads(threads)
    if contender.compiled:
        prepared.call()  # the compiler's memory is not the call's
    _trim()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to what is resident now
    prepared.call()
    return max(0, status("VmHWM") - before) + prepared.held


if __name__ == "__main__":
    _order = json.loads(sys.argv[1])
    print(_measure(Case(**_order["case"]), _order["passes"], _order["contender"], _order["threads"]))
