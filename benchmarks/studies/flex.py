"""Masks of flex_attention on the CPU: ``python -m benchmarks.studies.flex``.

4 heads of 64 in float32. `headspan.torch.flex_attention` takes turns with `scaled_dot_product_attention` with the same
mask as an array of bool, forward and backward, and in the forward pass with compiled flex_attention of PyTorch, which
has no backward pass on a CPU. Each result is the median over the rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import headspan.torch
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.measure.turns import medians
from benchmarks.output.saved import add_json_option, write_study

HEADS, HEAD_DIM, BLOCK = 4, 64, 128
MaskMod = Callable[..., torch.Tensor]


def cases() -> dict[str, tuple[int, MaskMod]]:
    """Return the number of tokens and the mask of each case."""
    generator = torch.Generator().manual_seed(0)
    documents = torch.randint(0, 12, (8192,), generator=generator).sort()[0]
    blocks = torch.rand(8192 // BLOCK, 8192 // BLOCK, generator=generator) < 0.05
    return {
        "causal": (8192, lambda b, h, q, k: q >= k),
        "documents": (8192, lambda b, h, q, k: (documents[q] == documents[k]) & (q >= k)),
        "window of 1024": (8192, lambda b, h, q, k: (q >= k) & (q - k < 1024)),
        "prefix of 1024": (4096, lambda b, h, q, k: (q >= k) | (k < 1024)),
        "random blocks": (8192, lambda b, h, q, k: blocks[q // BLOCK, k // BLOCK]),
    }


def study(tokens: int, mask_mod: MaskMod, compiled: Callable[..., Any], rounds: int) -> dict[str, Any]:
    """Measure one case."""
    block_mask = create_block_mask(mask_mod, None, None, tokens, tokens, device="cpu")
    index = torch.arange(tokens)
    dense = mask_mod(0, 0, index[:, None], index[None, :])
    inputs = [torch.randn(1, HEADS, tokens, HEAD_DIM, requires_grad=True) for _ in range(3)]
    query, key, value = inputs
    begin = time.perf_counter()
    headspan.torch.flex_attention(query, key, value, block_mask=block_mask)
    first = time.perf_counter() - begin
    ways = {
        "headspan": partial(headspan.torch.flex_attention, query, key, value, block_mask=block_mask),
        "torch-sdpa, mask": partial(scaled_dot_product_attention, query, key, value, attn_mask=dense),
    }
    grad = torch.ones(1, HEADS, tokens, HEAD_DIM)
    outputs = {name: way() for name, way in ways.items()}
    backward = {name: partial(torch.autograd.grad, out, inputs, grad, True) for name, out in outputs.items()}
    forward = {name: partial(_without_gradient, way) for name, way in ways.items()}
    detached = [x.detach() for x in inputs]
    forward["torch-flex, compiled"] = partial(compiled, *detached, block_mask=block_mask)
    error = float((outputs["headspan"] - outputs["torch-sdpa, mask"]).abs().max().detach())
    return {
        "tokens": tokens,
        "share of blocks": 1 - block_mask.sparsity() / 100,
        "share of pairs": float(dense.float().mean()),
        "largest difference": error,
        "first call": first,
        "forward": medians(forward, rounds),
        "backward": medians(backward, rounds),
    }


def _without_gradient(way: Callable[[], torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return way()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.flex", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    add_json_option(parser)
    options = parser.parse_args()
    torch.manual_seed(0)
    results = {}
    for name, (tokens, mask_mod) in cases().items():
        result = results[name] = study(tokens, mask_mod, torch.compile(flex_attention), options.rounds)
        print(f"{name}: {tokens} tokens, {result['share of pairs']:.1%} of the pairs")
        for what in ("forward", "backward"):
            ours = result[what]["headspan"]
            cells = [f"{way} {1e3 * seconds:.0f} ms ({seconds / ours:.2f})" for way, seconds in result[what].items()]
            print(f"    {what:8} " + ", ".join(cells), flush=True)
    write_study(options.json, {"rounds": options.rounds, "heads": HEADS, "head_dim": HEAD_DIM, "cases": results})


if __name__ == "__main__":
    main()
