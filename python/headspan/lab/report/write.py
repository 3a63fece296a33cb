"""Write the report of a run as one self-contained HTML file."""

from __future__ import annotations

import html
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from headspan.explorer.page import POLICY, style
from headspan.lab.model import layers as numpy_layers
from headspan.lab.model import spans_are_finite
from headspan.lab.model.forward import SpansNotFiniteError, forward
from headspan.lab.report import measure, pictures, sections
from headspan.lab.report.compared import Comparison, compare, compared, compared_numbers
from headspan.lab.report.numbers import document, history_of, mean_or_none, saving_numbers
from headspan.lab.report.page import PAGE, with_code
from headspan.lab.report.remarks import notes, warnings
from headspan.lab.report.subject import Subject
from headspan.lab.runs import Run, replace_file
from headspan.lab.text import Text, baselines
from headspan.lab.training.baselines import Pairs, pairs_of
from headspan.lab.training.start import check_same_text, configs, current_state
from headspan.lab.training.train import text_bits

__all__ = ["write_report"]


def write_report(run: Run, text: Text, *, png: Path | None = None, baselines_follow: bool = False) -> dict[str, Any]:
    """Write ``report.html``, ``spans.svg`` and ``summary.json`` into a run folder.

    Numbers that are not finite are marked on the page and are None in the returned dict.

    Parameters
    ----------
    run : Run
        A finished, interrupted or not yet started run.
    text : Text
        The text that the run was trained on.
    png : Path, optional
        Folder for the pictures as PNG files, which is created if necessary. Default: no PNG files.
    baselines_follow : bool
        Whether the page says that baselines are being trained and that it will be written again. Default: False.

    Returns
    -------
    dict
        The numbers of the report, as in ``summary.json``.

    See Also
    --------
    train : Starts or resumes training.
    load_run : The weights, the history and the model of a run.

    Examples
    --------
    Write the report of a run of ``headspan demo`` again, which takes a few seconds:

    >>> from pathlib import Path
    >>> from headspan.lab.runs import Run
    >>> from headspan.lab.text import load_text
    >>> from headspan.lab import write_report
    >>> run = Run.open(Path("runs/demo-001"))  # doctest: +SKIP
    >>> write_report(run, load_text(run.config["text"]))["mean span"]  # doctest: +SKIP
    12.0
    """
    check_same_text(run, text)
    model, training = configs(run)
    state = current_state(run, model, training.seed)
    test = text.encode(text.part("test"))
    if png is not None:
        png.mkdir(parents=True, exist_ok=True)
    batch = measure.sequences(test, training.context + training.earlier(model), training.batch)
    bits, layers, saving = np.full(test.size - 1, np.nan), [], None
    pairs: Pairs | None = None
    spans: Any = state.parameters.get("span", [np.nan] * model.layers)
    result = None
    if spans_are_finite(state.parameters):  # attention does not accept other spans
        with np.errstate(all="ignore"), suppress(SpansNotFiniteError):  # weights may hold NaN, which the report says
            bits = text_bits(state.parameters, model, training, test)
            result = forward(numpy_layers, state.parameters, model, batch)
    if result is not None:
        layers, spans = result.heads, result.spans
        saving = measure.measure_saving(layers, spans, model.ramp)
        pairs = pairs_of(state.parameters, model, training, text)
    rows = [row for row in run.metrics() if row["step"] <= state.step]
    subject = Subject(run, text, model, training, state, bits, spans, pairs, rows)
    known = baselines(text.part("test").tobytes())
    comparison = compare(subject)
    parts = [
        sections.about(subject),
        sections.quality(subject, known),
        sections.spans_of_heads(subject),
        sections.saved(saving, pairs),
        *compared(subject, comparison),
        *sections.opened(subject, batch[0]),
        sections.maps(subject, layers, batch[0]),
        *sections.view(subject, layers, batch[0]),
        sections.passage(subject),
        sections.reproduce(subject),
    ]
    title = f"headspan: {html.escape(text.name)}"
    alerts = warnings(subject)
    messages = {"warning": alerts, "note": notes(subject, baselines_follow=baselines_follow)}
    remarks = "".join(f'<p class="{kind}">{with_code(text)}</p>' for kind, texts in messages.items() for text in texts)
    page = PAGE.format(title=title, policy=POLICY, style=style(), remarks=remarks, body="\n".join(parts))
    summary = document(_summary(subject, known, saving, comparison, alerts))
    replace_file(run.path / "report.html", page.encode(errors="backslashreplace"))  # file names may be invalid Unicode
    replace_file(run.path / "summary.json", summary.encode())
    if png is not None:
        for name, picture in subject.pictures.items():
            replace_file(png / f"{name}.png", pictures.to_png(picture))
    numbers: dict[str, Any] = json.loads(summary)
    return numbers


def _summary(
    subject: Subject,
    known: dict[str, float],
    saving: measure.Saving | None,
    comparison: Comparison | None,
    alerts: list[str],
) -> dict[str, Any]:
    text, model, state = subject.text, subject.model, subject.state
    return {
        "text": text.name,
        "sha256": text.sha256,
        "characters": {name: len(text.part(name)) for name in ("train", "validation", "test")},
        "parameters": sum(array.size for array in state.parameters.values()),
        "step": state.step,
        "steps": subject.training.steps,
        "finished": state.step >= subject.training.steps,
        "warnings": alerts,
        "notes": notes(subject, baselines_follow=False),
        "training seconds": round(state.seconds, 3),
        "test characters": len(subject.bits),
        "test bits per character": subject.test_bits,
        **{f"{name}, bits per character": value for name, value in known.items()},
        "spans": subject.spans.tolist(),
        "mean span": mean_or_none(subject.spans),
        "kind of spans": model.span_kind,
        "span limit": model.span_limit,
        "ramp": model.ramp,
        "pairs": None if subject.pairs is None else subject.pairs.computed,
        "full pairs": None if subject.pairs is None else subject.pairs.full,
        **saving_numbers(saving),
        "compared": compared_numbers(comparison),
        "history": history_of(subject.rows),
    }
