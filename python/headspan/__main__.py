"""``python -m headspan``, the same as ``headspan``."""

import os
import sys

if __name__ == "__main__":
    # The command sets environment variables that NumPy reads when it is loaded, and importing this package has already
    # loaded NumPy. Therefore Python is started again with the same options and the command's own module.
    place = len(sys.orig_argv) - len(sys.argv)
    before, name, after = sys.orig_argv[1:place], sys.orig_argv[place], sys.orig_argv[place + 1 :]
    os.execv(sys.executable, [sys.executable, *before, name.removesuffix("headspan") + "headspan_command", *after])
