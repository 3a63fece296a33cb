"""The definition of attention in plain NumPy, see `headspan.ops.reference`."""

from headspan.ops.reference import attention

__all__ = ["attention"]
