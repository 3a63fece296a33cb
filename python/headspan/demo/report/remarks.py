"""What has to be said of a run before its report is read."""

from __future__ import annotations

import math
import shlex

from headspan.demo.config import ModelConfig, TrainConfig
from headspan.demo.report.numbers import finite_rows
from headspan.demo.report.subject import Subject
from headspan.demo.runs import State
from headspan.ops.spans import farthest


def remarks(subject: Subject) -> list[str]:
    """Return the sentences, in which a command or an option may stand between backticks."""
    step, steps = subject.state.step, subject.training.steps
    path = shlex.quote(str(subject.run.path))
    messages = []
    if step == 0:
        messages.append("This model has not been trained yet: everything below is its first state.")
    elif step < steps:
        messages.append(f"Training stopped after {step} of {steps} steps.")
    if step < steps:
        messages.append(f"It goes on with: `headspan train --resume {path}`")
    if not math.isfinite(subject.test_bits):
        messages.append("The model's numbers are not finite; try a smaller `--learning-rate`.")
    broken = len(subject.rows) - len(finite_rows(subject.rows))
    if broken:
        messages.append(f"Of {len(subject.rows)} rows of the metrics {broken} hold spans that are not finite.")
    nowhere = spans_at_zero(subject.model, subject.training, subject.state)
    return messages if nowhere is None else [*messages, nowhere]


def spans_at_zero(model: ModelConfig, training: TrainConfig, state: State) -> str | None:
    """Return the sentence that all spans were trained away, and what to change; None if they were not."""
    learned = state.step > 0 and training.span_rate > 0 and model.span_kind == "adaptive"
    if not learned:
        return None
    spans = state.parameters["span"]
    if not spans.max() < 0.5:  # they are shown as whole characters; NaN is said elsewhere
        return None
    if model.span_limit < 0.5:
        change = "their limit allows no more: try a larger `--span-limit`"
    elif model.ramp == 0:
        change = "without a soft edge no span can grow: try `--ramp 8`"
    elif training.span_penalty > TrainConfig.span_penalty:
        change = f"try a smaller `--span-penalty`, such as {TrainConfig.span_penalty:g}"
    else:
        # One layer of two heads, width 32, on plays of Shakespeare: both at 0 with a ramp of 8 or 4, one at 1 with 2.
        change = f"a shorter edge leaves more to the spans: try `--ramp {model.ramp / 4:g}`"
    reach = farthest(float(spans.max()), model.ramp)
    return (
        f"All spans ended at 0: no head looks more than {reach:.0f} characters back, by its soft edge alone; {change}."
    )
