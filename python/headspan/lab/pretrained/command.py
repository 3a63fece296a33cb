"""The commands ``headspan fit`` and ``headspan look``."""

from __future__ import annotations

import argparse
import importlib.util
import webbrowser
from pathlib import Path

import headspan.lab.pretrained.extra

# isort: split
import headspan.torch
from headspan import _extra
from headspan.lab.pretrained.fit import Settings, described, fit_in
from headspan.lab.pretrained.loading import load_pretrained
from headspan.lab.pretrained.report import write_report
from headspan.lab.runs import RunError


def fit(options: argparse.Namespace) -> int:
    """Fit spans to a model in a new folder, or go on in a folder, and write the report."""
    if options.resume is not None:
        folder = options.resume
        settings = Settings.read(folder)
    else:
        settings = Settings(
            model=options.model,
            texts=described(options.text),
            tokens=options.tokens,
            steps=options.steps,
            first_tokens=options.first_tokens,
            ramp=options.ramp,
            budget=options.budget,
            budget_of="cache",
            tolerance=options.tolerance,
        )
        folder = options.out or Path("fits") / Path(options.model).stem
        _make(folder)
    try:
        fitted = fit_in(folder, settings)
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()  # nothing came of it, and the command can be given again
    print(fitted.fit)
    write_report(folder, settings, fitted)
    print(f"{folder / 'spans.json'}\n{folder / 'report.html'}")
    if options.open:
        webbrowser.open((folder / "report.html").resolve().as_uri())
    return 0


def look(options: argparse.Namespace) -> int:
    """Write the interactive view of a model on a text to one file."""
    if importlib.util.find_spec("anywidget") is None:
        raise _extra.missing("headspan look", "anywidget", "pretrained", "anywidget")
    try:
        text = options.text.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise RunError(f"{options.text} does not exist") from None
    loaded = load_pretrained(options.model)
    ids = loaded.tokenizer(text, verbose=False).input_ids[: options.tokens]
    if not ids:
        raise RunError(f"{options.text} must contain at least one token")
    view = headspan.torch.explore(loaded.model, ids, loaded.tokenizer, live=False)
    page = options.out or Path(f"{loaded.name}.html")
    view.save(page)
    print(page)
    if options.open:
        webbrowser.open(page.resolve().as_uri())
    return 0


def _make(folder: Path) -> None:
    """Make the folder before the fit, so that a wrong name does not lose it."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise RunError(f"{folder} exists already; pass another --out, or go on with --resume {folder}") from None
