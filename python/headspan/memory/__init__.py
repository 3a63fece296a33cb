"""Keys and values beyond the context: stores on disk, an index that retrieves keys, and streams in fixed memory."""

from typing import TYPE_CHECKING, Any

from headspan.memory.retrieval.attention import retrieval_attention, retrieval_attention_vjp
from headspan.memory.retrieval.key_index import KeyIndex
from headspan.memory.streaming.streaming_attention import StreamingAttention

if TYPE_CHECKING:
    from headspan.memory.store import KeyValueStore

__all__ = ["KeyIndex", "KeyValueStore", "StreamingAttention", "retrieval_attention", "retrieval_attention_vjp"]


def __getattr__(name: str) -> Any:
    """Import the store on first use, since it needs the extra ``[store]``."""
    if name == "KeyValueStore":
        from headspan.memory.store import KeyValueStore

        return KeyValueStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
