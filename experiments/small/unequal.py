"""The comparison of learned spans with other spans that are as unequal, and with windows.

``python experiments/small/unequal.py --seed 0`` runs the comparison of `PLAN.md` (X1) for the model of a seed, which
``training.py`` trained. Every arm is stored when it is done, and the command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import headspan as hs
import numpy as np
import torch
from excess import FULL, LEARNED
from fitting import Spans, with_spans
from headspan.lab.machine import describe_machine
from kernel_source import KernelText
from model import (
    CONTEXT,
    HEADS,
    LAYERS,
    RESULTS,
    Attend,
    Model,
    Study,
    arguments,
    attention_flops,
    bits,
    descent,
    drawn,
    full,
    loss_within,
    save,
    windows,
)

RAMP, SHORT = 8.0, 24.0  # SHORT: the span of heads that are not long, in the arms that have two kinds of heads
MORE, MOVING, BATCH = 600, 400, 2
RATE = 3e-4  # of the weights, a tenth of that of their first training
SPAN_RATE = 0.03  # of the logarithm of spans: spans on which the loss does not depend are halved in 23 steps
PRICE, START = 0.2, 0.95 * CONTEXT
DEALS, CHOICE_WINDOWS, TIMED = 3, 16, 15
SPREAD = np.array([1.0, 4.0, 16.0, 64.0])

Schedule = Callable[[int], Spans]
"""The spans of a step."""


def everywhere(span: float) -> Spans:
    """Return one span for all heads of all layers."""
    return np.full((LAYERS, HEADS), float(span))


def pairs(spans: Spans) -> int:
    """Return the pairs of all heads in a window."""
    return sum(hs.cost(tokens=CONTEXT, num_heads=1, head_dim=1, span=z, ramp=RAMP).pairs for z in spans.ravel())


def within(spans: Spans) -> Attend:
    """Return attention within spans."""
    return with_spans(torch.from_numpy(spans).float(), RAMP)


def scaled(shape: Spans, most: int) -> Spans:
    """Return the largest multiple of spans that has at most `most` pairs."""
    low, high = 0.0, CONTEXT / float(shape[shape > 0].min())
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if pairs(np.minimum(middle * shape, CONTEXT)) <= most else (low, middle)
    return np.minimum(low * shape, CONTEXT)


def equal_in_each_layer(learned: Spans) -> Spans:
    """Return one span for each layer, with at most as many pairs in the layer."""
    return np.concatenate([scaled(np.ones((1, HEADS)), pairs(layer[None])) for layer in learned])


def long_heads(order: Iterator[tuple[int, int]], most: int) -> Spans:
    """Return spans that have no limit for the first heads of an order, as far as the pairs allow, and else SHORT.

    The next head of the order gets the pairs that are left.
    """
    spans = everywhere(SHORT)
    for place in order:
        longer = spans.copy()
        longer[place] = CONTEXT
        if pairs(longer) > most:
            rest = most - pairs(spans) + pairs(np.array([SHORT]))
            longer[place] = scaled(np.ones(1), rest)[0]
            return longer
        spans = longer
    return spans


def one_long_head_a_layer(most: int) -> Spans:
    """Return spans of SHORT, with the first head of each layer as long as the pairs allow."""
    spans = everywhere(SHORT)
    rest = (most - pairs(spans[:, 1:])) // LAYERS
    spans[:, 0] = scaled(np.ones(1), rest)[0]
    return spans


def by_distance(model: Model, rows: torch.Tensor, most: int) -> Spans:
    """Return for each head the distance within which it has a share of its attention; the pairs give the share."""
    mass = np.zeros((LAYERS, HEADS, CONTEXT))

    def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        weights = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf).softmax(-1).sum(0)
        for distance in range(CONTEXT):
            mass[layer, :, distance] += weights.diagonal(-distance, 1, 2).sum(-1).numpy()
        return full(layer, query, key, value)

    bits(model, rows, attend, batch=1)
    reached = np.cumsum(mass / mass.sum(-1, keepdims=True), axis=-1)
    low, high = 0.0, 1.0
    for _ in range(40):
        share = (low + high) / 2
        spans = np.argmax(reached >= min(share, reached.min(axis=(0, 1))[-1]), axis=-1).astype(float)
        low, high = (share, high) if pairs(spans) <= most else (low, share)
    return np.argmax(reached >= low, axis=-1).astype(float)


def by_ablation(model: Model, rows: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Return the heads in the order of what a window of SHORT in this head alone costs, the highest first."""
    losses = np.zeros((LAYERS, HEADS))
    for place in np.ndindex(losses.shape):
        spans = everywhere(CONTEXT)
        spans[place] = SHORT
        losses[place] = bits(model, rows, within(spans)).mean()
    return (tuple(int(i) for i in np.unravel_index(k, losses.shape)) for k in np.argsort(-losses, axis=None))


def coming_down(spans: Spans) -> Schedule:
    """Return spans that come down from START in equal factors until step MOVING."""
    ends = np.log(np.maximum(spans, 1.0))
    start = np.maximum(np.log(START), ends)
    return lambda step: np.exp(start + min(step / MOVING, 1.0) * (ends - start)) if step < MOVING else spans


def learn(model: Model, text: KernelText, seed: int) -> Spans:
    """Train all weights and the spans, whose price shortens them until step MOVING, and return the spans."""
    logarithms = torch.full((LAYERS, HEADS), float(np.log(START)), requires_grad=True)
    optimizer = torch.optim.Adam([logarithms], lr=SPAN_RATE, betas=(0.9, 0.98))
    for step, take_step, rows in _steps(model, text, seed):
        spans = logarithms.exp().clamp(max=CONTEXT)
        optimizer.zero_grad()
        take_step(loss_within(model, rows, with_spans(spans, RAMP)) + PRICE * spans.mean() / CONTEXT)
        if step < MOVING:
            optimizer.step()
    return logarithms.detach().exp().clamp(max=CONTEXT).double().numpy()


