"""Continuing a text with a cache of heads, against a whole one: ``python -m benchmarks.studies.heads``.

A model of transformers with 8 layers of 8 heads, one with a span of 1000 and seven with 32, writes a token: with
`headspan.torch.head_cache`; by torch's `scaled_dot_product_attention` with a `StaticCache`, whose memory is there
before; and with hardly any context, which is what the rest of the model takes. All take turns; a figure is the median
of the rounds. The caches are filled with random keys and values, since how these were computed does not matter here.
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

LAYERS, HEADS, HEAD_DIM = 8, 8, 64
SPANS, RAMP = [1000.0] + [32.0] * 7, 32.0
CONTEXTS = (8192, 32768)
PIECE = 1024  # tokens that a cache is filled with at a time


def models() -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
    """Return the same model with spans and without."""
    made = []
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
        made.append(LlamaForCausalLM(config).eval())
    headspan.torch.set_spans(made[0], [SPANS] * LAYERS, ramp=RAMP)
    return made[0], made[1]


def fill(cache: Any, tokens: int) -> int:
    """Add random keys and values, and return by how many bytes the process grew."""
    before = resident()
    query = torch.zeros(1, HEADS, 1, HEAD_DIM)
    for layer in cache.layers:
        for first in range(0, tokens, PIECE):
            layer.update(*torch.randn(2, 1, HEADS, min(PIECE, tokens - first), HEAD_DIM))
            if hasattr(layer, "attend"):  # a layer of a cache of heads takes them when they are attended to
                layer.attend(query)
    return resident() - before


def token_time(model: LlamaForCausalLM, cache: Any) -> float:
    """Return the seconds that the next token takes."""
    token = torch.tensor([[7]])
    start = time.perf_counter()
    model(input_ids=token, cache=cache)
    return time.perf_counter() - start


def measure(context: int, rounds: int) -> None:
    """Print the figures of one length."""
    own, whole = models()
    caches = {
        "head_cache": (own, headspan.torch.head_cache(own)),
        "sdpa, static": (whole, StaticCache(config=whole.config, max_cache_len=context + rounds + 1)),
        "no context": (own, headspan.torch.head_cache(own)),
    }
    fill(headspan.torch.head_cache(own), PIECE)  # what a process needs once is no part of a cache
    grown = {name: fill(cache, 1 if name == "no context" else context) for name, (_, cache) in caches.items()}
    times: dict[str, list[float]] = {name: [] for name in caches}
    for _ in range(rounds + 1):
        for name, (model, cache) in caches.items():
            times[name].append(token_time(model, cache))
    of_whole = times["sdpa, static"][1:]  # the first of each is to warm up
    head_layers, static_layers = (caches[name][1].layers for name in ("head_cache", "sdpa, static"))
    held = {
        "head_cache": sum(layer.nbytes for layer in head_layers),
        "sdpa, static": sum(layer.keys.nbytes + layer.values.nbytes for layer in static_layers),
    }
    cost = hs.cost(tokens=context, heads=HEADS, head_dim=HEAD_DIM, span=SPANS, ramp=RAMP, decode=True)
    print(f"\n{context} tokens; the reaches of the heads come to {LAYERS * (cost.cache_bytes or 0) / 2**20:.1f} MiB")
    print(f"{'':14}{'ms a token':>12}{'faster than sdpa':>18}{'cache, MiB':>12}{'process, MiB':>14}")
    for name, its in times.items():
        ratio = statistics.median(w / t for w, t in zip(of_whole, its[1:], strict=True))
        print(f"{name:14}{statistics.median(its[1:]) * 1e3:12.2f}{ratio:17.2f}x", end="")
        print(f"{held[name] / 2**20:12.1f}{grown[name] / 2**20:14.1f}" if name in held else "")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.heads", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS)
    options = parser.parse_args()
    torch.set_num_threads(hs.get_num_threads())
    headspan.torch.register()
    with torch.no_grad():
        for context in options.contexts:
            measure(context, options.rounds)


if __name__ == "__main__":
    main()
