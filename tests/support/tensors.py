"""Arguments of an attention as tensors. Who imports this is skipped where torch is not installed."""

import contextlib
import warnings

import numpy as np
import pytest
from headspan.ops.arguments.options import DIFFERENTIABLE
from option_cases import ARRAYS

torch = pytest.importorskip("torch", reason="needs torch: nox -s peers")


def as_tensors(arguments, needs=(*ARRAYS, *DIFFERENTIABLE)):
    """Arrays as tensors of their own, those that are named with a gradient; other arguments as they are."""
    return {
        name: torch.tensor(x, requires_grad=name in needs) if isinstance(x, np.ndarray) else x
        for name, x in arguments.items()
    }


def same(tensor, array):
    """To the bit, and in type and shape."""
    array = np.asarray(array)
    its = tensor.detach().contiguous().numpy()
    return its.dtype == array.dtype and its.shape == array.shape and its.tobytes() == array.tobytes()


def qkv(*shape, dtype=torch.float64, grad=True):
    """Random ones of one shape."""
    torch.manual_seed(0)
    return [torch.randn(shape or (2, 4, 9, 3), dtype=dtype, requires_grad=grad) for _ in range(3)]


@contextlib.contextmanager
def warnings_of_torch():
    """What torch warns of itself about while it compiles and exports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
