"""Train models on tasks with a known reach, with spans that start differently: ``python experiments/start/run.py``.

Every run is written to ``experiments/results/start/`` when it is done, and the command goes on where it stopped. All
runs take about three hours on one core.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import headspan as hs
import numpy as np
import torch
from headspan.lab.machine import describe_machine
from headspan.lab.runs.folder import replace_file
from headspan.torch import AdaptiveSpan, TransformerBlock, parameter_groups
from tasks import TASKS, TOKENS, Task
from torch import nn
from torch.nn import functional as F

RESULTS = Path(__file__).parents[1] / "results" / "start"
WIDTH, BLOCKS, HEADS, LIMIT, RAMP = 64, 2, 4, 256, 32
STEPS, DELAY, BATCH, RATE, PRICE, SEEDS = 1500, 500, 8, 1e-3, 1e-4, 5
FAST, SLOW = 0.01, 0.001  # learning rates of spans: the default of `parameter_groups`, and that of the weights
PROBE_EVERY = 8
HELD_OUT = 64


class Arm(NamedTuple):
    """How spans are learned.

    Attributes
    ----------
    start : float
        The span of all heads before the first step.
    span_rate : float
        The learning rate of spans, which are learned as shares of the limit.
    price_from, spans_from : int
        The first step with a price, and the first step in which spans move.
    probe : bool
        Whether heads have a longer span in one step of `PROBE_EVERY`.
    """

    start: float
    span_rate: float = FAST
    price_from: int = 0
    spans_from: int = 0
    probe: bool = False


ARMS = {
    "full attention": Arm(LIMIT, FAST, STEPS, STEPS),
    "0, fast": Arm(0),
    "half, fast": Arm(LIMIT / 2),
    "limit, fast": Arm(LIMIT),
    "limit, fast, price after a delay": Arm(LIMIT, FAST, DELAY),
    "limit, fast, held during the delay": Arm(LIMIT, FAST, DELAY, DELAY),
    "0, fast, probe": Arm(0, probe=True),
    "0, slow": Arm(0, SLOW),
    "half, slow": Arm(LIMIT / 2, SLOW),
    "limit, slow": Arm(LIMIT, SLOW),
    "limit, slow, price after a delay": Arm(LIMIT, SLOW, DELAY),
    "limit, slow, held during the delay": Arm(LIMIT, SLOW, DELAY, DELAY),
}


class ProbedSpan(AdaptiveSpan):
    """A learned span to which a number of tokens can be added for a step."""

    added: torch.Tensor | float = 0.0

    def forward(self) -> torch.Tensor:
        """Return the spans in tokens, of shape (num_heads,)."""
        return super().forward() + self.added


class Model(nn.Module):
    """Predicts what a task asks for."""

    def __init__(self, vocabulary: int, start: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.blocks = nn.ModuleList(
            TransformerBlock(WIDTH, num_heads=HEADS, max_span=LIMIT, ramp=RAMP) for _ in range(BLOCKS)
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary)
        for block in self.blocks:
            block.attention.span = ProbedSpan(HEADS, LIMIT, initial=start)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, tokens, vocabulary)."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    @property
    def spans(self) -> list[ProbedSpan]:
        """The spans of the blocks."""
        return [block.attention.span for block in self.blocks]


def loss_of(model: Model, task: Task, rng: np.random.Generator, count: int) -> torch.Tensor:
    """Return the mean loss of new sequences."""
    inputs, targets = map(torch.from_numpy, task.draw(rng, count))
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def pairs(spans: list[torch.Tensor]) -> float:
    """Return the pairs of all heads in percent of full attention."""
    heads = torch.cat(spans).detach().double().numpy()
    counts = [
        hs.cost(tokens=TOKENS, num_heads=len(heads), head_dim=1, span=z, ramp=RAMP).pairs for z in (heads, np.inf)
    ]
    return 100 * counts[0] / counts[1]


def train(task: Task, arm: Arm, seed: int) -> dict[str, Any]:
    """Train one model and return what it reached."""
    torch.manual_seed(seed)
    rng, probes = np.random.default_rng(seed), np.random.default_rng(seed + 1000)
    model = Model(task.vocabulary, arm.start)
    optimizer = torch.optim.AdamW(parameter_groups(model, span_lr=arm.span_rate), lr=RATE)
    work, history = 0.0, []
    began = time.process_time()
    for step in range(STEPS):
        for span in model.spans:
            span.fraction.requires_grad_(step >= arm.spans_from)
            added = probes.uniform(0, LIMIT, HEADS) if arm.probe and step % PROBE_EVERY == 0 else np.zeros(HEADS)
            span.added = torch.from_numpy(added).float()
        loss = loss_of(model, task, rng, BATCH)
        if step >= arm.price_from:
            loss = loss + PRICE * sum(AdaptiveSpan.forward(span).mean() for span in model.spans)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            work += pairs([span() for span in model.spans]) / STEPS
            if step % 50 == 49:
                history.append([[round(z, 1) for z in AdaptiveSpan.forward(span).tolist()] for span in model.spans])
    for span in model.spans:
        span.added = 0.0
    with torch.no_grad():
        held_out = float(loss_of(model, task, np.random.default_rng(seed + 2000), HELD_OUT))
        spans = [span() for span in model.spans]
    if not math.isfinite(held_out):
        raise FloatingPointError("the loss of a run is not finite")
    return {
        "loss": round(held_out, 4),
        "spans": history[-1],
        "closed": int((torch.cat(spans) < RAMP).sum()),
        "pairs": round(pairs(spans), 1),
        "pairs_of_all_steps": round(work, 1),
        "history": history,
        "processor_seconds": round(time.process_time() - began),
    }


def main() -> None:
    """Do the runs that are not stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    hs.set_num_threads(1)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in args.tasks:
        path = RESULTS / f"{name}.json"
        about = {"steps": STEPS, "delay": DELAY, "limit": LIMIT, "ramp": RAMP, "price": PRICE}
        stored = {"machine": describe_machine(1), "about": about, "reach": TASKS[name].reach, "runs": {}}
        if path.exists():
            stored = json.loads(path.read_text())
        for seed in range(SEEDS):
            for arm in ARMS:
                key = f"{arm}; seed {seed}"
                if key not in stored["runs"]:
                    stored["runs"][key] = train(TASKS[name], ARMS[arm], seed)
                    replace_file(path, (json.dumps(stored) + "\n").encode())
                    shown = {field: value for field, value in stored["runs"][key].items() if field != "history"}
                    print(name, key, shown, flush=True)


if __name__ == "__main__":
    main()
