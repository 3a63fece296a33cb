"""Caches of keys and values for texts that are continued, as long as each head can see or in fixed memory."""

from headspan.cache.span_cache import SpanCache
from headspan.cache.streaming_attention import StreamingAttention

__all__ = ["SpanCache", "StreamingAttention"]
