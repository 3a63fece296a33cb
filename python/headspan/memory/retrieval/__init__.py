"""Retrieval of keys beyond the window: an index over keys, and attention to the keys that it finds."""
