"""Spans fitted to a small Llama with grouped heads, on a text whose needed distances are known; and what they save.

``python experiments/grouped.py --seed 0`` trains the model if the folder that ``--models`` names does not have it,
shows that it needs to look far, fits spans, measures memory and time a token in ``generate``, and writes all of it to
``experiments/results/``.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import headspan as hs
import headspan.torch
import numpy as np
import torch
from fitting import described
from model import arguments, descent, write
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

VOCABULARY, CONTEXT, RAMP, NEW_TOKENS = 256, 512, 8.0, 32
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2 * CONTEXT,
}


class Repeats:
    """A text that says again what it said up to several hundred tokens ago, and has a rule of few tokens.

    New tokens are any of 256; or, three in ten, the one that a table has for the token four places before. Stretches of
    16 to 48 tokens are copies of what stood 48 to 400 tokens before, so that whoever finds there what was read last
    knows what comes next. Windows shorter than 512 have shorter distances.
    """

    def __init__(self) -> None:
        self._table = np.random.default_rng(0).permutation(VOCABULARY)  # the same language for every seed

    def windows(self, count: int, length: int, seed: int) -> Tensor:
        """Draw windows of tokens, (count, length)."""
        rng = np.random.default_rng([seed, count, length])
        return torch.from_numpy(np.stack([self._window(length, rng) for _ in range(count)]))

    def _window(self, length: int, rng: np.random.Generator) -> NDArray[np.int64]:
        distances = np.log(np.array([48, 401]) * min(1.0, length / CONTEXT))
        text = rng.integers(VOCABULARY, size=4).tolist()
        while len(text) < length:
            for _ in range(rng.integers(16, 49)):
                text.append(int(self._table[text[-4]] if rng.random() < 0.3 else rng.integers(VOCABULARY)))
            distance = int(np.exp(rng.uniform(*distances)))
            if distance <= len(text):
                for _ in range(rng.integers(16, 49)):
                    text.append(text[-distance])
        return np.array(text[:length])


def echoes(count: int, length: int, seed: int) -> Tensor:
    """Draw windows that say the same 6 to 24 tokens again and again: a school of copying, which takes minutes."""
    rng = np.random.default_rng(seed)
    periods = [rng.integers(VOCABULARY, size=rng.integers(6, 25)) for _ in range(count)]
    return torch.from_numpy(np.stack([np.resize(period, length) for period in periods]))


def train(text: Repeats, seed: int, steps: int) -> LlamaForCausalLM:
    """Train a model with full attention: a third on echoes, a quarter on half windows, the rest on whole ones."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, attn_implementation="sdpa"))
    descend = descent(model, 2e-3, steps, warm=50)
    began = time.perf_counter()
    for step in range(steps):
        batch_seed = 10_000 * (seed + 1) + step
        if step < 0.35 * steps:
            ids = echoes(32, CONTEXT // 8, seed=batch_seed)
        elif step < 0.6 * steps:
            ids = text.windows(16, CONTEXT // 2, seed=batch_seed)
        else:
            ids = text.windows(8, CONTEXT, seed=batch_seed)
        loss = model(ids, labels=ids).loss
        descend(loss)
        if step % 100 == 0 or step == steps - 1:
            seconds = time.perf_counter() - began
            print(f"step {step}: {loss.item() / math.log(2):.4f} bits a token, {seconds:.0f} s", flush=True)
    return model


def trained(args: argparse.Namespace, text: Repeats) -> Any:
    """Return the model of a seed, trained now or before."""
    path = args.models / f"grouped_{args.name}.pt"
    if not path.exists():
        args.models.mkdir(parents=True, exist_ok=True)
        torch.save(train(text, args.seed, args.steps).state_dict(), path)
    headspan.torch.register()
    model = LlamaForCausalLM(LlamaConfig(**SIZES, attn_implementation="headspan"))
    model.load_state_dict(torch.load(path))
    return model.eval()


def seconds_of(model: Any, prompt: Tensor, make_cache: Callable[[], Any]) -> tuple[float, int]:
    """Return the median seconds of a token after a prompt, and the bytes of its cache."""
    cache = make_cache()
    with torch.no_grad():
        model(prompt, cache=cache, use_cache=True)
        token, taken = prompt[:, :1], []
        for _ in range(NEW_TOKENS):
            began = time.perf_counter()
            model(token, cache=cache, use_cache=True)
            taken.append(time.perf_counter() - began)
    held = getattr(cache, "nbytes", None)
    if held is None:
        held = sum(x.nbytes for layer in cache.layers for x in (layer.keys, layer.values))
    return float(np.median(taken)), held


def measured_tokens(model: Any, prompt: Tensor, fit: hs.SpanFit) -> dict[str, Any]:
    """Return time a token and bytes of the cache within the spans that were found, a window, and without spans.

    They take turns, so that what else the machine does meets all of them.
    """
    window = np.full(fit.spans.shape, fit.uniform.span)
    caches = {
        "found": (fit.spans, lambda: headspan.torch.head_cache(model)),
        "uniform": (window, lambda: headspan.torch.head_cache(model)),
        "none": (None, lambda: DynamicCache(config=model.config)),
    }
    times: dict[str, list[float]] = {name: [] for name in caches}
    held = {}
    for _ in range(5):
        for name, (spans, make_cache) in caches.items():
            headspan.torch.set_spans(model, spans, ramp=RAMP)
            seconds, held[name] = seconds_of(model, prompt, make_cache)
            times[name].append(seconds)
    headspan.torch.set_spans(model, fit.spans, ramp=RAMP)
    return {
        "prompt": prompt.shape[1],
        "batch": prompt.shape[0],
        "milliseconds_a_token": {name: round(1e3 * float(np.median(samples)), 3) for name, samples in times.items()},
        "cache_bytes": held,
    }


def same_texts(model: Any, prompt: Tensor, fit: hs.SpanFit) -> float:
    """Return in how many of the tokens that generate writes the cache of heads agrees with spans and a whole cache."""
    how: dict[str, Any] = {
        "max_new_tokens": NEW_TOKENS,
        "min_new_tokens": NEW_TOKENS,
        "do_sample": False,
        "pad_token_id": 0,
    }
    how["attention_mask"] = torch.ones_like(prompt)  # token 0 is one like others
    headspan.torch.set_spans(model, fit.spans, ramp=RAMP)
    short = model.generate(prompt, cache=headspan.torch.head_cache(model), **how)
    full = model.generate(prompt, **how)
    return float((short == full)[:, prompt.shape[1] :].float().mean())


def main() -> None:
    """Fit spans to the model of one seed, and measure what they lose and save."""
    args = arguments(__doc__.splitlines()[0], windows=32, fitted=16, steps=2000)
    text = Repeats()
    model = trained(args, text)
    rows, held_out = text.windows(args.fitted, CONTEXT, seed=1), text.windows(args.windows, CONTEXT, seed=2)
    fits = []
    for bound in ({"tolerance": 0.01}, {"budget": 0.13}):
        headspan.torch.set_spans(model, None)
        began = time.perf_counter(), time.process_time()
        fit = headspan.torch.fit_spans(model, rows, held_out=held_out, ramp=RAMP, **bound)
        times = {
            "seconds": round(time.perf_counter() - began[0]),
            "processor_seconds": round(time.process_time() - began[1]),
        }
        row = {"method": "learn", **bound, **times, **described(fit), "same_texts": same_texts(model, rows[:2], fit)}
        row["tokens"] = [
            measured_tokens(model, text.windows(batch, length, seed=3), fit)
            for batch, length in ((1, CONTEXT), (4, 4096))
        ]
        fits.append(row)
        print(bound, times, fit, row["tokens"], flush=True)
    about = {"seed": args.seed, "steps": args.steps, "parameters": model.num_parameters(), "threads": args.threads}
    windows = {"windows": args.windows, "fitted_windows": args.fitted, "context": CONTEXT}
    write(f"grouped_{args.name}", {**about, **windows, "ramp": RAMP, "rows": fits})


if __name__ == "__main__":
    main()
