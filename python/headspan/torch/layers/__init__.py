"""PyTorch layers with learned spans, and the conversion of existing models."""

from headspan.torch.layers.adaptive import AdaptiveSpanAttention, TransformerBlock
from headspan.torch.layers.convert import convert
from headspan.torch.layers.gates import LearnedBlocks
from headspan.torch.layers.groups import parameter_groups
from headspan.torch.layers.hybrid import HybridAttention, SpanPredictor
from headspan.torch.layers.spans import AdaptiveSpan, DynamicSpan

__all__ = [
    "AdaptiveSpan",
    "AdaptiveSpanAttention",
    "DynamicSpan",
    "HybridAttention",
    "LearnedBlocks",
    "SpanPredictor",
    "TransformerBlock",
    "convert",
    "parameter_groups",
]
