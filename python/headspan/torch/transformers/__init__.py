"""headspan in transformers: the attention of its models, by the name "headspan"."""

from headspan.torch.transformers.recording import record
from headspan.torch.transformers.register import register
from headspan.torch.transformers.spans import set_spans

__all__ = ["record", "register", "set_spans"]
