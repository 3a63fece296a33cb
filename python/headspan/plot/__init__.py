"""Pictures of what heads learned, with matplotlib: ``pip install 'headspan[plot]'``.

Every function takes arrays, draws into ``ax`` or, without one, into a new pyplot figure, changes no setting of
matplotlib, shows nothing by itself, and returns the axes (or, with several panels, the figure).

=====================  ==============================================================
`soft_mask`            what the soft mask does, and what span and ramp change
`spans`                how far every head looks
`span_history`         how the spans got there
`distance_profile`     where a head puts its weight
`attention_map`        which token looks where
`dynamic_spans`        how the span moves along a text
`pattern`              what a pattern allows, and what that costs
`block_gates`          which blocks a learned pattern has left, and how they got there
`hierarchy`            how coarsely hierarchical attention sees what lies behind
`kept_tokens`          which tokens of a stream stay in fixed memory
`limit_sweep`          what a larger limit of the span buys
`span_fit`             what spans fitted to a trained model lose, beside one span for all
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
