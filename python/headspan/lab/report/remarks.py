"""Remarks at the top of a report, such as that training ended early."""

from __future__ import annotations

import math
import shlex

from headspan.lab.config import ModelConfig, TrainConfig
from headspan.lab.report.numbers import finite_rows
from headspan.lab.report.subject import Subject
from headspan.lab.runs import State
from headspan.ops.spans import farthest


def remarks(subject: Subject) -> list[str]:
    """Return the sentences of the remarks. They hold commands and options between backticks."""
    step, steps = subject.state.step, subject.training.steps
    path = shlex.quote(str(subject.run.path))
    messages = []
    if step == 0:
        messages.append("This model has not been trained yet; everything below shows its initial state.")
    elif step < steps:
        messages.append(f"Training stopped after {step} of {steps} steps.")
    if step < steps:
        messages.append(f"To continue: `headspan train --resume {path}`")
    if not math.isfinite(subject.test_bits):
        messages.append("The model's numbers are not finite; try a smaller `--learning-rate`.")
    broken = len(subject.rows) - len(finite_rows(subject.rows))
    if broken:
        messages.append(f"Spans are not finite in {broken} of the {len(subject.rows)} rows of the metrics.")
    remark = spans_at_zero(subject.model, subject.training, subject.state)
    return messages if remark is None else [*messages, remark]


def spans_at_zero(model: ModelConfig, training: TrainConfig, state: State) -> str | None:
    """Return a sentence with advice if all learned spans ended at 0, and None otherwise."""
    learned = state.step > 0 and training.span_rate > 0 and model.span_kind == "adaptive"
    if not learned:
        return None
    spans = state.parameters["span"]
    if not spans.max() < 0.5:  # spans are shown as whole characters; another remark mentions NaN
        return None
    if model.span_limit < 0.5:
        change = "their limit allows no more, so try a larger `--span-limit`"
    elif model.ramp == 0:
        change = "no span can grow without a soft edge, so try `--ramp 8`"
    elif training.span_penalty > TrainConfig.span_penalty:
        change = f"try a smaller `--span-penalty`, such as {TrainConfig.span_penalty:g}"
    else:
        # On Shakespeare with one layer, 2 heads and width 32, both spans ended at 0 for ramps 8 and 4, one at 1 for 2.
        change = f"a shorter edge requires longer spans, so try `--ramp {model.ramp / 4:g}`"
    reach = farthest(float(spans.max()), model.ramp)
    return (
        f"All spans ended at 0. With its soft edge alone, a head looks at most {reach:.0f} characters back; {change}."
    )
