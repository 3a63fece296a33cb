"""Recording of the attention of a model's layers, and what the interactive view needs of it."""

from headspan.torch.transformers.recording.record import (
    are_weights_collected,
    follow_outputs,
    is_recorded,
    note,
    record,
)
from headspan.torch.transformers.recording.recorded import Recorded, Recording

__all__ = ["Recorded", "Recording", "are_weights_collected", "follow_outputs", "is_recorded", "note", "record"]
