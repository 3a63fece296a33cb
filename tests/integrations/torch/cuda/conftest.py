"""A device that runs the kernels of Triton: a GPU, or the CPU by Triton's interpreter, or a skip without either."""

import importlib.util
import os
import warnings

import pytest

# Without PyTorch and Triton there is nothing to test: nox -s cuda has both.
MISSING = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
collect_ignore_glob = ["test_*.py"] if MISSING else []
if not MISSING:
    import torch

    HAS_GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.fixture
def device(monkeypatch):
    """Return the device. In the interpreter, the operator of CPU tensors is replaced by the kernels."""
    if HAS_GPU:
        yield torch.device("cuda")
        return
    if not INTERPRETED:
        pytest.skip("needs a GPU or Triton's interpreter: nox -s cuda")
    from headspan.torch import operator
    from headspan.torch.cuda import launch

    kernels = {operator.attention: launch.forward, operator.attention_backward: launch.backward}
    monkeypatch.setattr(operator, "_KERNELS", kernels)
    library = torch.library.Library("headspan", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a kernel that replaces another
        for op, kernel in kernels.items():
            library.impl(op, kernel, "CPU", allow_override=True)
    yield torch.device("cpu")
    library._destroy()


@pytest.fixture
def gpu(device):
    """Return the device if it is a GPU."""
    if device.type != "cuda":
        pytest.skip("needs a GPU")
    return device
