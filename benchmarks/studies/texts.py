"""Packed and padded texts in a model of transformers, against torch's masks: ``python -m benchmarks.studies.texts``.

A Llama with 2 layers of 8 heads of 64 reads 4096 tokens: "whole" is one text, "packed" is eight consecutive texts, and
"padded" is two texts, one of which has padding in its left half. ``attn_implementation="headspan"``, which uses ranges
of keys, and "sdpa", which uses masks of pairs, take turns, and each result is the median over the rounds.
"""

from __future__ import annotations

import argparse
from functools import partial

import headspan.torch
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.measure.turns import medians
from benchmarks.output.saved import add_json_option, write_study

TOKENS, TEXTS = 4096, 8


def model_of(implementation: str) -> LlamaForCausalLM:
    """Return the model, with the same weights for each implementation of attention."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 2, "num_attention_heads": 8}
    return LlamaForCausalLM(LlamaConfig(vocab_size=1000, **sizes, attn_implementation=implementation))


def inputs() -> dict[str, dict[str, torch.Tensor | bool]]:
    """Return the arguments of the model for each case."""
    ids = torch.randint(1, 1000, (1, TOKENS))
    places = torch.arange(TOKENS // TEXTS).repeat(TEXTS)[None]
    items = torch.randint(1, 1000, (2, TOKENS))
    mask = torch.ones_like(items)
    mask[0, : TOKENS // 2] = 0
    return {
        "whole": {"input_ids": ids, "use_cache": False},
        "packed": {"input_ids": ids, "position_ids": places, "use_cache": False},
        "padded": {"input_ids": items, "attention_mask": mask, "use_cache": False},
    }


def step(model: LlamaForCausalLM, arguments: dict[str, torch.Tensor | bool]) -> None:
    """Compute a forward and a backward pass."""
    model.zero_grad()
    model(**arguments, labels=arguments["input_ids"]).loss.backward()


def forward(model: LlamaForCausalLM, arguments: dict[str, torch.Tensor | bool]) -> None:
    """Compute a forward pass."""
    with torch.no_grad():
        model(**arguments)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.texts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    add_json_option(parser)
    options = parser.parse_args()
    cases: dict[str, dict[str, dict[str, float]]] = {}
    headspan.torch.register()
    models = [model_of(name) for name in ("headspan", "sdpa")]
    print(f"{'':8} {'':20} {'headspan':>10} {'sdpa':>10} {'times':>6}")
    for name, arguments in inputs().items():
        for what, work in (("forward", forward), ("forward and backward", step)):
            calls = {str(number): partial(work, model, arguments) for number, model in enumerate(models)}
            ours, theirs = medians(calls, options.rounds).values()
            cases.setdefault(name, {})[what] = {"headspan": ours, "sdpa": theirs}
            print(f"{name:8} {what:20} {1e3 * ours:7.1f} ms {1e3 * theirs:7.1f} ms {theirs / ours:6.2f}")
    write_study(options.json, {"rounds": options.rounds, "tokens": TOKENS, "seconds": cases})


if __name__ == "__main__":
    main()
