"""Models of full attention that are trained on with spans, with a window of as many pairs, and as they are.

``python experiments/tuning.py --seed 0`` trains the model of that seed on, once for every way, for as many steps each,
and writes what each reaches on the test part to ``experiments/results/``. Spans begin at nearly the whole context and
come down by their price; when two thirds of the steps are done they stay where they are. With ``--anew 1`` a model is
trained from the first step on with the last of these windows, and added to what was written.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import torch
from fitting import RAMP, Spans, with_spans
from headspan.lab.machine import describe_machine
from headspan.lab.training.baselines import pairs_in_window, window_of_equal_cost
from model import (
    CONTEXT,
    HEADS,
    LAYERS,
    RESULTS,
    Attend,
    Study,
    arguments,
    bits,
    descent,
    drawn,
    full,
    save,
    train,
    write,
)  # fmt: skip
from torch.nn import functional as F

BATCH = 2
RATE = 3e-4  # of weights, a tenth of that of their first training
SPAN_RATE = 0.03  # of the logarithm of spans: one that nothing holds is halved in 23 steps
PRICES = (0.05, 0.2)  # of a mean span as long as the context, in nats


def everywhere(span: float) -> Spans:
    """Return one span for all heads of all layers."""
    return np.full((LAYERS, HEADS), float(span))


def within(spans: Spans | None, ramp: float) -> Attend:
    """Return attention within the spans of each layer, or without any."""
    return full if spans is None else with_spans(torch.from_numpy(spans).float(), ramp)


def tune(study: Study, args: Any, *, attend: Attend = full, price: float | None = None) -> Spans | None:
    """Train all weights on, and spans too where they have a price; return these."""
    data = torch.from_numpy(study.text.encode(study.text.part("train")))
    rng = np.random.default_rng(args.seed + 100)
    descend = descent(study.model, RATE, args.more, warm=max(1, args.more // 20))
    logarithms = torch.full((LAYERS, HEADS), float(np.log(0.95 * CONTEXT)), requires_grad=price is not None)
    of_spans = torch.optim.Adam([logarithms], lr=SPAN_RATE, betas=(0.9, 0.98))
    for step in range(args.more):
        rows = drawn(data, rng, BATCH, CONTEXT)
        if price is not None:
            spans = logarithms.exp().clamp(max=CONTEXT)
            attend = with_spans(spans)
        loss = F.cross_entropy(study.model(rows[:, :-1], attend).flatten(0, 1), rows[:, 1:].flatten())
        if price is not None:
            loss = loss + price * spans.mean() / CONTEXT
        of_spans.zero_grad()
        descend(loss)
        if price is not None and step < args.more * 2 / 3:
            of_spans.step()
        if step % 50 == 0:
            print(
                step, round(loss.item(), 4), logarithms.detach().exp().numpy().round().astype(int).tolist(), flush=True
            )
    return None if price is None else logarithms.detach().exp().clamp(max=CONTEXT).double().numpy()


def row(study: Study, way: str, spans: Spans | None, ramp: float, price: float | None, began: float) -> dict[str, Any]:
    """Return what a model reached with full attention, or within spans."""
    every = pairs_in_window(everywhere(CONTEXT), 0, CONTEXT)
    used = every if spans is None else pairs_in_window(spans, ramp, CONTEXT)
    result = {
        "way": way,
        "price": price,
        "pairs": used,
        "share_of_pairs": round(used / every, 4),
        "spans": None if spans is None else spans.round(1).tolist(),
        "bits_per_character": round(float(bits(study.model, study.rows, within(spans, ramp)).mean()), 4),
        "processor_seconds": round(time.process_time() - began),
    }
    print(result, flush=True)
    return result


def every_way(study: Study, args: Any) -> list[dict[str, Any]]:
    """Train the model of one seed on in every way."""
    weights = {name: value.clone() for name, value in study.model.state_dict().items()}
    rows = []

    def run(way: str, spans: Spans | None, ramp: float, price: float | None = None) -> Spans | None:
        began = time.process_time()
        study.model.load_state_dict(weights)
        learned = tune(study, args, attend=within(spans, ramp), price=price)
        spans = spans if learned is None else learned
        rows.append(row(study, way, spans, ramp, price, began))
        return spans

    run("full attention", None, 0)
    for price in PRICES:
        window = window_of_equal_cost(run("spans", everywhere(CONTEXT), RAMP, price), RAMP, CONTEXT)
        run("a window of as many pairs", everywhere(window), 0)
    return rows


def from_the_first_step(study: Study, args: Any, spans: Spans) -> dict[str, Any]:
    """Train a model that never saw more than a window, for as many steps and by the same plan."""
    began = time.process_time()
    attend = within(spans, 0)
    study.model = train(study.text, args.seed, args.steps, BATCH, attend=attend)
    tune(study, args, attend=attend)
    return row(study, "that window from the first step on", spans, 0, None, began)


def main() -> None:
    """Do one half of the comparison, and write it beside the other."""
    args = arguments(__doc__.splitlines()[0], windows=128, more=600, anew=0)
    study, path = Study(args, "test"), RESULTS / f"tuning_{args.name}.json"
    if args.anew:
        results = json.loads(path.read_text())
        row_of_window = from_the_first_step(study, args, np.array(results["rows"][-1]["spans"]))
        results["rows"].append({**row_of_window, "machine": describe_machine(args.threads)})
        save(path.stem, results)
    else:
        results = {**study.about, "more_steps": args.more, "ramp": RAMP, "rows": every_way(study, args)}
        write(path.stem, results)


if __name__ == "__main__":
    main()
