"""Attention with the signature of flex_attention of PyTorch, on the CPU and with gradients."""

from headspan.torch.flex.attend import flex_attention

__all__ = ["flex_attention"]
