"""``python -m headspan``, the same as ``headspan``."""

import os
import sys

if __name__ == "__main__":
    # By now the package is loaded, and with it NumPy: too late for what the command sets first. So Python is started
    # again as it was, with the name of the command's own module in the place of this one.
    place = len(sys.orig_argv) - len(sys.argv)
    before, name, after = sys.orig_argv[1:place], sys.orig_argv[place], sys.orig_argv[place + 1 :]
    os.execv(sys.executable, [sys.executable, *before, name.removesuffix("headspan") + "headspan_command", *after])
