"""The report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
import math
import platform
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import headspan as hs
from headspan.demo import model as lm
from headspan.demo.report import measure, pictures
from headspan.demo.report.numbers import document, finite_rows, history_of, mean_or_none, saving_numbers
from headspan.demo.report.page import PAGE, figure, number_table, passage_html, table, with_code
from headspan.demo.report.view import view_section
from headspan.demo.runs import Row, Run, State, replace_file
from headspan.demo.text import Text, baselines
from headspan.demo.train import TrainConfig, check_same_text, configs, current_state
from headspan.explorer.page import POLICY, style
from headspan.ops.spans import farthest

__all__ = ["write_report"]

Array = NDArray[Any]

PASSAGE = 1500


@dataclass(frozen=True)
class _Subject:
    """All that the sections of a report are made of."""

    run: Run
    text: Text
    model: lm.ModelConfig
    training: TrainConfig
    state: State
    bits: Array  # of every character of the test text but the first
    rows: list[Row]  # the metrics up to the state; a run that was killed may have noted more
    pictures: dict[str, Any] = field(default_factory=dict)  # drawn so far, by their names

    @property
    def spans(self) -> Array:
        return self.state.parameters["span"]

    @property
    def test_bits(self) -> float:
        return float(self.bits.mean(dtype=np.float64))

    def figure(self, picture: Any, name: str, label: str, *, wide: bool = False) -> str:
        """Return a picture for the page, and keep it."""
        self.pictures[name] = picture
        return figure(pictures.for_page(pictures.to_svg(picture, name)), label, wide=wide)


def write_report(run: Run, text: Text, *, png: Path | None = None) -> dict[str, Any]:
    """Write ``report.html``, ``spans.svg`` and ``summary.json`` into a run folder.

    Numbers that are not finite are said to be so on the page, and are None in what is returned.

    Parameters
    ----------
    run : Run
        It may be finished, interrupted or not begun.
    text : Text
        The text it was trained on.
    png : Path, optional
        Folder for the pictures as PNG files; it is made if there is none.

    Returns
    -------
    dict
        The numbers of the report, as in ``summary.json``.

    Examples
    --------
    Of a run of ``headspan demo``, in a few seconds:

    >>> from pathlib import Path
    >>> from headspan.demo.runs import Run
    >>> from headspan.demo.text import load_text
    >>> from headspan.report import write_report
    >>> run = Run.open(Path("runs/demo-001"))  # doctest: +SKIP
    >>> write_report(run, load_text(run.config["text"]))["mean span"]  # doctest: +SKIP
    49.6
    """
    check_same_text(run, text)
    model, training = configs(run)
    state = current_state(run, model, training.seed)
    test = text.encode(text.part("test"))
    if png is not None:
        png.mkdir(parents=True, exist_ok=True)
    batch = measure.sequences(test, training.context, training.batch)
    bits, layers, saving = np.full(test.size - 1, np.nan), [], None
    if np.isfinite(state.parameters["span"]).all():  # attention takes no others
        with np.errstate(all="ignore"):  # weights may hold NaN; the report says so
            bits = lm.surprisal(state.parameters, model, test, training.context)
            layers = lm.trace(state.parameters, model, batch)
        saving = measure.measure_saving(layers, state.parameters["span"], model.ramp)
    rows = [row for row in run.metrics() if row["step"] <= state.step]
    subject = _Subject(run, text, model, training, state, bits, rows)
    known = baselines(text.part("test").tobytes())
    sections = [
        _about(subject),
        _quality(subject, known),
        _spans(subject),
        _saving(saving),
        _maps(subject, layers, batch[0]),
        *_view(subject, layers, batch[0]),
        _passage(subject),
        _reproduce(subject),
    ]
    title = f"headspan: {html.escape(text.name)}"
    warning = "".join(f'<p class="warning">{with_code(message)}</p>' for message in _warnings(subject))
    page = PAGE.format(title=title, policy=POLICY, style=style(), warning=warning, body="\n".join(sections))
    summary = document(_summary(subject, known, saving))
    replace_file(run.path / "report.html", page.encode(errors="backslashreplace"))  # names of files may be no text
    replace_file(run.path / "summary.json", summary.encode())
    if png is not None:
        for name, picture in subject.pictures.items():
            replace_file(png / f"{name}.png", pictures.to_png(picture))
    numbers: dict[str, Any] = json.loads(summary)
    return numbers


def _summary(subject: _Subject, known: dict[str, float], saving: measure.Saving | None) -> dict[str, Any]:
    text, model, state = subject.text, subject.model, subject.state
    return {
        "text": text.name,
        "sha256": text.sha256,
        "characters": {name: len(text.part(name)) for name in ("train", "test", "validation")},
        "parameters": sum(array.size for array in state.parameters.values()),
        "step": state.step,
        "steps": subject.training.steps,
        "finished": state.step >= subject.training.steps,
        "warnings": _warnings(subject),
        "training seconds": round(state.seconds, 3),
        "test characters": len(subject.bits),
        "test bits per character": subject.test_bits,
        **{f"{name}, bits per character": value for name, value in known.items()},
        "spans": subject.spans.tolist(),
        "mean span": mean_or_none(subject.spans),
        "span limit": model.span_limit,
        "ramp": model.ramp,
        **saving_numbers(saving),
        "history": history_of(subject.rows),
    }


def _warnings(subject: _Subject) -> list[str]:
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
    return messages


def _about(subject: _Subject) -> str:
    text, model, training = subject.text, subject.model, subject.training
    parameters = sum(array.size for array in subject.state.parameters.values())
    sizes = ", ".join(f"{len(text.part(name)):,} {name}" for name in ("train", "test", "validation"))
    rows = {
        "text": f"{text.name}: {len(text.data):,} bytes ({sizes}), "
        f"{len(text.vocabulary)} different byte values; sha256 {text.sha256[:16]}…",
        "model": f"{model.layers} layers of {model.heads} heads, width {model.width}, "
        f"perceptrons of {model.hidden}, rotary positions, {parameters:,} parameters",
        "attention": f"spans learned in 0 to {model.span_limit:g} characters from "
        f"{model.span_init:g}, soft edge (ramp) {model.ramp:g}",
        "training": f"{subject.state.step:,} of {training.steps:,} steps in "
        f"{subject.state.seconds / 60:.1f} minutes; {training.batch} windows of "
        f"{training.context} characters a step; Adam, peak rate {training.learning_rate:g}; "
        f"{training.span_penalty:g} nats penalty for each character of mean span",
    }
    return (
        f"<h1>What {model.layers * model.heads} heads learned to look at</h1>"
        f"<p>A character model trained with headspan. A character is a byte.</p>{table(rows)}"
    )


def _quality(subject: _Subject, known: dict[str, float]) -> str:
    names = ["this model", *known]
    values = [subject.test_bits, *known.values()]
    bars = pictures.bits_bars(names, values)
    rows = subject.rows
    parts = [
        "<h2>How well does it predict?</h2>",
        f"<p>Bits per character (byte) on {len(subject.bits):,} held-out characters that were "
        "never trained on. <code>gzip -9</code> and <code>xz -9</code> code the same "
        "held-out text and know nothing but it; the unigram entropy is what the letter "
        "frequencies alone leave.</p>",
        subject.figure(bars, "bits", "Bits per character of the model and of compressors"),
        number_table(["", "bits per character"], [[n, _shown(v, ".3f")] for n, v in zip(names, values, strict=True)]),
    ]
    if rows:
        checked = [row for row in rows if "validation" in row]
        picture = pictures.learning(
            np.array([row["step"] for row in rows]),
            np.array([row["bits"] for row in rows], float),
            np.array([row["step"] for row in checked]),
            np.array([row["validation"] for row in checked], float),
        )
        parts.append(subject.figure(picture, "learning", "Bits per character while training"))
    return "\n".join(parts)


def _spans(subject: _Subject) -> str:
    model, values = subject.model, subject.spans
    heads = [f"head {head + 1}" for head in range(values.shape[1])]
    lines = [[f"layer {layer + 1}", *(_shown(span, ".1f") for span in row)] for layer, row in enumerate(values)]
    numbers = number_table(["span in characters", *heads], lines)
    heading = "<h2>How far does each head look?</h2>"
    if not np.isfinite(values).all():
        (subject.run.path / "spans.svg").unlink(missing_ok=True)
        return "\n".join([heading, "<p>The spans are not all finite.</p>", numbers, *_history(subject)])
    picture = pictures.spans(values, model.span_limit, model.ramp)
    standalone = pictures.to_svg(picture, "spans").replace("<svg ", '<svg style="background: white" ', 1)
    replace_file(subject.run.path / "spans.svg", standalone.encode())
    parts = [
        heading,
        f"<p>{_widest_and_narrowest(values, model.ramp)}</p>",
        subject.figure(picture, "spans", "Learned span of every head"),
        numbers,
        *_history(subject),
    ]
    return "\n".join(parts)


def _history(subject: _Subject) -> list[str]:
    rows = finite_rows(subject.rows)
    if rows and rows[-1]["step"] < subject.state.step:  # it ended between two rows
        rows += finite_rows([{"step": subject.state.step, "spans": subject.spans.tolist()}])
    if not rows:
        return []
    steps = np.array([0, *(row["step"] for row in rows)])
    start = np.full_like(subject.spans, subject.model.span_init)
    history = np.stack([start, *(np.array(row["spans"]) for row in rows)])
    picture = pictures.span_history(steps, history, subject.model.span_limit)
    return [subject.figure(picture, "history", "Spans while training")]


def _shown(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "not a number"


def _widest_and_narrowest(spans: Array, ramp: float) -> str:
    low, high = float(spans.min()), float(spans.max())
    words = (
        f"The widest head has a span of {high:.0f} characters, the narrowest {low:.0f}, "
        f"the mean is {float(spans.mean()):.0f}. "
    )
    return words + (
        f"Beyond its span a head's weights fade over {ramp:g} more characters and are 0 after that: "
        f"the two look at most {farthest(high, ramp):.0f} and {farthest(low, ramp):.0f} characters back."
    )


def _saving(saving: measure.Saving | None) -> str:
    if saving is None:
        return "<h2>What do the spans save?</h2><p>The spans are not all finite, so there is nothing to measure.</p>"

    def times(name: str, short: float, full: float) -> tuple[str, str, str, str]:
        return name, f"{1e3 * short:.2f} ms", f"{1e3 * full:.2f} ms", f"{full / short:.1f} times"

    batch, heads, tokens, head_dim = saving.shape
    pairs = (
        "pairs of characters",
        f"{saving.pairs:,}",
        f"{saving.full_pairs:,}",
        f"{saving.full_pairs / saving.pairs:.1f} times",
    )
    rows = [
        pairs,
        times("forward", saving.forward, saving.full_forward),
        times("forward and backward", saving.both, saving.full_both),
    ]
    head = ["", "learned spans", "full causal attention", "saved"]
    return (
        "<h2>What do the spans save?</h2>"
        f"{number_table(head, rows)}"
        f"<p>Pairs are counted, times are measured: the attention of all layers for {batch} "
        f"windows of {tokens} characters, {heads} heads of {head_dim} channels, median of "
        f"{saving.rounds} rounds in which the two kinds take turns, {hs.get_num_threads()} "
        "threads.</p>"
    )


def _maps(subject: _Subject, layers: list[measure.Layer], tokens: Array) -> str:
    heading = "<h2>Where does each head put its weight?</h2>"
    if not math.isfinite(subject.test_bits):
        return f"{heading}<p>The weights are not finite, so there is nothing to draw.</p>"
    spans, ramp = subject.spans, subject.model.ramp
    seen = measure.look(layers, spans, ramp)
    shown = subject.text.vocabulary[tokens[-seen.close_tokens :]]
    layer, head = seen.close_head
    title = f"Layer {layer + 1}, head {head + 1} (the widest), character by character"
    profiles = pictures.distance_profiles(seen.profiles, spans, ramp)
    maps = pictures.attention_maps(seen.maps, seen.block, spans, ramp)
    close = pictures.close_map(seen.close, pictures.glyphs(shown), title)
    return "\n".join(
        [
            heading,
            "<p>Mean weight at each distance back, on a held-out passage. A triangle marks the "
            "span; the weight is exactly 0 one ramp beyond it.</p>",
            subject.figure(profiles, "profiles", "Mean weight against distance", wide=True),
            f"<p>The same passage as maps, in blocks of {seen.block} by {seen.block} characters. "
            "The number above a map is the span. The solid line is where it ends, the dashed one the end of the ramp; "
            "a line that would cover a whole band is left out. What is grey is not computed: pairs beyond the ramp, "
            "and above the diagonal, as no character looks at later ones.</p>",
            subject.figure(maps, "maps", "Attention map of every head", wide=True),
            subject.figure(close, "close", title, wide=True),
        ]
    )


def _view(subject: _Subject, layers: list[measure.Layer], tokens: Array) -> list[str]:
    if not math.isfinite(subject.test_bits):
        return []
    return [view_section(layers, subject.spans, subject.model.ramp, subject.text.vocabulary[tokens])]


def _passage(subject: _Subject) -> str:
    data = subject.text.part("test")
    bits = subject.bits[:PASSAGE]
    return (
        "<h2>A held-out passage</h2>"
        "<p>The beginning of the held-out text. The stronger the shade of a character, the less the model "
        "expected it; point at one to read how many bits it took.</p>"
        f"{passage_html(data[1 : len(bits) + 1], bits)}"
    )


def _reproduce(subject: _Subject) -> str:
    config = subject.run.config
    build = ", ".join(f"{name} {_written(value)}" for name, value in hs.build_info().items())
    rows = {
        "command": f"`{config.get('command', '')}`",
        "seed": str(subject.training.seed),
        "run folder": str(subject.run.path),
        "report again": f"`headspan report {shlex.quote(str(subject.run.path))}`",
        "text": f"{subject.text.name}, sha256 {subject.text.sha256}",
        "this report": f"headspan {hs.__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, {sys.platform} {platform.machine()}",
        "core": build,
    }
    return f"<h2>How to get this again</h2>{table(rows)}"


def _written(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
