"""The command line: ``headspan demo``, ``train``, ``sweep``, ``report`` and ``sample``.

``arguments.py`` defines the options; ``commands.py`` and ``sweep.py`` run the commands.

Exit codes: 0 on success, including a report after Ctrl-C in training; 1 after an error, which one sentence describes;
2 for an invalid command line; 130 after a second Ctrl-C.
"""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Callable, Sequence

from headspan.lab.cli.arguments import check, make_parser

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, *, loaded: Callable[[], object] = lambda: None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program's name. Default: the arguments of the process.
    loaded : callable, optional
        Function that is called once all packages are loaded, before any file is read or written.
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


def _command(arguments: list[str], loaded: Callable[[], object]) -> int:
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.version:
        import headspan

        print(f"headspan {headspan.__version__}")
        return 0
    if options.command is None:
        parser.print_help()
        return 2
    check(options)
    options.line = shlex.join(["headspan", *arguments])
    import headspan.lab.extra  # raises before training, instead of after it, if the report lacks a library
    from headspan.lab.cli.commands import run
    from headspan.lab.runs import RunError

    loaded()
    try:
        return run(options)
    except RunError as error:
        return _fail(options.parser.as_typed(str(error)))


def _fail(message: str, code: int = 1) -> int:
    print(f"headspan: error: {message}", file=sys.stderr)
    return code
