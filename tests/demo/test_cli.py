"""The command line, from arguments to files and exit codes."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys

import headspan as hs
import headspan_command
import pytest
from headspan._extra import how_to_install
from headspan.lab import TrainConfig, cli
from headspan.lab.lm import ModelConfig
from headspan.lab.text import Text
from lm_helpers import SIZES, error_of, small_text


def test_train_resume_and_report(folder, capsys):
    assert cli.main(["train", "text.txt", "--minutes", "0", *SIZES]) == 0
    printed = capsys.readouterr()
    assert "training reached its time limit after 1 of 5 steps; to continue:" in printed.out
    assert "headspan train --resume runs/text-001" in printed.out
    assert "report: runs/text-001/report.html" in printed.out
    assert "bits/char, span mean" in printed.err
    assert cli.main(["train", "--resume", "runs/text-001"]) == 0
    page = folder / "runs/text-001/report.html"
    assert "headspan train text.txt --minutes 0 --layers 1" in re.sub("<[^>]*>", "", page.read_text())
    page.unlink()
    assert cli.main(["report", "runs/text-001"]) == 0
    assert page.exists()


def last_hint(capsys):
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  headspan")]
    return shlex.split(line)[1:]


@pytest.mark.thorough
@pytest.mark.parametrize("command", [["train", "--resume"], ["report"]])
def test_a_file_that_moved_can_be_named_again(folder, capsys, command):
    cli.main(["train", "text.txt", "--out", "a run", "--minutes", "0", *SIZES])
    os.rename("text.txt", "moved.txt")
    capsys.readouterr()
    assert cli.main([*command, "a run"]) == 1
    said, _, what_to_type = error_of(capsys).rpartition(": ")
    assert f"{folder / 'text.txt'}, the text of a run, does not exist any more; if it was moved, pass" in said
    typed = shlex.split(what_to_type)[1:]
    assert typed == [*command, "a run", "FILE"]
    assert cli.main([*typed[:-1], "moved.txt"]) == 0
    assert cli.main([*command, "a run"]) == 0  # it is known from now on


@pytest.mark.thorough
def test_what_to_type_after_a_text_was_moved_works(folder, capsys):
    cli.main(["train", "text.txt", "--out", "run", "--minutes", "0", *SIZES])
    os.rename("text.txt", "moved.txt")
    capsys.readouterr()
    assert cli.main(["train", "--resume", "run", "moved.txt", "--minutes", "0"]) == 0
    assert cli.main(last_hint(capsys)) == 0
    assert "5 of 5 steps" in (folder / "run/report.html").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("command", [["train", "--resume"], ["report"]])
def test_another_text_is_called_another_text(folder, capsys, command):
    (folder / "other text.txt").write_bytes(small_text(2000).data.tobytes()[::-1])
    cli.main(["train", "text.txt", "--out", "run", "--minutes", "0", *SIZES])
    before = (folder / "run/config.json").read_bytes()
    capsys.readouterr()
    assert cli.main([*command, "run", "other text.txt"]) == 1
    said = error_of(capsys)
    assert "other text.txt is not the text that run was trained on, text.txt; to continue the run: " in said
    assert (folder / "run/config.json").read_bytes() == before
    commands = re.search("to continue the run: headspan (.*); to train on other text.txt: headspan (.*)$", said)
    go_on, anew = commands.groups()
    assert cli.main(shlex.split(go_on)) == 0
    assert cli.main([*shlex.split(anew), *SIZES]) == 0
    assert (folder / "runs/other text-001/report.html").exists()


@pytest.mark.thorough
def test_a_text_that_changed_is_trained_on_anew(folder, capsys):
    cli.main(["train", "text.txt", "--out", "run", "--minutes", "0", *SIZES])
    (folder / "text.txt").write_bytes(small_text(2100).data.tobytes())
    capsys.readouterr()
    assert cli.main(["train", "--resume", "run"]) == 1
    said, _, anew = error_of(capsys).rpartition(": headspan ")
    assert said.endswith("text.txt has changed since run was trained on it; to train on it again")
    assert cli.main([*shlex.split(anew), *SIZES]) == 0


@pytest.mark.thorough
def test_the_standard_library_of_another_python_is_trained_on_by_the_demo(folder, capsys, monkeypatch):
    library = small_text(2000)
    for size in (2000, 2100):
        other = Text.from_bytes(small_text(size).data.tobytes(), library.name)
        for module in ("headspan.lab.text", "headspan.lab.cli.commands"):
            monkeypatch.setattr(f"{module}.standard_library", lambda other=other: other)
        if size == 2000:
            cli.main(["demo", "--out", "run", "--minutes", "0", *SIZES])
    capsys.readouterr()
    assert cli.main(["train", "--resume", "run"]) == 1
    assert error_of(capsys).endswith("has changed since run was trained on it; to train on it again: headspan demo")


@pytest.mark.thorough
def test_a_run_is_extended(folder, capsys):
    cli.main(["train", "text.txt", "--out", "run", *SIZES])
    assert cli.main(["train", "--resume", "run", "--extend", "3"]) == 0
    page = (folder / "run/report.html").read_text()
    assert "8 of 8 steps" in page
    assert 'class="warning"' not in page
    assert "headspan train --resume run --extend 3" in re.sub("<[^>]*>", "", page)
    assert "at step 5" in page
    assert cli.main(["train", "--resume", "run", "--extend", "2", "--minutes", "0"]) == 0
    config = json.loads((folder / "run/config.json").read_text())
    assert config["training"]["steps"] == 10
    assert config["extended"] == [{"at": 5, "by": 3}, {"at": 8, "by": 2}]
    capsys.readouterr()
    assert cli.main(["train", "--resume", "run"]) == 0
    assert "10 of 10 steps" in (folder / "run/report.html").read_text()


@pytest.mark.thorough
def test_what_cannot_go_on_is_not_extended(folder, capsys):
    cli.main(["train", "text.txt", "--out", "run", *SIZES])
    (folder / "run/weights.npz").write_bytes(b"")
    before = (folder / "run/config.json").read_bytes()
    capsys.readouterr()
    assert cli.main(["train", "--resume", "run", "--extend", "3"]) == 1
    assert "cannot be read as the weights" in error_of(capsys)
    assert (folder / "run/config.json").read_bytes() == before


def test_demo_trains_on_the_standard_library(folder, capsys, monkeypatch):
    monkeypatch.setattr("headspan.lab.cli.commands.standard_library", lambda: small_text(2000))
    assert cli.main(["demo", *SIZES]) == 0
    said = capsys.readouterr().out
    assert said.index("report so far: runs/demo-001/report.html") < said.index("report: runs/demo-001/report.html")
    assert len(json.loads((folder / "runs/demo-001/summary.json").read_text())["compared"]) == 3
    assert cli.main(["demo", "--no-baselines", *SIZES]) == 0
    assert "so far" not in capsys.readouterr().out
    assert json.loads((folder / "runs/demo-002/summary.json").read_text())["compared"] == {}


@pytest.mark.thorough
def test_report_as_pictures_and_as_numbers(folder, capsys):
    cli.main(["train", "text.txt", "--out", "run", *SIZES])
    capsys.readouterr()
    assert cli.main(["report", "run", "--png", "pictures", "--json", "numbers.json"]) == 0
    printed = capsys.readouterr().out
    assert "pictures: pictures\nnumbers: numbers.json\n" in printed
    assert {"spans.png", "maps.png"} <= {path.name for path in (folder / "pictures").iterdir()}
    numbers = json.loads((folder / "numbers.json").read_text())
    assert numbers == json.loads((folder / "run/summary.json").read_text())
    assert f"{numbers['test bits per character']:.3f} bits per character" in printed


@pytest.mark.thorough
def test_numbers_can_be_piped(folder, capsys):
    cli.main(["train", "text.txt", "--out", "run", *SIZES])
    capsys.readouterr()
    assert cli.main(["report", "run", "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == json.loads((folder / "run/summary.json").read_text())
    assert "report: run/report.html" in printed.err


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--png", "text.txt"], "text.txt: File exists"),
        (["--json", "absent/numbers.json"], "the folder absent of --json does not exist"),
        (["--json", "run"], "--json must name a file, got run"),
    ],
)
def test_a_place_that_cannot_be_written_to(folder, capsys, arguments, message):
    cli.main(["train", "text.txt", "--out", "run", *SIZES])
    capsys.readouterr()
    os.unlink("run/report.html")
    assert cli.main(["report", "run", *arguments]) == 1
    assert error_of(capsys) == f"headspan: error: {message}"
    assert not os.path.exists("run/report.html")


def test_help_names_the_forms_of_a_report(capsys):
    with pytest.raises(SystemExit):
        cli.main(["report", "--help"])
    printed = capsys.readouterr().out
    for word in ("--png DIR", "--json FILE", "--open", "PNG files", "JSON document"):
        assert word in printed


@pytest.mark.parametrize("command", ["demo", "train"])
def test_help_names_what_is_taken_unless_given(capsys, command):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert f"training steps (default: {TrainConfig.steps})" in printed
    assert f"length of the soft edge, in characters (default: {ModelConfig.ramp:g})" in printed


@pytest.mark.thorough
def test_only_open_opens_a_browser(folder, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    cli.main(["train", "text.txt", "--out", "run", *SIZES])
    assert opened == []
    cli.main(["report", "run", "--open"])
    assert opened == [(folder / "run/report.html").as_uri()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "absent.txt"], "absent.txt: No such file or directory"),
        (["train", "empty.txt"], "empty.txt has 0 bytes; a context of 512 needs at least"),
        (["train", "text.txt", "--out", "."], ". already exists; choose another folder with --out"),
        (["train", "text.txt", "--steps", "-1", "--context", "16"], "--steps must be at least 0, not -1"),
        (["train", "text.txt", "--width", "9", "--context", "16"], "--width must be a multiple of twice the heads"),
        (["train", "text.txt", "--learning-rate", "inf", "--context", "16"], "--learning-rate must be finite, not inf"),
        (["train", "text.txt", "--ramp", "inf", "--context", "16"], "--ramp must be finite, not inf"),
        (
            ["train", "text.txt", "--span-limit", "1e39", "--span-init", "1e39", "--context", "16"],
            "--span-limit must be at most 1099511627776 characters, not 1e+39",
        ),
        (["train", "text.txt", "--span-limit", "inf", "--context", "16"], "--span-limit must be finite, not inf"),
        (
            ["train", "text.txt", "--span-limit", "8", "--span-init", "9", "--context", "16"],
            "--span-init must be at most --span-limit (8), not 9",
        ),
        (["train", "text.txt", "--engine", "jax"], "--engine must be one of"),
        (["train", "text.txt", "--width", "8000000000000", "--context", "16"], "not enough memory: Unable to allocate"),
        (["train", "text.txt", "--batch", "9" * 30, "--context", "16"], "not enough memory: a batch of shape (999"),
        (["train", "text.txt", "--context", "9" * 400], "not enough memory: a batch of shape (3, 1000"),
        (["train", "."], ". is not a regular file"),
        (["train", "pipe"], "pipe is not a regular file"),
        (["report", "absent"], "absent is not an existing run folder"),
        (["report", "."], ". is not a run folder: it has no config.json"),
        (["train", "--resume", "text.txt"], "text.txt is not an existing run folder"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(folder, capsys, arguments, message):
    (folder / "empty.txt").touch()
    os.mkfifo(folder / "pipe")
    before = sorted(folder.rglob("*"))
    assert cli.main(arguments) == 1
    assert error_of(capsys).startswith(f"headspan: error: {message}")
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "train requires a FILE or --resume RUN"),
        (
            ["train", "--resume", "run", "--steps", "3"],
            "--steps cannot be changed with --resume; use --extend",
        ),
        (["train", "--resume", "run", "--extend", "0"], "--extend must be at least 1, got 0"),
        (["train", "text.txt", "--extend", "3"], "--extend requires --resume RUN, the run to continue"),
        (["train", "--resume", "run", "--out", "other"], "--out cannot be changed with --resume"),
        (["dream"], "invalid choice: 'dream'"),
        (["demo", "--steps", "many"], "invalid int value: 'many'"),
        (["demo", "--minutes", "nan"], "--minutes must be non-negative, got nan"),
    ],
)
def test_a_command_line_that_is_not_understood(folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train text.txt --span_limit 64", "unknown option --span_limit; did you mean --span-limit?"),
        ("train text.txt --span_limit=64", "unknown option --span_limit; did you mean --span-limit?"),
        ("train --learnin-rate 1 text.txt", "unknown option --learnin-rate; did you mean --learning-rate?"),
        ("demo --no_baselines", "unknown option --no_baselines; did you mean --no-baselines?"),
        ("report run --colour", "unknown option --colour; headspan report --help lists the options"),
        ("sample run --prompt x more", "unknown argument more"),
        ("sweep grid.toml --minute", None),
        ("sweep grid.toml --minuets 3", "unknown option --minuets; did you mean --minutes?"),
        ("demo --minutes nan", "--minutes must be non-negative, got nan"),
        ("train --resume run --span-limit 3", "--span-limit cannot be changed with --resume"),
    ],
)
def test_an_error_shows_the_usage_of_its_command_and_the_option_that_was_meant(folder, capsys, arguments, message):
    words = arguments.split()
    with pytest.raises(SystemExit) as exit_:
        cli.main(words)
    assert exit_.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"usage: headspan {words[0]} ")
    assert message is None or printed.endswith(f"headspan {words[0]}: error: {message}\n")


def test_version_and_help(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"headspan {hs.__version__}\n"
    assert cli.main([]) == 2
    assert "demo" in capsys.readouterr().out


@pytest.mark.parametrize("package", ["tqdm", "matplotlib"])
def test_a_missing_extra_is_named_before_anything_is_trained(folder, capsys, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "headspan.lab.extra")
    assert cli.main(["train", "text.txt", "--out", "run", *SIZES]) == 1
    assert error_of(capsys) == f"headspan: error: headspan.lab needs {package}; {how_to_install('demo')}"
    assert not (folder / "run").exists()


def test_ctrl_c_writes_the_report(folder):
    command = [
        sys.executable,
        "-m",
        "headspan_command",
        "train",
        "text.txt",
        "--out",
        "run",
        *SIZES,
        "--steps",
        "1000000",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    while b"bits/char" not in process.stderr.read1():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert b"training was interrupted after " in out
    assert (folder / "run/report.html").exists()
    assert b"Traceback" not in err


def test_products_and_threads_wait_quietly_while_training(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    monkeypatch.setenv("OMP_WAIT_POLICY", "")  # so that it is put back
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr(cli, "main", lambda loaded: (os.environ["OPENBLAS_NUM_THREADS"], os.environ["OMP_WAIT_POLICY"]))
    before = signal.getsignal(signal.SIGINT)
    try:
        assert headspan_command.main() == ("2", "passive")
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_program_sets_the_environment_before_it_loads_anything():
    code = "import sys, headspan_command; print(sorted({'numpy', 'headspan'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.thorough
@pytest.mark.parametrize("module", [["-m", "headspan_command"], ["-m", "headspan"], ["-mheadspan"]])
def test_the_program_is_a_module_too(folder, module):
    for arguments, code in ((["--version"], 0), (["report", "absent run"], 1), (["dream"], 2)):
        process = subprocess.run([sys.executable, *module, *arguments], capture_output=True, text=True)
        assert process.returncode == code
        assert arguments != ["--version"] or process.stdout == f"headspan {hs.__version__}\n"
        assert code == 0 or (arguments[-1] in process.stderr and "usage: headspan" in process.stderr) == (code == 2)


@pytest.mark.thorough
@pytest.mark.parametrize("module", [["-m", "headspan_command"], ["-m", "headspan"], ["-mheadspan"]])
def test_numpy_is_loaded_by_a_program_that_has_set_the_environment(folder, module):
    """The package's own module starts Python again, as it was started, since NumPy has been loaded by then."""
    (folder / "tqdm.py").write_text("import os, sys; print(os.environ['OPENBLAS_NUM_THREADS'], sys.orig_argv[1:])")
    command = [sys.executable, "-W", "error", *module, "report", "no such run"]
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    begun_as = [module[0].replace("headspan", "headspan_command"), *["headspan_command"] * (len(module) - 1)]
    assert process.stdout == f"1 {['-W', 'error', *begun_as, 'report', 'no such run']}\n"


CTRL_C_IN_AN_IMPORT = """
import os, signal, sys, headspan_command

package = sys.argv.pop(1)

class CtrlC:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == package:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC)
sys.exit(headspan_command.main())
"""


@pytest.mark.parametrize("package", ["numpy", "matplotlib._path"])
def test_ctrl_c_while_packages_are_loaded(package):
    command = [sys.executable, "-c", CTRL_C_IN_AN_IMPORT, package, "report", "absent"]
    process = subprocess.run(command, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (130, "headspan: error: interrupted\n")


@pytest.mark.thorough
def test_names_that_the_terminal_cannot_show(folder, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    name = os.fsdecode("d\u00fcrr ".encode() + b"\xfc")
    assert cli.main(["train", "text.txt", "--out", name, *SIZES]) == 0
    assert (folder / name / "report.html").exists()
    sys.stdout.seek(0)
    assert "run folder d\\xfcrr \\udcfc\n" in sys.stdout.read()


def test_an_engine_that_is_not_installed_leaves_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "text.txt").write_bytes(small_text().data)
    assert cli.main(["train", "text.txt", *SIZES, "--engine", "torch", "--out", "run"]) == 1
    assert f"the engine torch needs PyTorch; {how_to_install('torch')}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
