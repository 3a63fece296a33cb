"""Arguments of an attention as tensors. Files that import this are skipped where torch is not installed."""

import contextlib
import re
import warnings

import numpy as np
import pytest
from headspan.ops.arguments.options import DIFFERENTIABLE
from option_cases import ARRAYS

torch = pytest.importorskip("torch", reason="needs torch: nox -s peers")


def as_tensors(arguments, needs=(*ARRAYS, *DIFFERENTIABLE)):
    """Copies of arrays as tensors, of which those in `needs` require a gradient; other arguments as they are."""
    return {
        name: torch.tensor(x, requires_grad=name in needs) if isinstance(x, np.ndarray) else x
        for name, x in arguments.items()
    }


def with_conversions_of_torch(sentence):
    """The sentence of an error about arrays, with the conversion of types that is shown for tensors."""
    return re.sub(r"\.astype\(np\.(\w+)\)", r".to(torch.\1)", sentence)


def same(tensor, array):
    """Whether a tensor and an array have the same bits, type and shape."""
    array = np.asarray(array)
    ours = tensor.detach().contiguous().numpy()
    return ours.dtype == array.dtype and ours.shape == array.shape and ours.tobytes() == array.tobytes()


def qkv(*shape, dtype=torch.float64, grad=True):
    """Random query, key and value of one shape."""
    torch.manual_seed(0)
    return [torch.randn(shape or (2, 4, 9, 3), dtype=dtype, requires_grad=grad) for _ in range(3)]


@contextlib.contextmanager
def warnings_of_torch():
    """Ignore what torch warns of in its code while it compiles and exports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
