"""Decoding with a cache per head compared with a complete cache: ``python -m benchmarks.studies.heads``.

A model of transformers with 8 layers of 8 heads, one with a span of 1000 and seven with 32, generates a token: with
`headspan.torch.head_cache`; with torch's `scaled_dot_product_attention` and a preallocated `StaticCache`; and with
almost no context, which gives the time of the rest of the model. All take turns, and each result is the median over the
rounds. The caches hold random keys and values, since their origin does not affect the time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import headspan as hs
import headspan.torch
import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

from benchmarks.measure.memory import resident
from benchmarks.output.saved import add_json_option, write_study

LAYERS, HEADS, HEAD_DIM = 8, 8, 64
SPANS, RAMP = [1000.0] + [32.0] * 7, 32.0
CONTEXTS = (8192, 32768)
PIECE = 1024  # number of tokens that are added to a cache at a time


def models() -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
    """Return the same model with and without spans."""
    pair = []
    for implementation in ("headspan", "sdpa"):
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=1000,
            hidden_size=HEADS * HEAD_DIM,
            intermediate_size=1408,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            max_position_embeddings=2 * max(CONTEXTS),
            attn_implementation=implementation,
        )
        pair.append(LlamaForCausalLM(config).eval())
    headspan.torch.set_spans(pair[0], [SPANS] * LAYERS, ramp=RAMP)
    return pair[0], pair[1]


def fill(cache: Any, tokens: int) -> int:
    """Add random keys and values, and return the growth of the process in bytes."""
    before = resident()
    query = torch.zeros(1, HEADS, 1, HEAD_DIM)
    for layer in cache.layers:
        for first in range(0, tokens, PIECE):
            layer.update(*torch.randn(2, 1, HEADS, min(PIECE, tokens - first), HEAD_DIM))
            if hasattr(layer, "attend"):  # a layer of a head_cache stores them in the next call of attend
                layer.attend(query)
    return resident() - before


def token_time(model: LlamaForCausalLM, cache: Any) -> float:
    """Return the seconds for the next token."""
    token = torch.tensor([[7]])
    start = time.perf_counter()
    model(input_ids=token, cache=cache)
    return time.perf_counter() - start


def measure(context: int, rounds: int) -> dict[str, dict[str, float]]:
    """Print and return the results for one length."""
    with_spans, plain = models()
    caches = {
        "head_cache": (with_spans, headspan.torch.head_cache(with_spans)),
        "sdpa, static": (plain, StaticCache(config=plain.config, max_cache_len=context + rounds + 1)),
        "no context": (with_spans, headspan.torch.head_cache(with_spans)),
    }
    fill(headspan.torch.head_cache(with_spans), PIECE)  # so that one-time allocations are not counted below
    growth = {name: fill(cache, 1 if name == "no context" else context) for name, (_, cache) in caches.items()}
    times: dict[str, list[float]] = {name: [] for name in caches}
    for _ in range(rounds + 1):
        for name, (model, cache) in caches.items():
            times[name].append(token_time(model, cache))
    plain_seconds = times["sdpa, static"][1:]  # the first round warms up
    head_layers, static_layers = (caches[name][1].layers for name in ("head_cache", "sdpa, static"))
    sizes = {
        "head_cache": sum(layer.nbytes for layer in head_layers),
        "sdpa, static": sum(layer.keys.nbytes + layer.values.nbytes for layer in static_layers),
    }
    cost = hs.cost(tokens=context, num_heads=HEADS, head_dim=HEAD_DIM, span=SPANS, ramp=RAMP, decode=True)
    print(f"\n{context} tokens; the reaches of the heads come to {LAYERS * (cost.cache_bytes or 0) / 2**20:.1f} MiB")
    print(f"{'':14}{'ms a token':>12}{'faster than sdpa':>18}{'cache, MiB':>12}{'process, MiB':>14}")
    milliseconds = {name: statistics.median(seconds[1:]) * 1e3 for name, seconds in times.items()}
    for name, seconds in times.items():
        ratio = statistics.median(p / t for p, t in zip(plain_seconds, seconds[1:], strict=True))
        print(f"{name:14}{milliseconds[name]:12.2f}{ratio:17.2f}x", end="")
        print(f"{sizes[name] / 2**20:12.1f}{growth[name] / 2**20:14.1f}" if name in sizes else "")
    cache = {name: size / 2**20 for name, size in sizes.items()}
    return {"milliseconds a token": milliseconds, "cache, mebibytes": cache}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.heads", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS)
    add_json_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(hs.get_num_threads())
    headspan.torch.register()
    with torch.no_grad():
        contexts = {context: measure(context, options.rounds) for context in options.contexts}
    write_study(options.json, {"rounds": options.rounds, "contexts": contexts})


if __name__ == "__main__":
    main()
