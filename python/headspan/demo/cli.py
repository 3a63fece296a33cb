"""The command line: ``headspan demo``, ``headspan train FILE``, ``headspan report RUN``.

Exit codes: 0 when the report was written, also after Ctrl-C; 1 when something was wrong, said in one
sentence; 2 for a command line that is not understood; 130 after a second Ctrl-C.
"""

from __future__ import annotations

import argparse
import io
import shlex
import sys
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspan.demo.config import ModelConfig, TrainConfig

if TYPE_CHECKING:
    from headspan.demo.runs import Run, State
    from headspan.demo.text import Text

__all__ = ["main"]

DEMO_MINUTES = 5.0

# Options that become fields of ModelConfig and TrainConfig, which have their types and defaults.
_MODEL_OPTIONS = {
    "layers": "attention layers",
    "heads": "heads in a layer",
    "width": "channels of the model",
    "hidden": "channels inside a perceptron",
    "span_limit": "largest span a head may learn, in characters",
    "span_init": "span that heads start from, in characters",
    "ramp": "length of the soft edge, in characters",
}
_TRAINING_OPTIONS = {
    "steps": "steps of training",
    "batch": "windows of text in a step",
    "context": "characters in a window",
    "learning_rate": "peak rate of Adam",
    "span_penalty": "added to the loss for each character of mean span, in nats",
    "seed": "seed of everything that is drawn",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headspan", description="Train a small character model whose heads learn their reach."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    demo = commands.add_parser("demo", help="train on the Python standard library's source and write a report")
    _add_training(demo, minutes=DEMO_MINUTES)

    train = commands.add_parser("train", help="train on a file, or go on with a run")
    train.add_argument("file", nargs="?", type=Path, metavar="FILE", help="any text or bytes")
    train.add_argument("--resume", type=Path, metavar="RUN", help="run folder to go on with")
    _add_training(train, minutes=None)

    report = commands.add_parser("report", help="write the report of a run again, as a page, as pictures or as numbers")
    report.add_argument("run", type=Path, metavar="RUN", help="run folder")
    report.add_argument("--png", type=Path, metavar="DIR", help="write its pictures as PNG files, too")
    report.add_argument("--json", metavar="FILE", help="write its numbers as one JSON document, too (-: print it)")
    _add_open(report)
    return parser


def _add_training(parser: argparse.ArgumentParser, minutes: float | None) -> None:
    parser.add_argument("--out", type=Path, metavar="RUN", help="new run folder (under runs/)")
    after = "no limit" if minutes is None else f"{minutes:g}"
    parser.add_argument("--minutes", type=float, default=minutes, help=f"end training after (default: {after})")
    for config, options in ((TrainConfig, _TRAINING_OPTIONS), (ModelConfig, _MODEL_OPTIONS)):
        for name, text in options.items():
            default = getattr(config, name)
            text = f"{text} (default: {default:g})"
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), help=text, dest=name)
    _add_open(parser)


