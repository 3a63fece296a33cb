"""The argument parser of ``headspan``, and the options that configure model and training."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from headspan.lab.config import BATCHES, ENGINES, SPAN_KINDS, ModelConfig, TrainConfig

DEMO_MINUTES = 5.0

# These options set fields of ModelConfig and TrainConfig, which define their types and defaults.
MODEL_OPTIONS = {
    "layers": "attention layers",
    "heads": "heads per layer",
    "width": "channels of the model",
    "hidden": "hidden channels of an MLP",
    "span_limit": "largest span a head may learn, in characters",
    "span_init": "initial span of the heads, in characters",
    "span_spread": "factor from the initial span to that of the last head of a layer",
    "ramp": "length of the soft edge, in characters",
    "span_kind": f"{', '.join(SPAN_KINDS)}: learned, predicted by each character, or --span-init for all heads",
    "taps": "number of characters that are summed in queries and keys; 1 sums none",
}
TRAINING_OPTIONS = {
    "steps": "training steps",
    "batch": "windows of text per step",
    "context": "characters per window",
    "learning_rate": "peak learning rate of Adam",
    "span_delay": "steps before the training of spans starts",
    "span_penalty": "penalty per character of mean span, in nats",
    "batches": f"{' or '.join(BATCHES)}: a stream continues at each step and sees earlier segments up to the limit",
    "engine": f"what computes the gradient: {' or '.join(ENGINES)}",
    "seed": "random seed",
}

SWEEP_EXAMPLE = """
  text = "corpus.txt"         # relative to this file (default: the standard library's source)

  [model]                     # for all runs: layers, heads, width, ..., like the options of `headspan train`
  layers = 4

  [training]                  # for all runs: steps, batch, context, ...
  steps = 2000

  [grid]                      # every combination is run; the last line varies fastest; text may be a list, too
  seed = [0, 1, 2]
  span_limit = [256, 512, 1024]

  [[kinds]]                   # compared at each point of the grid; each has a name and fields of its own,
  name = "adaptive"           # which replace those of the grid
  span_init = 16

  [[kinds]]
  name = "full"
  span_kind = "fixed"
  span_init = "span_limit"    # the value of another field
  ramp = 0

  [[kinds]]                   # the smallest hard window that computes at least as many pairs as the kind named
  name = "window"
  equal_cost_to = "adaptive"
