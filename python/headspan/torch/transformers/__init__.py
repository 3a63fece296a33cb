"""Integration with transformers: the attention implementation "headspan" for its models."""

from headspan.torch.transformers.cache import head_cache
from headspan.torch.transformers.look import explore
from headspan.torch.transformers.recording import record
from headspan.torch.transformers.register import register
from headspan.torch.transformers.spans import freeze_spans, set_spans

__all__ = ["explore", "freeze_spans", "head_cache", "record", "register", "set_spans"]