def _add_open(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--open", action="store_true", help="open the report in a browser")


def main(argv: Sequence[str] | None = None, *, loaded: Callable[[], object] = lambda: None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program's name; those of the process unless given.
    loaded : callable, optional
        Called when all packages are loaded, before anything is read or written.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that the terminal cannot show must not end a run
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _command(sys.argv[1:] if argv is None else list(argv), loaded)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except MemoryError as error:
        return _fail(f"not enough memory: {error}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "headspan":
            raise
        return _fail(str(error))
    except OSError as error:
        name = f"{error.filename}: " if error.filename is not None else ""
        return _fail(f"{name}{error.strerror or error}")


def _command(given: list[str], loaded: Callable[[], object]) -> int:
    parser = _parser()
    options = parser.parse_args(given)
    if options.version:
        import headspan

        print(f"headspan {headspan.__version__}")
        return 0
    if options.command is None:
        parser.print_help()
        return 2
    if options.command == "train":
        _check_train(parser, options)
    minutes = getattr(options, "minutes", None)
    if minutes is not None and not minutes >= 0:
        parser.error(f"--minutes must not be negative, got {minutes:g}")
    options.line = shlex.join(["headspan", *given])
    _need_extra()
    loaded()
    return _run(options)


def _fail(message: str, code: int = 1) -> int:
    print(f"headspan: error: {message}", file=sys.stderr)
    return code


def _check_train(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.resume is None:
        if options.file is None:
            parser.error("train needs a FILE, or --resume RUN")
        return
    fixed = ["out", *_MODEL_OPTIONS, *_TRAINING_OPTIONS]
    changed = [name for name in fixed if getattr(options, name) is not None]
    if changed:
        parser.error(f"--{changed[0].replace('_', '-')} cannot be changed with --resume")


def _run(options: argparse.Namespace) -> int:
    from headspan.demo.runs import Run, RunError

    try:
        if options.command == "report":
            run = Run.open(options.run)
            return _report(run, _text_of(run), options)
        if getattr(options, "resume", None) is not None:
            run = Run.open(options.resume)
            text = _text_of(run) if options.file is None else _read(options.file)
        else:
            run, text = _new_run(options)
        return _train(run, text, options)
    except RunError as error:
        return _fail(str(error))


def _need_extra() -> None:
    """Miss what the report and the bar need before training, not after."""
    from headspan.demo.report import write

    assert write
    try:
        import tqdm
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("training needs tqdm: pip install 'headspan[demo]'", name=error.name) from error
    assert tqdm


def _read(path: Path) -> Text:
    from headspan.demo.text import read_text

    return read_text(path)


def _text_of(run: Run) -> Text:
    from headspan.demo.text import load_text

    return load_text(run.config.get("text"))


def _new_run(options: argparse.Namespace) -> tuple[Run, Text]:
    from headspan.demo.model import init_parameters
    from headspan.demo.runs import Run, RunError, next_folder
    from headspan.demo.text import standard_library
    from headspan.demo.train import as_config, check_length

    demo = options.command == "demo"
    text = standard_library() if demo else _read(options.file)
    try:
        training = TrainConfig(**_chosen(options, _TRAINING_OPTIONS))
        check_length(text, training.context)
        model = ModelConfig(len(text.vocabulary), **_chosen(options, _MODEL_OPTIONS))
    except ValueError as error:
        raise RunError(str(error)) from None
    init_parameters(model, training.seed)  # a model too large for the memory leaves no folder behind
    path = options.out or next_folder(Path("runs"), "demo" if demo else options.file.stem)
    config = {"command": options.line, **as_config(model, training, text)}
    return Run.create(path, config), text


def _chosen(options: argparse.Namespace, names: dict[str, Any]) -> dict[str, Any]:
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _train(run: Run, text: Text, options: argparse.Namespace) -> int:
    from headspan.demo.train import check_same_text, configs, current_state, train

    check_same_text(run, text)
    model, config = configs(run)
    begun = current_state(run, model, config.seed).step
    print(f"training on {text.name}, {len(text.data):,} bytes; run folder {run.path}")
    with _Bar(config.steps, begun) as bar:
        outcome = train(run, text, minutes=options.minutes, progress=bar.show)
    if outcome != "finished":
        print(f"training ended early ({outcome}); it goes on with:")
        print(f"  headspan train --resume {shlex.quote(str(run.path))}")
    code = _report(run, text, options)
    if outcome == "diverged":
        return _fail("the loss is no longer a number; try a smaller --learning-rate")
    return code


def _report(run: Run, text: Text, options: argparse.Namespace) -> int:
    from headspan.demo.report.numbers import document
    from headspan.demo.report.write import write_report
    from headspan.demo.runs import replace_file

    png, target = getattr(options, "png", None), getattr(options, "json", None)
    if target not in (None, "-"):
        _check_target(Path(target))
    words = sys.stderr if target == "-" else sys.stdout  # the document stands alone
    print("writing the report ...", file=words, flush=True)
    summary = write_report(run, text, png=png)
    bits = summary["test bits per character"]
    if bits is not None:
        print(f"held-out text: {bits:.3f} bits per character (a character is a byte)", file=words)
    path = run.path / "report.html"
    print(f"report: {path}", file=words)
    if png is not None:
        print(f"pictures: {png}", file=words)
    if target == "-":
        print(document(summary), end="")
    elif target is not None:
        replace_file(Path(target), document(summary).encode())
        print(f"numbers: {target}", file=words)
    if options.open:
        webbrowser.open(path.resolve().as_uri())
    return 0


def _check_target(path: Path) -> None:
    """Miss a place for the numbers before the report is written, not after."""
    from headspan.demo.runs import RunError

    if not path.parent.is_dir():
        raise RunError(f"there is no folder {path.parent} for --json")
    if path.exists() and not path.is_file():
        raise RunError(f"--json must name a file, but {path} is none")


class _Bar:
    """A tqdm bar with bits per character, mean and widest span."""

    def __init__(self, steps: int, begun: int) -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=steps, initial=begun, unit="step", dynamic_ncols=True)
        self._smooth: float | None = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def show(self, state: State, bits: float) -> None:
        """Advance by one step."""
        self._smooth = bits if self._smooth is None else 0.98 * self._smooth + 0.02 * bits
        spans = state.parameters["span"]
        text = f"{self._smooth:.2f} bits/char, span mean {spans.mean():.0f} widest {spans.max():.0f}"
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update()


if __name__ == "__main__":
    sys.exit(main())
