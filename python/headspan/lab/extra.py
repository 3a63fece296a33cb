"""The optional dependencies of the demo. Importing this module raises an error that names the first missing one."""

from importlib.util import find_spec

for _name in ("autograd", "tqdm", "filelock", "matplotlib"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(f"headspan.lab needs {_name}: pip install 'headspan[demo]'", name=_name)
