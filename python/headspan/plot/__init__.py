"""Plots of learned attention, with matplotlib (the extra ``plot``).

Every function takes arrays and draws into ``ax`` or, by default, into a new pyplot figure. It returns the axes or, with
several panels, the figure. No function shows the figure or changes a setting of matplotlib.

=====================  ==============================================================
`soft_mask`            the soft mask against the distance
`spans`                the span of every head
`span_history`         the spans during training
`distance_profile`     the mean weight at every distance
`attention_map`        the weight of every pair of tokens
`dynamic_spans`        the span along a text
`pattern`              the pairs that a pattern allows, and their cost
`block_gates`          the open and closed blocks of a learned pattern
`hierarchy`            the resolution of hierarchical attention at every distance
`kept_tokens`          the tokens that a stream keeps in fixed memory
`limit_sweep`          the effect of a larger span limit
`span_fit`             the loss of fitted spans, compared with one span for all heads
=====================  ==============================================================
"""

from headspan.plot._blocks import block_gates, hierarchy
from headspan.plot._fit import span_fit
from headspan.plot._kept import kept_tokens
from headspan.plot._pattern import pattern
from headspan.plot._spans import dynamic_spans, soft_mask, span_history, spans
from headspan.plot._sweep import limit_sweep
from headspan.plot.maps import attention_map, distance_profile, mean_by_distance

__all__ = [
    "attention_map",
    "block_gates",
    "distance_profile",
    "dynamic_spans",
    "hierarchy",
    "kept_tokens",
    "limit_sweep",
    "mean_by_distance",
    "pattern",
    "soft_mask",
    "span_fit",
    "span_history",
    "spans",
]
