"""Fitting of the smallest spans to a trained PyTorch model."""

from headspan.torch.fitting.fit import fit_spans

__all__ = ["fit_spans"]
