"""The sections of the report, in the order of the page, with their pictures."""

from __future__ import annotations

import math
import platform
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import headspan as hs
from headspan.lab.report import measure, pictures
from headspan.lab.report.numbers import finite_rows
from headspan.lab.report.page import number_table, passage_html, table
from headspan.lab.report.subject import Subject
from headspan.lab.report.view import view_section
from headspan.lab.runs import Run, replace_file
from headspan.lab.training.baselines import Pairs
from headspan.ops.spans import farthest

Array = NDArray[Any]

PASSAGE = 1500
MAP_TOKENS = 2048  # maximum number of tokens for which complete attention maps are computed
OPENED_TOKENS = 64


def about(subject: Subject) -> str:
    """Return the title and a table of the text, the model and its training."""
    text, model, training = subject.text, subject.model, subject.training
    parameters = sum(array.size for array in subject.state.parameters.values())
    sizes = ", ".join(f"{len(text.part(name)):,} {name}" for name in ("train", "validation", "test"))
    rows = {
        "text": f"{text.name}: {len(text.data):,} bytes ({sizes}), "
        f"{len(text.vocabulary)} different byte values; sha256 {text.sha256[:16]}…",
        "model": f"{_counted(model.layers, 'layer')} of {_counted(model.heads, 'head')}, width {model.width}, "
        f"MLPs of {model.hidden}, rotary positions, {parameters:,} parameters",
        "attention": f"{_spans_of(subject)}, soft edge (ramp) {model.ramp:g}",
        "training": f"{subject.state.step:,} of {training.steps:,} steps in "
        f"{subject.state.seconds / 60:.1f} minutes; {training.batch} windows of "
        f"{training.context} characters per step{_streamed(subject)}; Adam, peak rate {training.learning_rate:g}; "
        f"{training.span_penalty:g} nats penalty per character of mean span",
    }
    return (
        f"<h1>What {_counted(model.layers * model.heads, 'head')} learned to look at</h1>"
        f"<p>A character-level language model trained with headspan. A character is a byte.</p>{table(rows)}"
    )


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _streamed(subject: Subject) -> str:
    if subject.training.batches == "windows":
        return ""
    return f", which continue from step to step and see up to {subject.model.reach:,} earlier characters"


def _spans_of(subject: Subject) -> str:
    model = subject.model
    if model.span_kind == "fixed":
        return f"fixed spans of {model.span_init:g} characters"
    if model.span_kind == "dynamic":
        limit, start = model.span_limit, model.span_init
        return f"spans from 0 to {limit:g} characters, predicted by each character, initially {start:g}"
    spread = f" to {model.first_spans[-1]:g}" if model.span_spread > 1 else ""
    return f"learned spans from 0 to {model.span_limit:g} characters, initially {model.span_init:g}{spread}"


def quality(subject: Subject, known: dict[str, float]) -> str:
    """Return the section on the bits per character of the model and of compressors."""
    names = ["this model", *known]
    values = [subject.test_bits, *known.values()]
    bars = pictures.bits_bars(names, values)
    numbers = [f"{name}: {_shown(value, '.3f')}" for name, value in zip(names, values, strict=True)]
    rows = subject.rows
    parts = [
        "<h2>How well does it predict?</h2>",
        f"<p>Bits per character (byte) on {len(subject.bits):,} held-out characters that were "
        "not used in training. <code>gzip -9</code> and <code>xz -9</code> compress the same "
        "held-out text, without any training text. The unigram entropy uses only the "
        f"frequencies of the characters. {'; '.join(numbers).capitalize()}.</p>",
        subject.figure(bars, "bits", "Bits per character of the model and of compressors"),
    ]
    if rows:
        checked = [row for row in rows if "validation" in row]
        picture = pictures.learning(
            np.array([row["step"] for row in rows]),
            np.array([row["bits"] for row in rows], float),
            np.array([row["step"] for row in checked]),
            np.array([row["validation"] for row in checked], float),
        )
        parts.append(subject.figure(picture, "learning", "Bits per character during training"))
    return "\n".join(parts)


def spans_of_heads(subject: Subject) -> str:
    """Return the section on the spans and their history during training."""
    model, values = subject.model, subject.spans
    heads = [f"head {head}" for head in range(values.shape[1])]
    lines = []
    for layer, row in enumerate(values):
        lines.append([f"layer {layer}, span", *(_shown(span, ".1f") for span in row)])
        lines.append([f"layer {layer}, reach", *(_shown(reach, ".0f") for reach in farthest(row, model.ramp))])
    numbers = number_table(["in characters", *heads], lines)
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
        subject.figure(picture, "spans", "Learned span and reach of every head"),
        numbers,
        *_history(subject),
    ]
    return "\n".join(parts)


