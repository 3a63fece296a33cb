"""The smallest spans for a model of PyTorch that is already trained."""

from headspan.torch.fitting.fit import fit_spans

__all__ = ["fit_spans"]
