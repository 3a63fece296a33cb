"""A run small enough for a test."""

import numpy as np
from headspan.lab import TrainConfig, as_config
from headspan.lab.lm import ModelConfig
from headspan.lab.runs import Run
from headspan.lab.text import Text

WORDS = b"the head that looks far <script>alert(1)</script> & the head that looks near $x$ \xc3\xa9\xff\n"
# The options of the command for such a run.
SIZES = ["--layers", "1", "--heads", "2", "--width", "8", "--hidden", "8", "--context", "16", "--batch", "2"]
SIZES += ["--span-limit", "16", "--span-init", "4", "--ramp", "4", "--steps", "5"]
TRAINING = TrainConfig(steps=8, batch=2, context=32, warmup=2, log_every=2, evaluate_every=4, span_rate=2.0)


def small_text(size=4000, tail=b""):
    rng = np.random.default_rng(0)
    words = np.array(WORDS.split(b" "), dtype=object)
    data = b" ".join(words[rng.integers(0, len(words), size // 4)])[:size]
    return Text.from_bytes(data + tail, "small.txt", "/nowhere/small.txt")


def small_model(text, **changes):
    sizes = {"layers": 2, "heads": 2, "width": 16, "hidden": 24, "span_limit": 32, "span_init": 8, "ramp": 4}
    return ModelConfig(len(text.vocabulary), **(sizes | changes))


def small_run(path, text, training=TRAINING, **changes):
    return Run.create(path, as_config(small_model(text, **changes), training, text))


def written(folder, content, name="plan.toml"):
    (folder / name).write_text(content)
    return folder / name


def error_of(capsys):
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("headspan")]
    assert len(lines) == 1
    return lines[0]
