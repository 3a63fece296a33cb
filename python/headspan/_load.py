"""Load the compiled module, and with it OpenMP, in a way that leaves the cores to others between two calls."""

import os

# GNU's OpenMP reads this once, when it is loaded. Its idle threads would otherwise spin for milliseconds after a call
# and take their cores away from NumPy's threads. The environment is left as it was.
_NAME = "OMP_WAIT_POLICY"
_given = os.environ.get(_NAME)
os.environ.setdefault(_NAME, "PASSIVE")
try:
    from headspan._core import __version__
finally:
    if _given is None:
        del os.environ[_NAME]

__all__ = ["__version__"]
