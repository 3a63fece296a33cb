"""Caches of keys and values for texts that are continued, as long as each head can see."""

from headspan.cache.span_cache import SpanCache

__all__ = ["SpanCache"]
