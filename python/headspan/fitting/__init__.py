"""The smallest spans for a model that is already trained, found by its measured loss."""

from headspan.fitting.fit import fit_spans
from headspan.fitting.result import Point, SpanFit, Window

__all__ = ["Point", "SpanFit", "Window", "fit_spans"]
