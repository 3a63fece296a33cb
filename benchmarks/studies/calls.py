"""Overhead of small calls, where most time passes outside of the kernel: ``python -m benchmarks.studies.calls``.

`headspan.attention`, `headspan.torch.attention` and torch's own function compute each case in turns, many times per
round, so that disturbances of the machine affect all of them. The results are medians over the rounds. Then a small
model of transformers generates tokens after prompts of several lengths, with "sdpa", with spans and a `DynamicCache`,
and with spans and a `head_cache`. This shows the length from which spans save more time than their calls cost.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import headspan as hs
import headspan.torch
import numpy as np
import torch
import transformers

from benchmarks.output.saved import add_json_option, write_study

MODEL = {"vocab_size": 1000, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 8}
PROMPTS = (256, 512, 1024, 1536, 2048, 3072, 4096)
TOKENS = 12
SHAPES = ((1, 4, 16, 16), (1, 8, 1, 64), (1, 8, 128, 64))
CALLS, ROUNDS = 200, 25


def contenders(shape: tuple[int, ...]) -> dict[str, Callable[[], object]]:
    """Return the functions that compute attention of a shape: forward, and for tensors also forward and backward."""
    arrays = np.random.default_rng(0).standard_normal((3, *shape)).astype(np.float32)
    tensors = [torch.from_numpy(x) for x in arrays]
    leaves = [x.clone().requires_grad_() for x in tensors]
    upstream = torch.ones(shape)
    torch_function = torch.nn.functional.scaled_dot_product_attention

    def gradients(out: torch.Tensor) -> object:
        return torch.autograd.grad(out, leaves, upstream)

    return {
        "headspan.attention": lambda: hs.attention(*arrays),
        "headspan.torch": lambda: headspan.torch.attention(*tensors),
        "torch": lambda: torch_function(*tensors, is_causal=True),
        "headspan.torch, gradients": lambda: gradients(headspan.torch.attention(*leaves)),
        "torch, gradients": lambda: gradients(torch_function(*leaves, is_causal=True)),
    }


def measured(shape: tuple[int, ...]) -> dict[str, float]:
    """Return the microseconds per call of each contender."""
    calls = contenders(shape)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS + 1):  # the first round warms up
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    return {name: round(statistics.median(each[1:]), 1) for name, each in times.items()}


def models() -> dict[str, tuple[Any, Callable[[], Any]]]:
    """Return models with the same weights, each with a function that creates its cache."""
    headspan.torch.register()
    sizes = MODEL | {"num_attention_heads": 8, "max_position_embeddings": 2 * max(PROMPTS)}
    plain, spans = (
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, attn_implementation=name)).eval()
        for name in ("sdpa", "headspan")
    )
    spans.load_state_dict(plain.state_dict())
    headspan.torch.set_spans(spans, [[32] * 7 + [1000]] * 8, ramp=8)
    return {
        "sdpa": (plain, transformers.DynamicCache),
        "spans, DynamicCache": (spans, transformers.DynamicCache),
        "spans, head_cache": (spans, lambda: headspan.torch.head_cache(spans)),
    }


def milliseconds_of_a_token(model: Any, cache: Any, prompt: torch.Tensor) -> float:
    """Return the median time of a token after a prompt, in milliseconds."""
    times = []
    with torch.no_grad():
        model(prompt, cache=cache)
        for _ in range(TOKENS):
            begin = time.perf_counter()
            model(prompt[:, :1], cache=cache)
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def of_tokens() -> dict[int, dict[str, float]]:
    """Return the milliseconds per token of each model, by the length of the prompt."""
    contestants, results = models(), {}
    for length in PROMPTS:
        prompt = torch.randint(1000, (1, length))
        rounds = [
            {name: milliseconds_of_a_token(model, make(), prompt) for name, (model, make) in contestants.items()}
            for _ in range(5)
        ]
        results[length] = {name: round(statistics.median(each[name] for each in rounds), 2) for name in contestants}
    return results


def main() -> None:
    """Measure, print the results, and write them to the file of ``--json``."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_json_option(parser)
    arguments = parser.parse_args()
    results = {"x".join(map(str, shape)): measured(shape) for shape in SHAPES}
    for shape, times in results.items():
        print(shape, *(f"{name} {time:.1f} us" for name, time in times.items()), sep="  ")
    tokens = of_tokens()
    for length, milliseconds in tokens.items():
        print(f"a token after {length}", *(f"{name} {time} ms" for name, time in milliseconds.items()), sep="  ")
    write_study(arguments.json, {"microseconds": results, "tokens_milliseconds": tokens})


if __name__ == "__main__":
    main()
