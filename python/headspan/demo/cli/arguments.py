"""The argument parser of ``headspan``, and the options that configure model and training."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headspan.demo.config import BATCHES, ENGINES, SPAN_KINDS, ModelConfig, TrainConfig

DEMO_MINUTES = 5.0

# These options set fields of ModelConfig and TrainConfig, which define their types and defaults.
MODEL_OPTIONS = {
    "layers": "attention layers",
    "heads": "heads in a layer",
    "width": "channels of the model",
    "hidden": "channels inside a perceptron",
    "span_limit": "largest span a head may learn, in characters",
    "span_init": "span that heads start from, in characters",
    "span_spread": "times as far as that the last head of a layer starts",
    "ramp": "length of the soft edge, in characters",
    "span_kind": f"{', '.join(SPAN_KINDS)}: learned, predicted by each character, or --span-init for all",
    "taps": "characters of which queries and keys are sums, 1 for none",
}
TRAINING_OPTIONS = {
    "steps": "steps of training",
    "batch": "windows of text in a step",
    "context": "characters in a window",
    "learning_rate": "peak rate of Adam",
    "span_delay": "steps before spans begin to move",
    "span_penalty": "added to the loss for each character of mean span, in nats",
    "batches": f"{' or '.join(BATCHES)}: a stream goes on at each step, and sees its earlier segments up to the limit",
    "engine": f"what computes the gradient, {' or '.join(ENGINES)}",
    "seed": "seed of everything that is drawn",
}

SWEEP_EXAMPLE = """
  text = "corpus.txt"         # beside this file; without it the standard library's source

  [model]                     # for all runs: layers, heads, width, ..., as the options of `headspan train`
  layers = 4

  [training]                  # for all runs: steps, batch, context, ...
  steps = 2000

  [grid]                      # every combination is run, the last line changing first; text may be a list, too
  seed = [0, 1, 2]
  span_limit = [256, 512, 1024]

  [[kinds]]                   # compared at each point of the grid, each with a name and with fields of its own,
  name = "adaptive"           # which are no axes of the grid for it
  span_init = 16

  [[kinds]]
  name = "full"
  span_kind = "fixed"
  span_init = "span_limit"    # the value of another field
  ramp = 0

  [[kinds]]                   # the smallest hard window that computes as many pairs as that kind came to
  name = "window"
  equal_cost_to = "adaptive"
"""


def make_parser() -> argparse.ArgumentParser:
    """Return the argument parser with all commands."""
    parser = argparse.ArgumentParser(
        prog="headspan", description="Train a small character model whose heads learn their reach."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    demo = commands.add_parser("demo", help="train on the Python standard library's source and write a report")
    _add_training(demo, minutes=DEMO_MINUTES, baselines=True)

    train = commands.add_parser("train", help="train on a file, or go on with a run")
    train.add_argument("file", nargs="?", type=Path, metavar="FILE", help="any text or bytes")
    train.add_argument("--resume", type=Path, metavar="RUN", help="run folder to go on with")
    train.add_argument(
        "--extend", type=int, metavar="STEPS", help="with --resume: go on for so many steps more than were planned"
    )
    _add_training(train, minutes=None, baselines=False)

    report = commands.add_parser("report", help="write the report of a run again, as a page, as pictures or as numbers")
    report.add_argument("run", type=Path, metavar="RUN", help="run folder")
    report.add_argument("file", nargs="?", type=Path, metavar="FILE", help="its text, if that was moved")
    report.add_argument("--png", type=Path, metavar="DIR", help="write its pictures as PNG files, too")
    report.add_argument("--json", metavar="FILE", help="write its numbers as one JSON document, too (-: print it)")
    _add_open(report)

    sweep = commands.add_parser(
        "sweep",
        help="do a grid of runs, or go on with it, and write their table and pictures",
        description="Do the runs that a file names, those that are not over yet, and write their table and pictures. "
        "Called twice at a time, it shares them out.",
        epilog=f"A file names runs like this:\n{SWEEP_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sweep.add_argument("config", type=Path, metavar="CONFIG", help="what is run, in TOML")
    sweep.add_argument("--out", type=Path, metavar="DIR", help="folder of the runs (default: runs/ and CONFIG's name)")
    sweep.add_argument("--minutes", type=float, help="save the run under way and end after (default: no limit)")

    sample = commands.add_parser("sample", help="let the model of a run write on")
    sample.add_argument("run", type=Path, metavar="RUN", help="run folder")
    sample.add_argument("--prompt", required=True, metavar="TEXT", help="what is written on")
    sample.add_argument("--length", type=int, default=500, metavar="N", help="characters to add (default: 500)")
    sample.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        help="above 1 bolder, below 1 more careful, 0 always the likeliest (default: 1)",
    )
    sample.add_argument("--seed", type=int, default=0, help="seed of what is drawn (default: 0)")
    return parser


def _add_training(parser: argparse.ArgumentParser, minutes: float | None, *, baselines: bool) -> None:
    parser.add_argument("--out", type=Path, metavar="RUN", help="new run folder (under runs/)")
    after = "no limit" if minutes is None else f"{minutes:g}"
    parser.add_argument("--minutes", type=float, default=minutes, help=f"end training after (default: {after})")
    parser.add_argument(
        "--baselines",
        action=argparse.BooleanOptionalAction,
        default=baselines,
        help="then train the same model with full attention and with a window of equal cost for as many steps, and "
        "compare; takes three times as long, which --minutes does not limit "
        f"(default: {'yes' if baselines else 'no'})",
    )
    for config, options in ((TrainConfig, TRAINING_OPTIONS), (ModelConfig, MODEL_OPTIONS)):
        for name, text in options.items():
            default = getattr(config, name)
            text = f"{text} (default: {default if isinstance(default, str) else format(default, 'g')})"
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), help=text, dest=name)
    _add_open(parser)


def _add_open(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--open", action="store_true", help="open the report in a browser")


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exit with an error message if the options contradict each other."""
    if options.command == "train":
        _check_train(parser, options)
    minutes = getattr(options, "minutes", None)
    if minutes is not None and not minutes >= 0:
        parser.error(f"--minutes must not be negative, got {minutes:g}")


def _check_train(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.resume is None:
        if options.extend is not None:
            parser.error("--extend needs --resume RUN, the run to go on with")
        if options.file is None:
            parser.error("train needs a FILE, or --resume RUN")
        return
    if options.extend is not None and options.extend < 1:
        parser.error(f"--extend must be at least 1, got {options.extend}")
    fixed = ["out", *MODEL_OPTIONS, *TRAINING_OPTIONS]
    changed = [name for name in fixed if getattr(options, name) is not None]
    if changed:
        more = "; --extend STEPS adds some" if changed[0] == "steps" else ""
        parser.error(f"--{changed[0].replace('_', '-')} cannot be changed with --resume{more}")


def chosen(options: argparse.Namespace, names: dict[str, str]) -> dict[str, Any]:
    """Return the values of those options in `names` that the user set."""
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
