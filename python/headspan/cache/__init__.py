"""A cache of keys and values for generation that keeps as many tokens as the spans reach."""

from headspan.cache.span_cache import SpanCache

__all__ = ["SpanCache"]
