"""The optional dependencies of the demo. Importing this module raises an error that names the first missing one."""

from importlib.util import find_spec

from headspan import _extra

for _name in ("autograd", "tqdm", "filelock", "matplotlib"):
    if find_spec(_name) is None:
        raise _extra.missing("headspan.lab", _name, "demo", _name)