def follow(model: Model, text: KernelText, seed: int, schedule: Schedule | None) -> None:
    """Train all weights with the spans of a schedule, or with full attention."""
    for step, take_step, rows in _steps(model, text, seed):
        take_step(loss_within(model, rows, full if schedule is None else within(schedule(step))))


def _steps(model: Model, text: KernelText, seed: int) -> Iterator[Any]:
    """Yield each step with a function that takes it and its windows; all arms see the same windows."""
    data = torch.from_numpy(text.encode(text.part("train")))
    rng = np.random.default_rng(seed + 100)
    take_step = descent(model, RATE, MORE)
    for step in range(MORE):
        yield step, take_step, drawn(data, rng, BATCH, CONTEXT)


def schedules(model: Model, text: KernelText, learned: Spans) -> Iterator[tuple[str, Callable[[], Schedule]]]:
    """Yield the arms with as many pairs as the learned spans, whose spans are not learned in them."""
    most = pairs(learned)
    rows = windows(text, "validation", CHOICE_WINDOWS)
    window = scaled(everywhere(1.0), most)
    yield "window at once", lambda: lambda step: window
    yield "window", lambda: coming_down(window)
    for deal in range(DEALS):
        dealt = np.random.default_rng(deal).permutation(learned.ravel()).reshape(learned.shape)
        yield f"learned spans, dealt {deal}", lambda dealt=dealt: coming_down(dealt)
    yield "spread", lambda: coming_down(scaled(np.tile(SPREAD, (LAYERS, 1)), most))
    yield "one span a layer, from learned", lambda: coming_down(equal_in_each_layer(learned))
    yield "one long head a layer", lambda: coming_down(one_long_head_a_layer(most))
    yield "long heads by ablation", lambda: coming_down(long_heads(by_ablation(model, rows), most))
    yield "attention by distance", lambda: coming_down(by_distance(model, rows, most))


class Results:
    """The results of one seed, stored after each addition."""

    def __init__(self, study: Study, args: argparse.Namespace) -> None:
        self.study = study
        self.name = f"unequal/{args.name}"
        path = RESULTS / f"{self.name}.json"
        self.entries: dict[str, Any] = {"machine": describe_machine(args.threads), **study.about, "arms": {}}
        if path.exists():
            self.entries = json.loads(path.read_text())

    def once(self, name: str, run: Callable[[Model], Spans | None]) -> Spans | None:
        """Train a copy of the model within an arm, now or before, and return the spans of the arm."""
        arms = self.entries["arms"]
        if name not in arms:
            model, began = self.study.new_model(), time.process_time()
            spans = run(model)
            seconds = time.process_time() - began
            each = bits(model, self.study.rows, full if spans is None else within(spans))
            arms[name] = {
                "bits": round(float(each.mean()), 5),
                "bits_of_windows": [round(float(value), 5) for value in each],
                "pairs": pairs(everywhere(CONTEXT) if spans is None else spans),
                "spans": None if spans is None else spans.round(2).tolist(),
                "processor_seconds": round(seconds),
            }
            save(self.name, self.entries)
            print(self.name, name, arms[name]["bits"], arms[name]["pairs"], flush=True)
        return self.spans(name)

    def spans(self, name: str) -> Spans | None:
        """Return the spans of an arm that is done; full attention has none."""
        spans = self.entries["arms"][name]["spans"]
        return None if spans is None else np.array(spans)

    def add_work(self) -> None:
        """Measure the work of all arms."""
        for name, each in work(self.study, {name: self.spans(name) for name in self.entries["arms"]}).items():
            self.entries["arms"][name] |= each
        save(self.name, self.entries)


def work(study: Study, spans: dict[str, Spans | None]) -> dict[str, dict[str, float]]:
    """Return the FLOPs of a forward pass for a character, and the seconds of a forward and a backward pass.

    The arms take turns, so that a slower time of the machine concerns all of them; the seconds are medians.
    """
    model, rows = study.new_model(), study.rows[:BATCH]
    attends = {name: full if each is None else within(each) for name, each in spans.items()}
    seconds: dict[str, list[float]] = {name: [] for name in spans}
    for _ in range(TIMED):
        for name, attend in attends.items():
            began = time.perf_counter()
            loss_within(model, rows, attend).backward()
            seconds[name].append(time.perf_counter() - began)
    multiplied = sum(parameter.numel() for parameter in model.parameters()) - model.embedding.weight.numel()
    measures = {}
    for name, each in spans.items():
        flops = attention_flops(everywhere(CONTEXT) if each is None else each, CONTEXT, RAMP)
        measures[name] = {
            "attention_flops": round(flops),
            "flops": round(flops + 2 * multiplied),
            "seconds": round(float(np.median(seconds[name])), 4),
        }
    return measures


def main() -> None:
    """Run what is missing of one seed, and then measure the work of all arms on a machine that should be quiet."""
    args = arguments(__doc__.splitlines()[0], windows=128)
    study = Study(args, "test")
    results = Results(study, args)
    results.once(FULL, lambda model: follow(model, study.text, args.seed, None))
    learned = results.once(LEARNED, lambda model: learn(model, study.text, args.seed))

    def trained_within(model: Model, schedule: Schedule) -> Spans:
        follow(model, study.text, args.seed, schedule)
        return schedule(MORE)

    for name, schedule in schedules(study.model, study.text, learned):
        results.once(name, lambda model, schedule=schedule: trained_within(model, schedule()))
    results.add_work()


if __name__ == "__main__":
    main()
