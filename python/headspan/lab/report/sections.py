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
from headspan.lab.model.heads import head_names
from headspan.lab.report import maps as maps_of
from headspan.lab.report import measure, pictures
from headspan.lab.report.numbers import finite_rows
from headspan.lab.report.page import number_table, pair, passage_html, table
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
    numbers = [f"{name}: {_shown(value, '.3f')}" for name, value in zip(names, values, strict=True)]
    bars = subject.figure(pictures.bits_bars(names, values), "bits", f"Bits per character. {'; '.join(numbers)}")
    return "\n".join(
        [
            "<h2>How well does it predict?</h2>",
            f"<p>The model needs {_shown(subject.test_bits, '.3f')} bits per character (byte) of {len(subject.bits):,} "
            "held-out characters, which were not used in training. <code>gzip -9</code> and <code>xz -9</code> "
            "compress the same held-out text, without any training text. The unigram entropy uses only the "
            "frequencies of the characters.</p>",
            pair(bars, _learning(subject)) if subject.rows else bars,
        ]
    )


def _learning(subject: Subject) -> str:
    checked = [row for row in subject.rows if "validation" in row]
    picture = pictures.learning(
        np.array([row["step"] for row in subject.rows]),
        np.array([row["bits"] for row in subject.rows], float),
        np.array([row["step"] for row in checked]),
        np.array([row["validation"] for row in checked], float),
    )
    ends = [f"training: {_shown(subject.rows[-1]['bits'], '.2f')}"]
    if checked:
        ends.append(f"validation: {_shown(checked[-1]['validation'], '.2f')}")
    return subject.figure(picture, "learning", f"Bits per character during training. At the end, {'; '.join(ends)}")


def spans_of_heads(subject: Subject) -> str:
    """Return the section on the spans and their history during training."""
    model, values = subject.model, subject.spans
    heading = "<h2>How far does each head look?</h2>"
    if not np.isfinite(values).all():
        (subject.run.path / "spans.svg").unlink(missing_ok=True)
        head = ["span in characters", *(f"head {head}" for head in range(values.shape[1]))]
        rows = [[f"layer {layer}", *(_shown(span, ".1f") for span in row)] for layer, row in enumerate(values)]
        return "\n".join(
            [heading, "<p>The spans are not all finite.</p>", number_table(head, rows), *_history(subject)]
        )
    picture = pictures.spans(values, model.ramp)
    standalone = pictures.to_svg(picture, "spans").replace("<svg ", '<svg style="background: white" ', 1)
    replace_file(subject.run.path / "spans.svg", standalone.encode())
    names, reach = head_names(*values.shape), farthest(values, model.ramp).ravel()
    lengths = [f"{name}: {z:.1f}, reach {x:.0f}" for name, z, x in zip(names, values.ravel(), reach, strict=True)]
    bars = subject.figure(picture, "spans", f"Span of every head in characters. {'; '.join(lengths)}")
    history = _history(subject)
    return "\n".join(
        [
            heading,
            f"<p>{_widest_and_narrowest(values, model.ramp)}</p>",
            pair(bars, *history) if history else bars,
        ]
    )


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
    names, values = head_names(*spans.shape), spans.ravel()
    wide, narrow = int(values.argmax()), int(values.argmin())
    low, high = float(values[narrow]), float(values[wide])
    return (
        f"The widest head ({names[wide]}) has a span of {high:.0f} characters, the narrowest ({names[narrow]}) one of "
        f"{low:.0f}, and the mean is {float(spans.mean()):.0f}. Layers and heads are counted from 0. "
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
    return np.stack([span[0] for span in subject.layer_spans])[..., :count]


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
    count, tokens_seen = sample.close_tokens, sample.profiles.shape[-1]
    shown = subject.text.vocabulary[tokens[:tokens_seen][-count:]]
    layer, head = sample.close_head
    title = f"Layer {layer}, head {head} (the widest), character by character"
    close = maps_of.close_map(sample.close, pictures.glyphs(shown), title)
    by_row = spans if subject.model.span_kind != "dynamic" else _by_character(subject, tokens_seen)[..., -count:]
    maps = maps_of.maps_by_distance(sample.by_distance, by_row, ramp)
    profiles = maps_of.distance_profiles(sample.profiles, spans, ramp)
    return "\n".join(
        [
            heading,
            f"<p>The head with the longest span, on the last {count} characters of a held-out passage. Each row is a "
            "character, and its shades show which earlier characters it looks at. Grey pairs are not computed: a "
            "character does not look at later ones, nor beyond its reach.</p>",
            subject.figure(close, "close", title, wide=True),
            f"<p>All heads on the same {count} characters, again with a row for each. The columns are distances: the "
            "character itself is on the left, at 0, and the axis ends at the longest reach. A solid line shows where "
            "the span of a head ends, and a dashed line its reach.</p>",
            subject.figure(maps, "maps", "Weights of every head at each distance", wide=True),
            f"<p>Mean weight at each distance, over all {tokens_seen:,} characters of the passage. A triangle marks "
            "the span; the weight is exactly 0 beyond the reach.</p>",
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
