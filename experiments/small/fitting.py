"""Spans fitted to models that were trained with full attention.

``python experiments/small/fitting.py --seed 0`` fits spans to the model of a seed on windows of the test part, and
measures them and one span for all heads with as many pairs on the validation part. The results are written to
``experiments/results/``. The model was trained on neither part.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import headspan as hs
import numpy as np
import torch
from headspan.torch import attention
from model import CONTEXT, HEADS, LAYERS, WIDTH, Attend, Study, arguments, bits, windows, write
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

RAMP = 8.0
# Method, goal, and number of windows. A descent runs the model twice on 8 windows in each of 150 steps. Measured steps
# run the model on all windows about 300 times.
RUNS: tuple[tuple[str, dict[str, float], int], ...] = (
    ("learn", {"tolerance": 0.01}, 16),
    ("learn", {"budget": 0.13}, 16),
    ("profile", {"tolerance": 0.01}, 8),
)
MOST = max(count for _, _, count in RUNS)
Spans = NDArray[np.float64]


def with_spans(spans: Tensor, ramp: float = RAMP) -> Attend:
    """Return attention within the spans of each layer."""
    return lambda layer, query, key, value: attention(query, key, value, span=spans[layer], ramp=ramp)


def described(fit: hs.SpanFit) -> dict[str, Any]:
    """Return the entries of a fit for the file of results."""
    return {
        "evaluations": fit.evaluations,
        "spans": fit.spans.astype(int).tolist(),
        "share_of_pairs": round(fit.share, 4),
        "share_of_cache": round(fit.cache_bytes / fit.full_cache_bytes, 4),
        "cache_bytes": fit.cache_bytes,
        "full_cache_bytes": fit.full_cache_bytes,
        "fitted_excess": round(fit.fitted_after / fit.fitted_before - 1, 5),
        "held_out_before": round(fit.loss_before, 5),
        "held_out_after": round(fit.loss_after, 5),
        "held_out_excess": round(fit.excess, 5),
        "uniform_span": fit.uniform.span,
        "uniform_fitted_excess": round(fit.uniform.fitted_loss / fit.fitted_before - 1, 5),
        "uniform_held_out_excess": round(fit.uniform_excess, 5),
        "uniform_wins": fit.uniform_wins,
        "curve": [[round(p.pairs / fit.full_pairs, 4), round(p.loss / fit.fitted_before - 1, 5)] for p in fit.curve],
        "uniform_curve": [
            [round(p.pairs / fit.full_pairs, 4), round(p.loss / fit.fitted_before - 1, 5)] for p in fit.uniform_curve
        ],
    }


def main() -> None:
    """Fit spans to the model of one seed, with each method and goal."""
    args = arguments(__doc__.splitlines()[0], windows=32)
    study = Study(args, "validation")
    for parameter in study.model.parameters():
        parameter.requires_grad_(False)

    def loss_on(windows: Tensor) -> Any:
        return lambda spans: float(bits(study.model, windows, with_spans(torch.from_numpy(spans).float())).mean())

    def gradient_on(windows: Tensor, spans: Spans, step: int) -> tuple[float, Spans]:
        batches = windows.split(8)
        some = batches[step % len(batches)]
        leaf = torch.tensor(spans, dtype=torch.float32, requires_grad=True)
        full = torch.full(leaf.shape, float(CONTEXT))
        logits = study.model(some[:, :-1], with_spans(leaf))
        loss = F.cross_entropy(logits.transpose(1, 2), some[:, 1:]) / math.log(2)
        loss.backward()
        return float(loss.detach()) - float(bits(study.model, some, with_spans(full)).mean()), leaf.grad.numpy()

    fits = []
    for method, bound, count in RUNS:
        rows = windows(study.text, "test", count)
        began = time.perf_counter(), time.process_time()
        fit = hs.fit_spans(
            loss_on(rows),
            loss_on(study.rows),
            tokens=CONTEXT,
            num_layers=LAYERS,
            num_heads=HEADS,
            head_dim=WIDTH // HEADS,
            ramp=RAMP,
            method=method,
            gradient=partial(gradient_on, rows),
            **bound,
        )
        times = {
            "seconds": round(time.perf_counter() - began[0]),
            "processor_seconds": round(time.process_time() - began[1]),
        }
        most = loss_on(windows(study.text, "test", MOST))
        beyond = most(fit.spans) / most(np.full((LAYERS, HEADS), float(CONTEXT))) - 1
        about = {"fitted_windows": count, f"excess_on_{MOST}_windows": round(beyond, 5)}
        fits.append({"method": method, **bound, **about, **times, **described(fit)})
        print(method, bound, times, fit, flush=True)
    write(f"fitting_{args.name}", {**study.about, "threads": args.threads, "ramp": RAMP, "rows": fits})


if __name__ == "__main__":
    main()
