"""The table of all cases."""

from __future__ import annotations

from typing import Any

from benchmarks.cases.case import BACKWARD, BOTH, FORWARD, Case

GROUPS = {
    "span": "Spans: 8 heads, 2048 tokens, head_dim 64, float32, causal, ramp 32",
    "kind": "Other kinds: as above except for what the name says (one-head: 4096 tokens; 16384 tokens: 2 heads)",
    "length": "Lengths at span 256: 4 heads, head_dim 64, float32, causal, ramp 32",
    "head-dim": "Head dimensions: 8 heads, 2048 tokens, float32, causal, full span",
    "tiny": "Many small problems: batch 64, 8 heads, head_dim 64, float32, causal, full span",
    "decode": "Decoding: 1 or 16 queries against many keys, 8 heads (1 head at 1M keys), head_dim 64, float32, causal",
    "pattern": "Patterns: 4 heads, 8192 tokens (neighborhood: 64 x 64), head_dim 64, float32, not causal",
    "hybrid": "Hybrid layer: 256 channels in 4 heads, float32, not causal, max_span 256, ramp 32",
    "call": "A call that computes next to nothing: 1 head, 16 tokens, head_dim 16, one thread",
}


_SPANS_OF_HEADS = (8, 8, 8, 16, 16, 32, 64, 1000)


def _length(name: str, tokens: int, **others: Any) -> Case:
    return Case(f"length-{name}", "length", heads=4, queries=tokens, keys=tokens, span=256, **others)


def _decode(queries: int, name: str, keys: int, **others: Any) -> Case:
    return Case(f"decode-{queries}x{name}", "decode", queries=queries, keys=keys, passes=(FORWARD,), **others)


def _pattern(name: str, at_most: float | None, tokens: int = 8192, **others: Any) -> Case:
    sizes: dict[str, Any] = {"heads": 4, "queries": tokens, "keys": tokens, "causal": False, **others}
    return Case(name, "pattern", **sizes, pattern=name, at_most=at_most, passes=(FORWARD, BACKWARD, BOTH))


def _hybrid(tokens: int) -> Case:
    return Case(f"hybrid-{tokens}", "hybrid", heads=4, queries=tokens, keys=tokens, causal=False, max_span=256)


CASES = (
    Case("span-full", "span", quick=True),
    Case("span-1000", "span", span=1000),
    Case("span-256", "span", span=256, quick=True),
    Case("span-64", "span", span=64),
    Case("span-heads", "span", span=1000, head_spans=_SPANS_OF_HEADS, no_reshape="spans that differ by head"),
    Case("span-dynamic", "span", span=(0, 512), no_reshape="spans that differ by token", quick=True),
    Case("not-causal", "kind", causal=False),
    Case("float64", "kind", dtype="float64", quick=True),
    Case("one-head", "kind", heads=1, queries=4096, keys=4096),
    Case("tokens-16384", "kind", heads=2, queries=16384, keys=16384),
    *(_length(f"{2**k}k", 1024 * 2**k) for k in range(7)),
    _length("1M", 2**20),
    *(Case(f"head-dim-{d}", "head-dim", head_dim=d) for d in (32, 64, 80, 96, 128, 256)),
    *(Case(f"tiny-{n}", "tiny", batch=64, queries=n, keys=n, quick=n == 64) for n in (32, 64, 128)),
    _decode(1, "4k", 4096),
    _decode(16, "4k", 4096),
    _decode(1, "64k", 65536, quick=True),
    _decode(16, "64k", 65536),
    _decode(1, "1M", 2**20, heads=1),
    _decode(16, "1M", 2**20, heads=1),
    _pattern("local", 1.6),
    _pattern("strided-32", 1.4),
    _pattern("strided-128", 2.0),
    _pattern("blockwise-256", 1.25),
    _pattern("longformer", 1.5),
    _pattern("mixed", None, no_reshape="a window, a stride and global tokens in one softmax"),
    _pattern("blocks-25", 1.2),
    _pattern("neighborhood-7", 3.5, 64 * 64),
    *(_hybrid(2**k) for k in range(9, 14)),
    Case("call", "call", heads=1, queries=16, keys=16, head_dim=16, threads=1, quick=True),
)
