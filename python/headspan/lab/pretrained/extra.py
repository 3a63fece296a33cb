"""The optional dependencies of this folder. Importing this module raises an error that names the first missing one."""

from importlib.util import find_spec

from headspan import _extra

for _name in ("torch", "transformers"):
    if find_spec(_name) is None:
        raise _extra.missing("a trained model", "transformers and PyTorch", "pretrained", _name)
