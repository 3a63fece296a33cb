"""Caches of keys and values for generation: `SpanCache` follows the spans, `StreamingAttention` has fixed memory."""

from headspan.cache.span_cache import SpanCache
from headspan.cache.streaming_attention import StreamingAttention

__all__ = ["SpanCache", "StreamingAttention"]
