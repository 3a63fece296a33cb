"""headspan in transformers: the attention of its models, by the name "headspan"."""

from headspan.torch.transformers.recording import Recorded, Recording, record
from headspan.torch.transformers.register import register
from headspan.torch.transformers.spans import set_spans

__all__ = ["Recorded", "Recording", "record", "register", "set_spans"]
