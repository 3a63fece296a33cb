"""Keys and values on disk, in LMDB, for stores that do not fit into memory."""

from headspan.memory.store.key_value_store import KeyValueStore

__all__ = ["KeyValueStore"]
