"""Attention over several ranks of `torch.distributed`."""

from headspan.torch.distributed.halo import halo_attention

__all__ = ["halo_attention"]
