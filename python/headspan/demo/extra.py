"""What the demo needs besides NumPy. To import this module raises an error that names the first missing library."""

from importlib.util import find_spec

for _name in ("autograd", "tqdm", "filelock", "matplotlib"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(f"headspan.demo needs {_name}: pip install 'headspan[demo]'", name=_name)
