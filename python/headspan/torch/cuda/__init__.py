"""Attention on CUDA devices: the operator of `headspan.torch.operator` as kernels of Triton.

`arguments` checks a call and converts it, `ranges` makes one range of keys for each query of patterns, padding and
segments, `tiles` holds what the kernels share, and `launch` runs the kernels of `forward` and `backward`.
"""

try:
    import triton as _triton  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "attention on a GPU needs Triton, which PyTorch for CUDA brings: pip install triton", name=error.name
    ) from error
