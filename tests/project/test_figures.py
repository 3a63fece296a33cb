"""The numbers on the pages are those of the files that the benchmarks and experiments wrote."""

import json
import re
from pathlib import Path

import pytest
from helpers import ROOT

from benchmarks.__main__ import _select
from benchmarks.cases import CASES
from benchmarks.pages.__main__ import PARTS, measure
from benchmarks.pages.numbers import Figure, Unmeasured, find, load, with_numbers, wrong_numbers
from benchmarks.pages.registry import all_figures
from experiments.atlas.picture import table

PAGES = (
    "README.md",
    "docs/explain/speed.md",
    "docs/explain/hybrid.md",
    *(f"docs/howto/{name}.md" for name in ("generation", "jax", "long", "masks", "transformers")),
)
# A number that somebody measured has a unit of time, size or loss, is a ratio, or fills a cell of a table.
NUMBER, UNIT = r"[+-]?[\d,]*\.?\d+", r"(?:ms|us|s|minutes|hours|times|MiB|GB/s|bits|%)(?!\w)"
MEASURED = re.compile(rf"(?<![\w.-]){NUMBER}\s{UNIT}|(?<=\| ){NUMBER}(?= [|/(])")
# These are not measured: the length of a lecture, and the size of a number.
OTHERS = {"90 minutes", "8 bits"}

FIGURES = all_figures()
text_of = {page: (ROOT / page).read_text() for page in {figure.page for figure in FIGURES}}


def names(figure):
    return f"{figure.page} {figure.text[:40]}"


@pytest.mark.parametrize("figure", FIGURES, ids=names)
def test_numbers_are_those_of_their_files(figure):
    assert wrong_numbers(figure, text_of[figure.page]) == []


@pytest.mark.parametrize("figure", FIGURES, ids=names)
def test_a_changed_digit_fails(figure):
    page = text_of[figure.page]
    match = find(figure, page)
    for place in range(1, len(figure.values) + 1):
        begin, end = match.span(place)
        for position in range(begin, end):
            if page[position].isdigit():
                digit = (int(page[position]) + 1) % 10
                changed = f"{page[:position]}{digit}{page[position + 1 :]}"
                assert len(wrong_numbers(figure, changed)) == 1
                assert with_numbers(figure, changed) == page


@pytest.mark.parametrize("name", PAGES)
def test_every_measured_number_has_a_file(name):
    page = (ROOT / name).read_text()
    spans = [find(figure, page).span() for figure in FIGURES if figure.page == name]
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", lambda code: " " * len(code[0]), page, flags=re.DOTALL | re.MULTILINE)
    numbers = [(match.start(), match[0]) for match in MEASURED.finditer(prose) if match[0] not in OTHERS]
    assert [number for at, number in numbers if not any(begin <= at < end for begin, end in spans)] == []


def test_the_table_of_the_atlas_is_that_of_its_files():
    assert f"\n{table()}\n" in (ROOT / "docs" / "explain" / "atlas.md").read_text()


def test_every_figure_is_measured():
    assert [names(figure) for figure in FIGURES if not figure.is_measured] == []


def test_files_name_the_machine_and_the_versions():
    files = {path for figure in FIGURES for path in ROOT.glob(figure.file)}
    files |= set((ROOT / "experiments" / "results").glob("atlas/*.json"))
    assert len(files) > 20
    for path in files:
        folders = path.relative_to(ROOT).parts
        if path.name == "gpu.json" or "reach" in folders or "steps4000" in path.name:
            continue  # older than this rule
        written = json.loads(path.read_text())
        assert written["machine"]["cpu"]
        assert written["machine"]["versions"].keys() >= {"headspan", "torch" if "experiments" in folders else "numpy"}
        assert written["machine"].get("date") or written["date"]


TEXT = "takes # ms with @, and # bits (# pairs)"
SMALL = Figure("page.md", "file.json", True, TEXT, (1.26, "torch-window", 0.004, 102818))
PAGE = "It takes 1.3 ms with\ntorch-window, and .004 bits (102,818 pairs).\n"


def test_numbers_are_rounded_as_the_page_prints_them():
    assert wrong_numbers(SMALL, PAGE) == []
    for wrong in ("1.2", "1.26", "-"):
        (message,) = wrong_numbers(SMALL, PAGE.replace("1.3", wrong)) or [""]
        assert (message == "") == (wrong == "1.26")
    (message,) = wrong_numbers(SMALL, PAGE.replace("torch-window", "torch-reshape"))
    assert message.endswith("torch-reshape should be torch-window as in file.json")
    assert with_numbers(SMALL, "takes 7.0 ms with x, and .001 bits (1 pairs)") == PAGE.replace("\n", " ").strip()[3:-1]


def test_a_text_must_occur_once():
    for page in ("nothing", 2 * PAGE):
        (message,) = wrong_numbers(SMALL, page)
        assert message.startswith("page.md must have once")


def test_a_value_that_a_file_does_not_have_is_a_hyphen(tmp_path):
    (tmp_path / "file.json").write_text('{"there": {"value": 2.34}}')
    data = load(tmp_path, "file.json")
    values = data["there"]["value"], data["missing"]["value"] / 2
    with_file = Figure("page.md", "file.json", True, "# and #", values)
    assert not with_file.is_measured
    assert wrong_numbers(with_file, "2.3 and -") == []
    assert len(wrong_numbers(with_file, "2.3 and 5.0")) == 1
    assert with_numbers(with_file, "- and 5.0") == "2.3 and -"
    without = Figure("page.md", "none.json", False, "# and #", (Unmeasured(), load(tmp_path, "none.json")["value"]))
    assert wrong_numbers(without, "2.3 and 5.0") == []


def test_measure_skips_finished_parts_and_copies_when_all_are_done(tmp_path, monkeypatch, capsys):
    called, drawn = [], []

    def run(command, cwd, **options):
        if "--figures" in command:
            drawn.append(Path(command[command.index("--from") + 1]).name)
            return None
        called.append(command[2])
        path = command[command.index("--json") + 1]
        code = 1 if fails == command[2].rpartition(".")[2] else 0
        if not code:
            Path(path).write_text("{}")
        return type("Done", (), {"returncode": code})

    monkeypatch.setattr("benchmarks.pages.__main__.subprocess.run", run)
    monkeypatch.setattr("benchmarks.pages.__main__.RESULTS", tmp_path / "results")
    (tmp_path / "results").mkdir()
    fails = "texts"
    assert measure(tmp_path / "parts", ["decode", "texts", "measured"]) == 1
    assert "failed: texts" in capsys.readouterr().out
    assert list((tmp_path / "results").iterdir()) == []
    fails = ""
    assert measure(tmp_path / "parts", ["decode", "texts", "measured"]) == 0
    studies = ["benchmarks.studies.decode", "benchmarks.studies.texts"]
    assert called == [*studies, "benchmarks.__main__", studies[1], "benchmarks.__main__"]
    assert drawn == ["measured.json"]
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"decode.json", "texts.json", "measured.json"}


def test_the_parts_measure_every_case():
    selections = [part[3:-1] for part in PARTS.values() if part[0] == "__main__"]
    chosen = [case.name for selection in selections for case in _select(CASES, selection, True)]
    assert sorted(chosen) == sorted(case.name for case in CASES)
