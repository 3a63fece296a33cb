"""The program ``headspan``: prepare the process before the package is loaded, then run the command line.

This package is separate from `headspan` because importing any part of `headspan` loads all of it in 1 to 2 seconds.
"""

import os
import signal
from types import FrameType

__all__ = ["main"]

# With these settings, OpenBLAS starts no threads and idle threads of OpenMP sleep, so that they do not spin and compete
# for cores. On two shared cores a training step then takes half the time, and matrix products do not depend on the
# number of cores. Both libraries read their settings when they are loaded.
QUIET_WAITING = {"OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def main() -> int:
    """Run the command line of this process and return its exit code."""
    for name, value in QUIET_WAITING.items():
        os.environ.setdefault(name, value)
    previous_handler = signal.signal(signal.SIGINT, _leave)
    from headspan.lab import cli

    return cli.main(loaded=lambda: signal.signal(signal.SIGINT, previous_handler))


def _leave(number: int, frame: FrameType | None) -> None:
    # There is nothing to clean up yet. An exception would be raised in the middle of an import, where NumPy and
    # matplotlib would report it as a broken installation.
    os.write(2, b"headspan: error: interrupted\n")
    os._exit(130)
