"""The program ``headspan``: what must come before the package is loaded, and then its command line.

It stands beside the package, since whatever is imported from within loads all of it, for a second or two.
"""

import os
import signal
from types import FrameType

__all__ = ["main"]

# What OpenBLAS and OpenMP do with cores they do not need: nothing, instead of waiting in a loop in
# each other's way. On two shared cores that makes a step twice as fast, and products of matrices
# do not depend on the number of cores. Both read their settings when they are loaded.
QUIET_WAITING = {"OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def main() -> int:
    """Run the command of the process's arguments and return its exit code."""
    for name, value in QUIET_WAITING.items():
        os.environ.setdefault(name, value)
    raising = signal.signal(signal.SIGINT, _leave)
    from headspan.demo import cli

    return cli.main(loaded=lambda: signal.signal(signal.SIGINT, raising))


def _leave(number: int, frame: FrameType | None) -> None:
    # Nothing has been begun that would have to be ended. An exception would come up in the middle of
    # an import, where NumPy and matplotlib take it for a broken installation.
    os.write(2, b"headspan: error: interrupted\n")
    os._exit(130)
