"""Load the compiled module and OpenMP so that OpenMP's threads do not occupy the cores between two calls."""

import os

# GNU OpenMP reads this variable once, when it is loaded. With its default, idle threads spin for milliseconds after a
# call and take the cores away from NumPy's threads. The variable is restored after the import.
_NAME = "OMP_WAIT_POLICY"
_previous = os.environ.get(_NAME)
os.environ.setdefault(_NAME, "PASSIVE")
try:
    from headspan._core import __version__
finally:
    if _previous is None:
        del os.environ[_NAME]

__all__ = ["__version__"]
