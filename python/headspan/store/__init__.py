"""Keys and values on disk, for more of them than memory holds, on LMDB."""

from headspan.store.key_value_store import KeyValueStore

__all__ = ["KeyValueStore"]