def _history(subject: Subject) -> list[str]:
    rows = finite_rows(subject.rows)
    if rows and rows[-1]["step"] < subject.state.step:  # training ended between two rows
        rows += finite_rows([{"step": subject.state.step, "spans": subject.spans.tolist()}])
    if not rows:
        return []
    steps = np.array([0, *(row["step"] for row in rows)])
    start = np.broadcast_to(subject.model.first_spans, subject.spans.shape)
    history = np.stack([start, *(np.array(row["spans"]) for row in rows)])
    picture = pictures.span_history(steps, history, subject.model.span_limit, subject.model.ramp)
    return [subject.figure(picture, "history", "Spans during training")]


def _shown(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "not a number"


def _widest_and_narrowest(spans: Array, ramp: float) -> str:
    low, high = float(spans.min()), float(spans.max())
    words = (
        f"The widest head has a span of {high:.0f} characters, the narrowest {low:.0f}, "
        f"the mean is {float(spans.mean()):.0f}. "
    )
    return words + (
        f"Beyond the span, the weights of a head fall to 0 over {ramp:g} more characters, up to its reach: "
        f"the two heads look at most {farthest(high, ramp):.0f} and {farthest(low, ramp):.0f} characters back."
    )


def saved(saving: measure.Saving | None, pairs: Pairs | None) -> str:
    """Return the section on the work and time that the spans save."""
    if saving is None or pairs is None:
        return "<h2>What do the spans save?</h2><p>The spans are not all finite, so there is nothing to measure.</p>"

    def times(name: str, short: float, full: float) -> tuple[str, str, str, str]:
        return name, f"{1e3 * short:.2f} ms", f"{1e3 * full:.2f} ms", f"{full / short:.1f} times"

    batch, heads, tokens, head_dim = saving.shape
    before = f", which see up to {pairs.earlier:,} earlier ones" if pairs.earlier else ""
    counted = (
        "pairs of characters",
        f"{pairs.computed:,}",
        f"{pairs.full:,}",
        f"{pairs.full / pairs.computed:.1f} times",
    )
    cache = (
        "keys and values cached for generation",
        f"{saving.cache / 1024:,.0f} KiB",
        f"{saving.full_cache / 1024:,.0f} KiB",
        f"{saving.full_cache / saving.cache:.1f} times",
    )
    rows = [
        counted,
        times("forward", saving.forward, saving.full_forward),
        times("forward and backward", saving.both, saving.full_both),
        cache,
    ]
    head = ["", "learned spans", "full causal attention", "saved"]
    return (
        "<h2>What do the spans save?</h2>"
        f"{number_table(head, rows)}"
        f"<p>Pairs are counted over all heads in one window of {pairs.tokens:,} characters{before}. Times are "
        f"measured: the attention of all layers over {_counted(batch, 'window')} of {tokens:,} characters with "
        f"{_counted(heads, 'head')} of {head_dim} channels, as the median of {saving.rounds} rounds that alternate "
        f"between the two kinds, with {_counted(hs.get_num_threads(), 'thread')}.</p>"
    )


def opened(subject: Subject, tokens: Array) -> list[str]:
    """Return the section on predicted spans along a text, or an empty list if characters do not predict spans."""
    if subject.model.span_kind != "dynamic" or not math.isfinite(subject.test_bits):
        return []
    count = min(len(tokens), OPENED_TOKENS)
    shown = pictures.glyphs(subject.text.vocabulary[tokens[-count:]])
    by_character = _by_character(subject, len(tokens))[:, :, -count:]
    picture = pictures.opened(by_character, subject.model.ramp, shown)
    return [
        "<h2>Which characters have long spans?</h2>",
        f"<p>Each character predicts its own spans. The picture shows those of {count} characters of a held-out "
        "passage. In the tables and the other pictures, a span is the mean over a passage.</p>",
        subject.figure(picture, "opened", "Predicted spans along a text", wide=True),
    ]


def _by_character(subject: Subject, count: int) -> Array:
    """Return the predicted spans of the first `count` characters of a passage, (layers, heads, characters)."""
    spans = np.stack([span[0] for span in subject.layer_spans])
    missing = max(0, count - spans.shape[-1])  # the last block of a map may extend beyond the passage
    return np.pad(spans, ((0, 0), (0, 0), (0, missing)), mode="edge")[..., :count]


def _beginning(
    layers: list[measure.Layer], spans: Sequence[Any], count: int
) -> tuple[list[measure.Layer], Sequence[Any]]:
    """Return layers and spans of the first `count` characters, which do not depend on later ones."""
    first = [(query[:, :, :count], key[:, :, :count], value[:, :, :count]) for query, key, value in layers]
    return first, [span[..., :count] if np.ndim(span) == 3 else span for span in spans]


def maps(subject: Subject, layers: list[measure.Layer], tokens: Array) -> str:
    """Return the section with the attention maps and distance profiles of all heads."""
    heading = "<h2>Where does each head put its weight?</h2>"
    if not math.isfinite(subject.test_bits):
        return f"{heading}<p>The weights are not finite, so there is nothing to draw.</p>"
    spans, ramp = subject.spans, subject.model.ramp
    sample = measure.sample_maps(*_beginning(layers, subject.layer_spans, MAP_TOKENS), ramp)
    shown = subject.text.vocabulary[tokens[:MAP_TOKENS][-sample.close_tokens :]]
    layer, head = sample.close_head
    title = f"Layer {layer}, head {head} (the widest), character by character"
    profiles = pictures.distance_profiles(sample.profiles, spans, ramp)
    size = sample.maps.shape[-1] * sample.block
    by_row = spans if subject.model.span_kind != "dynamic" else _by_character(subject, size)
    maps = pictures.attention_maps(sample.maps, sample.block, by_row, ramp)
    close = pictures.close_map(sample.close, pictures.glyphs(shown), title)
    return "\n".join(
        [
            heading,
            "<p>The end of a held-out passage, in the head with the longest span.</p>",
            subject.figure(close, "close", title, wide=True),
            f"<p>All heads on the same passage, in blocks of {sample.block} by {sample.block} characters. The "
            "title of a map gives the span and the reach of its head; a solid and a dashed line show where they end. "
            "A line that would cover a whole band is omitted. Grey pairs are not computed: those beyond the ramp, and "
            "those above the diagonal, since no character looks at later ones.</p>",
            subject.figure(maps, "maps", "Attention map of every head", wide=True),
            "<p>Mean weight at each distance, on the same passage. A triangle marks the span; the weight is exactly "
            "0 from one ramp beyond it.</p>",
            subject.figure(profiles, "profiles", "Mean weight against distance", wide=True),
        ]
    )


def view(subject: Subject, layers: list[measure.Layer], tokens: Array) -> list[str]:
    """Return the interactive view, or an empty list if weights are not finite or characters predict spans."""
    if not math.isfinite(subject.test_bits) or subject.model.span_kind == "dynamic":
        return []  # the sliders of the view set one span per head
    return [view_section(layers, subject.spans, subject.model.ramp, subject.text.vocabulary[tokens])]


def passage(subject: Subject) -> str:
    """Return the section with a passage in which each character is shaded by its bits."""
    data = subject.text.part("test")
    bits = subject.bits[:PASSAGE]
    return (
        "<h2>A held-out passage</h2>"
        "<p>The beginning of the held-out text. The stronger the shade of a character, the less the model "
        "expected it. Point at a character to see its number of bits.</p>"
        f"{passage_html(data[1 : len(bits) + 1], bits)}"
    )


def reproduce(subject: Subject) -> str:
    """Return the section with the commands and versions that reproduce the run."""
    config = subject.run.config
    build = ", ".join(f"{name} {_written(value)}" for name, value in hs.build_info().items())
    rows = {
        "command": f"`{config.get('command', '')}`",
        **_extensions(subject.run),
        "seed": str(subject.training.seed),
        "run folder": str(subject.run.path),
        "write the report": f"`headspan report {shlex.quote(str(subject.run.path))}`",
        "text": f"{subject.text.name}, sha256 {subject.text.sha256}",
        "this report": f"headspan {hs.__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, {sys.platform} {platform.machine()}",
        "core": build,
    }
    return f"<h2>Reproduce this report</h2>{table(rows)}"


def _extensions(run: Run) -> dict[str, str]:
    """Return the commands that extended the run."""
    path = shlex.quote(str(run.path))
    return {
        f"extension {number}": f"at step {at:,}: `headspan train --resume {path} --extend {by}`"
        for number, (at, by) in enumerate(run.extensions(), 1)
    }


def _written(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