"""


class Command(argparse.ArgumentParser):
    """The parser of one command, whose errors show the usage of the command and name options as they are typed."""

    def __init__(self, **settings: Any) -> None:
        self._flags: dict[str, str] = {}  # by the name of the option
        self._typed: list[str] = []
        super().__init__(**settings)
        self.set_defaults(parser=self)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add an argument and remember how it is typed."""
        action = super().add_argument(*names, **settings)
        if action.option_strings:
            self._flags[action.dest] = action.option_strings[0]
            self._typed += action.option_strings
        return action

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments of the command. The parser of the program would show its own usage for unknown ones."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown)
        return options, unknown

    def as_typed(self, message: str) -> str:
        """Return an error message about a field of a configuration in the words of the command line."""
        name, _, rest = message.partition(" ")
        if name not in self._flags or not rest.startswith("must "):
            return message
        fields = "|".join(field for field in self._flags if "_" in field)
        flagged = re.sub(rf"\b({fields})\b", lambda match: self._flags[match[0]], rest) if fields else rest
        return f"{self._flags[name]} {flagged}"

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        name = next((word.partition("=")[0] for word in unknown if word.startswith("-")), None)
        if name is None:
            self.error(f"unknown argument {unknown[0]}")
        nearest = difflib.get_close_matches(name.replace("_", "-"), self._typed, 1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"{self.prog} --help lists the options"
        self.error(f"unknown option {name}; {hint}")


def make_parser() -> argparse.ArgumentParser:
    """Return the argument parser with all commands."""
    parser = argparse.ArgumentParser(
        prog="headspan", description="Train a small character model whose heads learn their reach."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Command)

    demo = commands.add_parser("demo", help="train on the Python standard library's source and write a report")
    _add_training(demo, minutes=DEMO_MINUTES, baselines=True)

    train = commands.add_parser("train", help="train on a file, or continue a run")
    train.add_argument("file", nargs="?", type=Path, metavar="FILE", help="any text or bytes")
    train.add_argument("--resume", type=Path, metavar="RUN", help="folder of the run to continue")
    train.add_argument(
        "--extend", type=int, metavar="STEPS", help="with --resume: number of steps to add to the planned ones"
    )
    _add_training(train, minutes=None, baselines=None)

    report = commands.add_parser("report", help="write the report of a run again, as a page, pictures or numbers")
    report.add_argument("run", nargs="?", type=Path, metavar="RUN", help="run folder")
    report.add_argument(
        "--example", action="store_true", help="the trained run that comes with the package, unpacked into runs/example"
    )
    report.add_argument("file", nargs="?", type=Path, metavar="FILE", help="text of the run, if it was moved")
    report.add_argument("--png", type=Path, metavar="DIR", help="also write the pictures as PNG files")
    report.add_argument("--json", metavar="FILE", help="also write the numbers as one JSON document (-: print it)")
    _add_open(report)

    sweep = commands.add_parser(
        "sweep",
        help="train a grid of runs, or continue it, and write a table and pictures",
        description="Train the unfinished runs of a configuration file, and write a table and pictures of all runs. "
        "Several calls at the same time share the runs.",
        epilog=f"An example of a configuration file:\n{SWEEP_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sweep.add_argument("config", type=Path, metavar="CONFIG", help="configuration file of the runs, in TOML")
    sweep.add_argument("--out", type=Path, metavar="DIR", help="folder of the runs (default: runs/ and CONFIG's name)")
    sweep.add_argument("--minutes", type=float, help="time limit, after which the current run is saved (default: none)")

    fit = commands.add_parser("fit", help="find the spans that the heads of a trained model need, and write a report")
    fit.add_argument("model", nargs="?", metavar="MODEL", help="a folder of transformers, a .gguf file, or smollm2")
    fit.add_argument(
        "--text", type=Path, nargs="+", metavar="FILE", help="texts to fit to; the last quarter is held out"
    )
    fit.add_argument("--tolerance", type=float, help="how much the loss may grow, as a share: 0.01 is 1 %%")
    fit.add_argument(
        "--budget", type=float, help="what to keep, as a share of the bytes of the cache; instead of a tolerance"
    )
    fit.add_argument("--tokens", type=int, default=1024, help="length of the windows (default: 1024)")
    fit.add_argument("--steps", type=int, default=150, help="steps of the fit (default: 150)")
    fit.add_argument("--first-tokens", type=int, default=4, help="first tokens that every head sees (default: 4)")
    fit.add_argument("--ramp", type=float, default=32.0, help="length of the soft edge, in tokens (default: 32)")
    fit.add_argument("--out", type=Path, metavar="DIR", help="new folder (default: fits/ and the name of the model)")
    fit.add_argument("--resume", type=Path, metavar="DIR", help="folder of an interrupted fit to go on with")
    _add_open(fit)

    look = commands.add_parser("look", help="write the interactive view of the heads of a trained model on a text")
    look.add_argument("model", metavar="MODEL", help="a folder of transformers, a .gguf file, or smollm2")
    look.add_argument("--text", type=Path, required=True, metavar="FILE", help="the text")
    look.add_argument(
        "--tokens", type=int, default=512, metavar="N", help="how much of it to show (default: 512 tokens)"
    )
    look.add_argument("--out", type=Path, metavar="PAGE", help="HTML file (default: the name of the model)")
    _add_open(look)

    sample = commands.add_parser("sample", help="generate text with the model of a run")
    sample.add_argument("run", type=Path, metavar="RUN", help="run folder")
    sample.add_argument("--prompt", required=True, metavar="TEXT", help="text to continue")
    sample.add_argument("--length", type=int, default=500, metavar="N", help="characters to add (default: 500)")
    sample.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        help="above 1 more random, below 1 less random, 0 always the most likely (default: 1)",
    )
    sample.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    return parser


def _add_training(parser: argparse.ArgumentParser, minutes: float | None, *, baselines: bool | None) -> None:
    parser.add_argument("--out", type=Path, metavar="RUN", help="new run folder (default: under runs/)")
    after = "no limit" if minutes is None else f"{minutes:g}"
    parser.add_argument("--minutes", type=float, default=minutes, help=f"time limit of the training (default: {after})")
    parser.add_argument(
        "--baselines",
        action=argparse.BooleanOptionalAction,
        default=baselines,
        help="afterwards train the same model with full attention and with a window of equal cost for as many steps, "
        "and compare; takes three times as long, which --minutes does not limit "
        f"(default: {'yes' if baselines else 'only for a run that has them already'})",
    )
    for config, options in ((TrainConfig, TRAINING_OPTIONS), (ModelConfig, MODEL_OPTIONS)):
        for name, text in options.items():
            default = getattr(config, name)
            text = f"{text} (default: {default if isinstance(default, str) else format(default, 'g')})"
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), help=text, dest=name)
    _add_open(parser)


def _add_open(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--open", action="store_true", help="open the report in a browser")


def check(options: argparse.Namespace) -> None:
    """Exit with an error message if the options contradict each other."""
    if options.command == "train":
        _check_train(options.parser, options)
    if options.command == "report" and (options.run is None) != options.example:
        options.parser.error("report requires either RUN or --example")
    if options.command == "look" and options.tokens < 1:
        options.parser.error(f"--tokens must be at least 1, got {options.tokens}")
    if options.command == "fit":
        _check_fit(options.parser, options)
    minutes = getattr(options, "minutes", None)
    if minutes is not None and not minutes >= 0:
        options.parser.error(f"--minutes must be non-negative, got {minutes:g}")


def _check_fit(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    goals = [name for name in ("tolerance", "budget") if getattr(options, name) is not None]
    if options.resume is not None:
        changed = [name for name in ("model", "text", *goals, "out") if getattr(options, name) is not None]
        if changed:
            name = changed[0] if changed[0] == "model" else f"--{changed[0]}"
            parser.error(f"{name} cannot be changed with --resume")
    elif options.model is None or options.text is None:
        parser.error("fit requires MODEL and --text FILE, or --resume DIR")
    elif len(goals) != 1:
        parser.error("fit requires either --tolerance or --budget")


def _check_train(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.resume is None:
        if options.extend is not None:
            parser.error("--extend requires --resume RUN, the run to continue")
        if options.file is None:
            parser.error("train requires a FILE or --resume RUN")
        return
    if options.extend is not None and options.extend < 1:
        parser.error(f"--extend must be at least 1, got {options.extend}")
    fixed = ["out", *MODEL_OPTIONS, *TRAINING_OPTIONS]
    changed = [name for name in fixed if getattr(options, name) is not None]
    if changed:
        more = "; use --extend STEPS to add steps" if changed[0] == "steps" else ""
        parser.error(f"--{changed[0].replace('_', '-')} cannot be changed with --resume{more}")


def chosen(options: argparse.Namespace, names: dict[str, str]) -> dict[str, Any]:
    """Return the values of those options in `names` that the user set."""
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
