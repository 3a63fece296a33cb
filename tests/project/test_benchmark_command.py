"""The command `python -m benchmarks` measures, writes, resumes, selects and prints."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import headspan as hs
import pytest

from benchmarks.__main__ import main
from benchmarks.cases import BOTH, FORWARD, Case

SPAN = Case("span-3", "span", heads=2, queries=20, keys=20, head_dim=16, span=3, ramp=4)
FULL = Case("span-full", "span", batch=2, heads=2, queries=20, keys=20, head_dim=16)


def test_command(tmp_path, capsys):
    cases = (
        SPAN,
        FULL,
        Case("length-20", "length", heads=2, queries=20, keys=20, head_dim=16, span=3),
        Case("call", "call", heads=1, queries=16, keys=16, head_dim=16, threads=1),
    )
    before = hs.get_num_threads()
    file, figures = tmp_path / "all.json", tmp_path / "figures"
    options = ["--quick", "--peers", "--cases", "span-*", "length", "call", "--rounds", "2", "--threads", "1"]
    assert main([*options, "--json", str(file), "--figures", str(figures)], cases) == 0
    assert hs.get_num_threads() == before
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines() if not line.startswith("wrote")) <= 120
    report = json.loads(file.read_text())
    assert [(row["case"], row["passes"]) for row in report["rows"] if row["contender"] == "headspan"] == [
        (case.name, passes) for case in cases for passes in (FORWARD, BOTH)
    ]
    for row in report["rows"]:
        assert len(row["seconds"]) == 2
        assert row["first_quartile"] <= row["median"] <= row["last_quartile"]
        if row["contender"] == "headspan":
            assert row["ratio"] == 1
            assert row["error"] < 1e-5
            assert row["share"] > 0
    assert "empty-call" in {row["contender"] for row in report["rows"]}

    assert main(["--from", str(file), "--figures", str(tmp_path / "again")], cases) == 0
    again = capsys.readouterr().out
    assert again[: again.index("wrote")] == printed[: printed.index("wrote")]
    for directory in (figures, tmp_path / "again"):
        drawn = sorted(directory.iterdir())
        assert [path.name for path in drawn] == ["share_of_peak.svg", "time_by_length.svg", "time_by_span.svg"]
        for path in drawn:
            assert ET.parse(path).getroot().tag.endswith("svg")
            assert 'fill="white"' in path.read_text()


def test_a_command_goes_on_where_it_was_interrupted(tmp_path, capsys):
    cases = (replace(FULL, name="one", passes=(FORWARD,)), replace(SPAN, name="two", passes=(FORWARD,)))
    file = tmp_path / "all.json"
    options = ["--quick", "--peers", "--cases", "*", "--threads", "1", "--json", str(file), "--resume"]
    assert main(options, cases[:1]) == 0
    first = json.loads(file.read_text())
    assert [case["name"] for case in first["cases"]] == ["one"]
    assert first["machine"]["date"]
    assert main(options, cases) == 0
    both = json.loads(file.read_text())
    assert both["rows"][0] == first["rows"][0]
    assert [row["case"] for row in both["rows"]] == ["one", "two"]
    capsys.readouterr()
    assert main(["--from", str(file), "--cases", "two"]) == 0
    printed = capsys.readouterr().out
    assert "two " in printed
    assert "one " not in printed
    with pytest.raises(SystemExit):
        main([*options, "--rounds", "2"], cases)
    assert "was measured on another machine or with other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--peers", "torch-fast"], "there is no peer 'torch-fast'; there are torch-sdpa,"),
        (["--cases", "nothing"], "no case is named so; there are span-full,"),
        (["--rounds", "0"], "--rounds must be at least 1, not 0"),
    ],
    ids=["peer", "case", "rounds"],
)
def test_wrong_options(options, said, capsys):
    with pytest.raises(SystemExit):
        main(options)
    assert said in capsys.readouterr().err


def test_the_page_shows_what_was_measured(capsys):
    root = Path(__file__).parents[2]
    assert main(["--from", str(root / "benchmarks/results/measured.json"), "--quick"]) == 0
    assert f"```text\n{capsys.readouterr().out.strip()}\n```" in (root / "docs/explain/measured.md").read_text()
