"""Attention over several machines, on torch's own engine."""

from headspan.torch.distributed.halo import halo_attention

__all__ = ["halo_attention"]
