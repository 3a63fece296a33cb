"""Are learned spans better because they are learned, or because heads differ? ``python experiments/unequal.py``.

`PLAN.md` describes the comparison (X1). Every model and every arm is stored when it is done, and the command goes on
where it stopped: about ten hours on one core, of which the training of the models takes seven.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headspan as hs
import numpy as np
import torch
from copying import copying
from fitting import Spans, with_spans
from headspan.lab.machine import describe_machine
from kernel_source import KernelText, kernel_source
from model import (
    CONTEXT,
    HEADS,
    LAYERS,
    RESULTS,
    Attend,
    Model,
    bits,
    descent,
    drawn,
    full,
    save,
    text_description,
    train,
    windows,
)
from torch.nn import functional as F
from tuning import BATCH, RATE, SPAN_RATE, everywhere

RAMP, SHORT = 8.0, 24.0  # SHORT: the span of heads that are not long, in the arms that have two kinds of heads
MORE, MOVING, SEEDS = 600, 400, 5
PRICE, START = 0.2, 0.95 * CONTEXT
DEALS, TEST_WINDOWS, CHOICE_WINDOWS = 3, 128, 16
WATCH_EVERY, WATCHED_WINDOWS = 250, 16
SPREAD = np.array([1.0, 4.0, 16.0, 64.0])
FULL = "full attention"

Schedule = Callable[[int], Spans]
"""The spans of a step."""


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
    """Return the heads, that first whose window of SHORT alone costs most."""
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
    for step, take_step, loss_within in _steps(model, text, seed):
        spans = logarithms.exp().clamp(max=CONTEXT)
        optimizer.zero_grad()
        take_step(loss_within(with_spans(spans, RAMP)) + PRICE * spans.mean() / CONTEXT)
        if step < MOVING:
            optimizer.step()
    return logarithms.detach().exp().clamp(max=CONTEXT).double().numpy()


def follow(model: Model, text: KernelText, seed: int, schedule: Schedule | None) -> None:
    """Train all weights with the spans of a schedule, or with full attention."""
    for step, take_step, loss_within in _steps(model, text, seed):
        take_step(loss_within(full if schedule is None else within(schedule(step))))


def _steps(model: Model, text: KernelText, seed: int) -> Iterator[Any]:
    """Yield each step with a function that takes it and one for the loss within an attention; all arms see the same."""
    data = torch.from_numpy(text.encode(text.part("train")))
    rng = np.random.default_rng(seed + 100)
    take_step = descent(model, RATE, MORE, warm=MORE // 20)
    for step in range(MORE):
        rows = drawn(data, rng, BATCH, CONTEXT)
        yield (
            step,
            take_step,
            lambda attend, rows=rows: F.cross_entropy(model(rows[:, :-1], attend).flatten(0, 1), rows[:, 1:].flatten()),
        )


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

    def __init__(self, name: str) -> None:
        self.name = f"unequal/{name}"
        path = RESULTS / f"{self.name}.json"
        self.entries: dict[str, Any] = {"machine": describe_machine(1), "arms": {}}
        if path.exists():
            self.entries = json.loads(path.read_text())

    def save(self) -> None:
        """Write all results."""
        save(self.name, self.entries)

    def once(self, name: str, run: Callable[[], Spans | None], model: Model, rows: torch.Tensor) -> Spans | None:
        """Return the spans of an arm, which is run now or was before."""
        arms = self.entries["arms"]
        if name not in arms:
            began = time.process_time()
            spans = run()
            each = bits(model, rows, full if spans is None else within(spans))
            arms[name] = {
                "bits": round(float(each.mean()), 5),
                "bits_of_windows": [round(float(value), 5) for value in each],
                "pairs": pairs(everywhere(CONTEXT) if spans is None else spans),
                "spans": None if spans is None else spans.round(2).tolist(),
                "processor_seconds": round(time.process_time() - began),
            }
            self.save()
            print(self.name, name, arms[name]["bits"], arms[name]["pairs"], flush=True)
        spans = arms[name]["spans"]
        return None if spans is None else np.array(spans)


def model_of(text: KernelText, seed: int, steps: int, folder: Path, results: Results) -> Model:
    """Return the model of a seed, trained now or before, and store which of its heads copied during training."""
    path = folder / f"kernel_steps{steps}_seed{seed}.pt"
    if not path.exists():
        rows = windows(text, "validation", WATCHED_WINDOWS)
        history: list[dict[str, Any]] = []

        def watch(step: int, model: Model) -> None:
            if step % WATCH_EVERY == 0:
                history.append({"step": step, **copying(model, rows)})

        folder.mkdir(parents=True, exist_ok=True)
        torch.save(train(text, seed, steps, BATCH, watch=watch).state_dict(), path)
        results.entries["history"] = history
        results.save()
    model = Model(len(text.vocabulary))
    model.load_state_dict(torch.load(path))
    return model


def compare(text: KernelText, seed: int, steps: int, folder: Path) -> None:
    """Run what is missing of a seed."""
    results = Results(f"steps{steps}_seed{seed}")
    rows = windows(text, "test", TEST_WINDOWS)
    results.entries["text"] = text_description(text) | {"sizes": list(text.sizes)}
    trained = model_of(text, seed, steps, folder, results)
    if "trained" not in results.entries:
        results.entries["trained"] = round(float(bits(trained, windows(text, "validation", 64)).mean()), 4)
        results.save()

    def arm(name: str, run: Callable[[Model], Spans | None]) -> Spans | None:
        model = Model(len(text.vocabulary))
        model.load_state_dict(trained.state_dict())
        return results.once(name, lambda: run(model), model, rows)

    def trained_within(model: Model, schedule: Schedule) -> Spans:
        follow(model, text, seed, schedule)
        return schedule(MORE)

    arm(FULL, lambda model: follow(model, text, seed, None))
    learned = arm("learned", lambda model: learn(model, text, seed))
    for name, schedule in schedules(trained, text, learned):
        arm(name, lambda model, schedule=schedule: trained_within(model, schedule()))


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=range(SEEDS))
    parser.add_argument("--steps", type=int, default=8000, help="steps of the models with full attention")
    parser.add_argument("--models", type=Path, default=Path("build/experiments"))
    parser.add_argument("--source", type=Path, default=Path("build/kernel"), help="folder of the unpacked package")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hs.set_num_threads(1)
    text = kernel_source(args.source)
    for seed in args.seeds:
        compare(text, seed, args.steps, args.models)


if __name__ == "__main__":
    main()
