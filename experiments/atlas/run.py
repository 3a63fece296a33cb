"""How far each head of four small models has to see: ``python experiments/atlas/run.py [NAME ...]``.

Writes ``experiments/results/atlas/NAME.json`` for each model. Each takes about ten minutes on one core.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import headspan.torch
import numpy as np
import torch
from headspan.fitting import SpanFit
from headspan.fitting.search.price import Price
from headspan.fitting.search.windows import one_span, one_span_per_layer
from headspan.lab.machine import describe_machine
from headspan.lab.runs import RunError
from numpy.typing import NDArray
from study import Study

RESULTS = Path(__file__).parents[1] / "results" / "atlas"
NAMES = ("reactions", "sentences", "speech", "antibodies")
TOLERANCE, STEPS, MEASURED, DEALS = 0.01, 60, 4, 3  # MEASURED: batches on which the fit measures losses

Table = NDArray[np.float64]


def run(study: Study) -> dict[str, Any]:
    """Fit spans to a model, and measure them and others with as many pairs on the held-out batches."""
    began = time.perf_counter()
    fit = headspan.torch.fit_spans(
        study.model,
        study.fitted,
        held_out=study.held_out[:1],  # all held-out batches are measured below
        loss=study.loss,
        tokens=study.tokens,
        ramp=study.ramp,
        tolerance=TOLERANCE,
        steps=STEPS,
        eval_windows=MEASURED,
    )
    price = price_of(fit)
    tables = tables_of(fit, price)
    within = [point.pairs for point in fit.uniform_curve if point.loss <= fit.fitted_before * (1 + TOLERANCE)]
    return {
        "fit": {
            "tolerance": TOLERANCE,
            "steps": STEPS,
            "measured_batches": MEASURED,
            "ramp": fit.ramp,
            "tokens": fit.tokens,
            "batches": len(study.fitted),
            "evaluations": fit.evaluations,
            "loss_before": fit.fitted_before,
            "loss_after": fit.fitted_after,
            "share_of_pairs": fit.share,
            "share_of_pairs_of_one_span_within_the_tolerance": min(within) / fit.full_pairs,
            "one_span_wins": fit.uniform_wins,
        },
        "spans": plain(fit.spans, fit.tokens),
        "held_out": {name: _held_out(study, table, price) for name, table in tables.items()},
        "seconds": round(time.perf_counter() - began),
    }


def price_of(fit: SpanFit) -> Price:
    """Return the count of pairs of a fit."""
    layers, heads = fit.spans.shape
    sizes = {"tokens": fit.tokens, "layers": layers, "heads": heads, "key_heads": heads, "head_dim": 1}
    return Price(**sizes, ramp=fit.ramp, first_tokens=0, dtype=np.float32, causal=fit.is_causal)


def tables_of(fit: SpanFit, price: Price) -> dict[str, Table]:
    """Return the fitted spans, and others with at most as many pairs."""
    tables = {
        "full attention": price.full,
        "fitted": fit.spans,
        "one span": one_span(price, fit.spans),
        "one span a layer": one_span_per_layer(price, fit.spans),
    }
    for seed in range(DEALS):
        dealt = np.random.default_rng(seed).permutation(fit.spans.ravel())
        tables[f"dealt {seed}"] = dealt.reshape(fit.spans.shape)
    return tables


def plain(spans: Table, tokens: int) -> list[list[float | None]]:
    """Return spans for JSON, with null for a head without a limit."""
    return [[None if span >= tokens else float(span) for span in row] for row in spans]


@torch.no_grad()
def _held_out(study: Study, spans: Table, price: Price) -> dict[str, Any]:
    headspan.torch.set_spans(study.model, np.where(spans >= price.tokens, np.inf, spans), ramp=price.ramp)
    losses = [float(study.loss(study.model, batch)) for batch in study.held_out]
    return {
        "share_of_pairs": price.pairs(spans) / price.pairs(price.full),
        "loss": float(np.mean(losses)),
        "score": study.score(study.model, study.held_out),
        "losses": losses,
    }


def main() -> None:
    """Run the models that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], metavar="NAME", help=", ".join(NAMES))
    names = parser.parse_args().names or NAMES
    headspan.torch.register()
    missing = []
    for name in names:
        try:
            study = importlib.import_module(name).study()
        except RunError as error:
            missing.append(f"{name}: {error}")
            continue
        results = {"machine": describe_machine(torch.get_num_threads()), "sha256": study.sha256, **run(study)}
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name}: {results['fit']['share_of_pairs']:.1%} of the pairs, {results['seconds']} s", flush=True)
    if missing:
        sys.exit("\n".join(missing))


if __name__ == "__main__":
    main()
