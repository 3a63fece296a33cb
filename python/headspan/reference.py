"""Reference implementation of attention in NumPy, see `headspan.ops.reference`."""

from headspan.ops.reference import attention

__all__ = ["attention"]
