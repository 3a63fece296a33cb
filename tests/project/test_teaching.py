"""The slides have the form that lecture.md describes, and every exercise has its solution on another page."""

import importlib
import re

import pytest
from helpers import ROOT

TEACH, PICTURES = ROOT / "docs" / "teach", ROOT / "docs" / "pictures" / "slides"
TAKEN = {"view.png"}  # by docs/pictures/views.py


def slides():
    return re.split(r"^## ", (TEACH / "slides.md").read_text(), flags=re.MULTILINE)[1:]


def test_a_slide_is_a_sentence_a_picture_and_a_line_for_the_speaker():
    assert 10 <= len(slides()) <= 14
    for slide in slides():
        _, sentence, picture, *speaker = re.split(r"\n\n", slide.strip())
        assert sentence.count("\n") == 0, sentence
        assert re.fullmatch(r"!\[[^\]]+\]\(\S+\)", picture), picture
        assert len(speaker) == 1, sentence
        assert all(line.startswith("> ") for line in speaker[0].splitlines()), sentence


def test_every_picture_of_the_slides_is_shown():
    shown = re.findall(r"\]\(\.\./pictures/slides/(\S+)\)", "\n".join(slides()))
    assert sorted(shown) == sorted(path.name for path in PICTURES.iterdir())


@pytest.mark.thorough
def test_the_script_draws_the_pictures_of_the_slides(tmp_path, monkeypatch):
    for name in ("matplotlib", "autograd"):
        pytest.importorskip(name, reason=f"needs {name}: pip install '.[demo]'")
    script = importlib.import_module("docs.teach.slides")
    monkeypatch.setattr(script, "PICTURES", tmp_path)
    script.main([])
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in PICTURES.iterdir()} - TAKEN


def test_every_exercise_has_a_solution_on_another_page():
    exercises = re.findall(r"^(\d+)\. ", (TEACH / "exercises.md").read_text(), flags=re.MULTILINE)
    solutions = re.findall(r"^\*\*(\d+)\.\*\*", (TEACH / "solutions.md").read_text(), flags=re.MULTILINE)
    assert exercises == solutions == [str(number + 1) for number in range(len(exercises))]
