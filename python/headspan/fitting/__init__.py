"""A search for the smallest spans of a trained model, guided by its measured loss."""

from headspan.fitting.fit import fit_spans
from headspan.fitting.model_spans import ModelSpans
from headspan.fitting.result import SpanFit, Window
from headspan.fitting.search.descent import DescentState
from headspan.fitting.search.measured import Point

__all__ = ["DescentState", "ModelSpans", "Point", "SpanFit", "Window", "fit_spans"]
