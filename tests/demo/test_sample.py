"""What a model writes: drawn by its own probabilities, from no more than a context, and shown by the command."""

import os

import numpy as np
import pytest
from headspan.lab import cli, lm, train
from headspan.lab.runs import RunError
from headspan.lab.text import read_text
from headspan.lab.trained import sample as _sample
from headspan.lab.trained.sample import sample
from lm_helpers import small_run, small_text

MODEL = lm.ModelConfig(vocabulary=5, layers=1, heads=2, width=8, hidden=8)
PARAMETERS = lm.init_parameters(MODEL, seed=0) | {"head": np.random.default_rng(0).standard_normal((8, 5), np.float32)}
PROMPT = np.array([0, 3, 1])


def draw(length=30, context=8, **options):
    return list(sample(PARAMETERS, MODEL, PROMPT, length, context=context, **options))


def test_a_character_is_drawn_as_often_as_the_model_says():
    chances = np.exp(lm.logits(PARAMETERS, MODEL, PROMPT[None])[0, -1].astype(float) / 0.7)
    chances /= chances.sum()
    drawn = [draw(1, temperature=0.7, seed=seed)[0] for seed in range(3000)]
    np.testing.assert_allclose(np.bincount(drawn, minlength=5) / 3000, chances, atol=0.035)
    assert chances.max() - chances.min() > 0.1


def test_without_warmth_the_likeliest_comes():
    text = [*PROMPT]
    for character in draw(temperature=0):
        assert character == lm.logits(PARAMETERS, MODEL, [text[-8:]])[0, -1].argmax()
        text.append(character)
    assert draw(temperature=1e-300) == draw(temperature=0)


def test_equal_seeds_write_the_same():
    assert draw(seed=3) == draw(seed=3)
    assert draw(seed=3) != draw(seed=4)


def test_no_more_than_a_context_is_read(monkeypatch):
    lengths = []

    def logits(parameters, config, tokens):
        lengths.append(tokens.shape[1])
        return lm.logits(parameters, config, tokens)

    monkeypatch.setattr(_sample, "logits", logits)
    draw(10, context=6)
    assert lengths == [3, 4, 5, *[6] * 7]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": PROMPT[:0]}, "prompt must contain at least one character, got none"),
        ({"prompt": PROMPT + 4}, "prompt must be between 0 and 4, got 7"),
        ({"length": -1}, "length must be at least 0, not -1"),
        ({"temperature": -1}, "temperature must be at least 0, not -1"),
        ({"temperature": np.nan}, "temperature must be finite, not nan"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"context": 0}, "context must be at least 1, not 0"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_drawn(change, message):
    arguments = {"prompt": PROMPT, "length": 3, "context": 8} | change
    with pytest.raises(ValueError, match=message):
        sample(PARAMETERS, MODEL, **arguments)


@pytest.mark.parametrize(("name", "shape"), [("gain", 8), ("span", (1, 2))])
def test_numbers_that_are_not_finite_write_nothing(name, shape):
    broken = PARAMETERS | {name: np.full(shape, np.nan, np.float32)}
    with pytest.raises(RunError, match="the model's numbers are not finite"):
        list(sample(broken, MODEL, PROMPT, 3, context=8))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_bytes(small_text(2000).data.tobytes())
    text = read_text(folder / "text.txt")
    train(small_run(folder / "run", text), text)
    os.unlink(folder / "text.txt")  # what it was trained on is not needed
    return folder / "run"


def test_the_command_writes_on(trained, capsys):
    command = ["sample", str(trained), "--prompt", "the head", "--length", "40"]
    assert cli.main(command) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("the head")
    assert "40/40" in printed.err
    assert cli.main(command) == 0
    assert capsys.readouterr().out == printed.out
    for option in (["--seed", "1"], ["--temperature", "0"]):
        assert cli.main([*command, *option]) == 0
        assert capsys.readouterr().out != printed.out
    assert cli.main([*command[:-1], "0"]) == 0
    assert capsys.readouterr().out == "the head\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", ""], "prompt must contain at least one character, got none"),
        (["--prompt", "the Q"], "prompt must only contain characters of the text of the run, not 'Q'"),
        (["--prompt", "the ü"], "prompt must only contain characters of the text of the run, not 'ü'"),
        (["--prompt", "the", "--length", "-1"], "length must be at least 0, not -1"),
        (["--prompt", "the", "--temperature", "-1"], "temperature must be at least 0, not -1"),
        (["--prompt", "the", "--seed", "-1"], "seed must be at least 0, not -1"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(trained, capsys, options, message):
    assert cli.main(["sample", str(trained), *options]) == 1
    assert capsys.readouterr().err == f"headspan: error: --{message}\n"


def test_a_run_that_is_none(tmp_path, capsys):
    assert cli.main(["sample", str(tmp_path / "absent"), "--prompt", "the"]) == 1
    assert "is not an existing run folder" in capsys.readouterr().err
