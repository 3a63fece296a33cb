"""The commands. They raise `RunError` for a faulty run or text, and `headspan.lab.cli` prints its message."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import webbrowser
from pathlib import Path

from headspan.lab.cli.arguments import MODEL_OPTIONS, TRAINING_OPTIONS, chosen
from headspan.lab.cli.bar import Bar, tqdm
from headspan.lab.cli.sweep import sweep
from headspan.lab.config import ModelConfig, TrainConfig
from headspan.lab.example import example_run
from headspan.lab.model import init_parameters
from headspan.lab.report.numbers import document
from headspan.lab.report.remarks import command_to_continue, spans_at_zero
from headspan.lab.report.write import write_report
from headspan.lab.runs import Run, RunError, next_folder, replace_file
from headspan.lab.text import Text, load_text, read_text, standard_library
from headspan.lab.trained.loaded import encode, load_run
from headspan.lab.trained.sample import sample
from headspan.lab.training.baselines import (
    baselines_of,
    has_baselines,
    make_folder_of_baselines,
    run_of,
    step_of,
    train_baseline,
)
from headspan.lab.training.engines import objective
from headspan.lab.training.start import as_config, check_length, configs, current_state, state_to_go_on_from
from headspan.lab.training.train import train

ENDINGS = {
    "out of time": "training reached its time limit",
    "interrupted": "training was interrupted",
    "diverged": "training diverged",
}


def run(options: argparse.Namespace) -> int:
    """Run the command that `options` describe and return the exit code."""
    if options.command == "sample":
        return _sample(options)
    if options.command == "sweep":
        return sweep(options)
    if options.command == "fit":
        from headspan.lab.pretrained.command import fit  # it takes seconds to load transformers

        return fit(options)
    if options.command == "look":
        from headspan.lab.pretrained.command import look

        return look(options)
    if options.command == "report":
        run = example_run(Path("runs/example")) if options.example else Run.open(options.run)
        text = _text_of(run, options.file, "report")
        _report(run, text, options)
        run.note_text(text.about)
        return 0
    if getattr(options, "resume", None) is None:
        run, text = _new_run(options)
        with run.held():
            return _train(run, text, options)
    run = Run.open(options.resume)
    with run.held():
        text = _text_of(run, options.file, "train --resume")
        state = state_to_go_on_from(run, text)
        run.note_text(text.about)
        if options.extend is not None:
            run.extend(state.step, options.extend)
        return _train(run, text, options)


def _text_of(run: Run, file: Path | None, command: str) -> Text:
    """Read the text of a run, from `file` if that is not None."""
    if file is not None:
        return read_text(file)
    try:
        return load_text(run.config["text"])
    except FileNotFoundError as error:
        raise RunError(
            f"{error.filename}, the text of {run.path}, does not exist any more; if it was moved, pass its new path: "
            f"headspan {command} {shlex.quote(str(run.path))} FILE"
        ) from None


def _new_run(options: argparse.Namespace) -> tuple[Run, Text]:
    demo = options.command == "demo"
    text = standard_library() if demo else read_text(options.file)
    try:
        training = TrainConfig(**chosen(options, TRAINING_OPTIONS))
        check_length(text, training.context)
        model = ModelConfig(len(text.vocabulary), **chosen(options, MODEL_OPTIONS))
    except ValueError as error:
        raise RunError(str(error)) from None
    # If the model does not fit into memory or the engine is not installed, these calls raise before a folder is made.
    init_parameters(model, training.seed)
    objective(training.engine, model, training.span_penalty)
    path = options.out or next_folder(Path("runs"), "demo" if demo else options.file.stem)
    config = {"command": options.line, **as_config(model, training, text)}
    return Run.create(path, config), text


def _train(run: Run, text: Text, options: argparse.Namespace) -> int:
    model, config = configs(run)
    baselines = has_baselines(run) if options.baselines is None else options.baselines
    if baselines:
        make_folder_of_baselines(run)  # so that a run that is interrupted before them is continued with them
    print(f"training on {text.name}, {len(text.data):,} bytes; run folder {run.path}")
    with Bar(config.steps, step_of(run)) as bar:
        outcome = train(run, text, minutes=options.minutes, progress=bar.show)
    if baselines and outcome in ("finished", "out of time"):
        write_report(run, text, baselines_follow=True)
        print(f"report so far: {run.path / 'report.html'}; the baselines are trained next (Ctrl-C skips them)")
        baselines_outcome = _train_baselines(run, text)
        outcome = outcome if baselines_outcome in ("finished", "paused") else baselines_outcome
    if outcome != "finished":
        print(f"{ENDINGS[outcome]} after {step_of(run):,} of {config.steps:,} steps; to continue:")
        print(f"  {command_to_continue(run)}")
    _report(run, text, options)
    if outcome == "diverged":
        raise RunError("the loss is no longer finite; try a smaller --learning-rate")
    remark = spans_at_zero(model, config, current_state(run, model, config.seed))
    if remark is not None:
        print(remark.replace("`", ""))
    return 0


def _train_baselines(run: Run, text: Text) -> str:
    """Train the baselines of a run and return the outcome of the last one."""
    model, config = configs(run)
    state = current_state(run, model, config.seed)
    outcome = "finished"
    for baseline in baselines_of(run, state, text):
        existing = run_of(run, baseline)
        with Bar(state.step, 0 if existing is None else step_of(existing), baseline.name) as bar:
            outcome = train_baseline(run, text, baseline, progress=bar.show)
        if outcome not in ("finished", "paused"):
            break
    return outcome


def _report(run: Run, text: Text, options: argparse.Namespace) -> None:
    png, target = getattr(options, "png", None), getattr(options, "json", None)
    if target not in (None, "-"):
        _check_target(Path(target))
    messages = sys.stderr if target == "-" else sys.stdout  # standard output must hold the JSON document alone
    print("writing the report ...", file=messages, flush=True)
    summary = write_report(run, text, png=png)
    bits = summary["test bits per character"]
    if bits is not None:
        print(f"held-out text: {bits:.3f} bits per character (a character is a byte)", file=messages)
    path = run.path / "report.html"
    print(f"report: {path}", file=messages)
    if png is not None:
        print(f"pictures: {png}", file=messages)
    if target == "-":
        print(document(summary), end="")
    elif target is not None:
        replace_file(Path(target), document(summary).encode())
        print(f"numbers: {target}", file=messages)
    if options.open:
        webbrowser.open(path.resolve().as_uri())


def _check_target(path: Path) -> None:
    """Raise before the report is written, instead of after it, if the JSON file cannot be created."""
    if not path.parent.is_dir():
        raise RunError(f"the folder {path.parent} of --json does not exist")
    if path.exists() and not path.is_file():
        raise RunError(f"--json must name a file, got {path}")


def _sample(options: argparse.Namespace) -> int:
    run = load_run(options.run)
    try:
        prompt = encode("prompt", os.fsencode(options.prompt), run.vocabulary)  # the bytes as typed, in any encoding
        characters = sample(
            run.weights,
            run.model,
            prompt,
            options.length,
            context=run.training.context + run.training.earlier(run.model),
            temperature=options.temperature,
            seed=options.seed,
        )
    except ValueError as error:
        raise RunError(str(error)) from None
    with tqdm(characters, total=options.length, unit="character", dynamic_ncols=True) as bar:
        indices = [*prompt.tolist(), *bar]
    print(run.vocabulary[indices].tobytes().decode(errors="replace"))
    return 0
