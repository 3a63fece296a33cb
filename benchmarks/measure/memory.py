"""Peak memory of one contender, measured in a separate process."""

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
from benchmarks.contenders import HEADSPAN_CONTENDERS, PEERS, use_threads

_TIMEOUT = 600
_TINY = 16


def peak_growth(case: Case, passes: str, contender: str, threads: int) -> int | None:
    """Return the bytes that a call needs in addition to its inputs: results, scratch, and masks made before.

    A new process measures them, so that earlier peaks do not hide this one. None if they cannot be measured.
    """
    if not Path("/proc/self/clear_refs").exists():
        return None
    request = json.dumps({"case": asdict(case), "passes": passes, "contender": contender, "threads": threads})
    root = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.measure.memory", request],
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
    """Return a field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/self/status has no {field}")


def resident() -> int:
    """Return the resident memory of this process in bytes, without the memory that malloc holds free."""
    _trim()
    return status("VmRSS")


def _trim() -> None:
    """Return free memory from malloc to the system, since a call that reuses it would seem to need less."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # only the GNU C library has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def _measure(case: Case, passes: str, name: str, threads: int) -> int:
    contender = next(c for c in (*HEADSPAN_CONTENDERS, *PEERS) if c.name == name)
    inputs = make_inputs(case, passes)
    tiny = replace(case, queries=min(case.queries, _TINY), keys=min(case.keys, _TINY), batch=1, heads=1)
    contender.prepare(tiny, passes, make_inputs(tiny, passes)).call()
    prepared = contender.prepare(case, passes, inputs)
    use_threads(threads)
    if contender.compiled:
        prepared.call()  # the memory of the compiler does not belong to the call
    _trim()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM to the resident memory
    prepared.call()
    return max(0, status("VmHWM") - before) + prepared.held


if __name__ == "__main__":
    _request = json.loads(sys.argv[1])
    print(_measure(Case(**_request["case"]), _request["passes"], _request["contender"], _request["threads"]))
