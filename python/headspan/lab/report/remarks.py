"""The warnings and notes at the top of a report, such as how to continue the training."""

from __future__ import annotations

import math
import shlex

from headspan.lab.config import ModelConfig, TrainConfig
from headspan.lab.report.numbers import finite_rows
from headspan.lab.report.subject import Subject
from headspan.lab.runs import Run, State
from headspan.lab.training.baselines import has_baselines
from headspan.ops.spans import farthest


def warnings(subject: Subject) -> list[str]:
    """Return the sentences of the warnings. They hold commands and options between backticks."""
    messages = []
    if subject.state.step == 0:
        messages.append("This model has not been trained yet; everything below shows its initial state.")
    if not math.isfinite(subject.test_bits):
        messages.append("The model's numbers are not finite; try a smaller `--learning-rate`.")
    broken = len(subject.rows) - len(finite_rows(subject.rows))
    if broken:
        messages.append(f"Spans are not finite in {broken} of the {len(subject.rows)} rows of the metrics.")
    remark = spans_at_zero(subject.model, subject.training, subject.state)
    return messages if remark is None else [*messages, remark]


def notes(subject: Subject, *, baselines_follow: bool) -> list[str]:
    """Return the sentences on how far the training has come, with the command that continues it between backticks."""
    step, steps = subject.state.step, subject.training.steps
    command = f"`{command_to_continue(subject.run)}`"
    if baselines_follow:
        return [
            "Full attention and a window of equal cost are being trained for comparison. After that, this page is "
            f"written again. If their training is interrupted, continue it with {command}"
        ]
    if step < steps:
        return [f"This model has been trained for {step:,} of {steps:,} steps. To continue: {command}"]
    return []


def command_to_continue(run: Run) -> str:
    """Return the command that continues the training of a run and of its baselines."""
    return f"headspan train --resume {shlex.quote(str(run.path))}{' --baselines' * has_baselines(run)}"


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
