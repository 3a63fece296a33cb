"""Where dynamic spans open up: ``python experiments/reach/openings.py build/reach/limits``.

Reads the dynamic runs of a sweep over the standard library's source, lets each predict the spans of characters of the
test part, and writes their means by where a character stands to ``experiments/reach/results/openings.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import headspan as hs
import numpy as np
from headspan.lab import lm
from headspan.lab.machine import describe_machine
from headspan.lab.text import load_text
from headspan.lab.trained.loaded import LoadedRun
from numpy.typing import NDArray

RESULTS = Path(__file__).parent / "results"
COUNTED, WINDOWS = 512, 64


def places(data: NDArray[np.uint8]) -> dict[str, NDArray[np.bool_]]:
    """Return which characters of a text stand where; every character stands at one place."""
    letters = (data >= ord("0")) & (data <= ord("9")) | (data == ord("_")) | (data >= 128)
    letters |= ((data | 32) >= ord("a")) & ((data | 32) <= ord("z"))
    numbers = np.arange(len(data))
    last_other = np.maximum.accumulate(np.where(letters, -1, numbers))
    in_word = np.where(letters, numbers - last_other, 0)
    blank, newline = data == ord(" "), data == ord("\n")
    last_newline = np.maximum.accumulate(np.where(newline, numbers, -1))
    last_written = np.maximum.accumulate(np.where(blank, -1, numbers))
    indentation = blank & (last_written <= last_newline)
    quotes, brackets = np.isin(data, list(b"'\"")), np.isin(data, list(b"()[]{}"))
    named = {
        "first letter of a word": in_word == 1,
        "second letter": in_word == 2,
        "third and fourth letter": (in_word == 3) | (in_word == 4),
        "fifth letter and later": in_word > 4,
        "blank between words": blank & ~indentation,
        "indentation": indentation,
        "end of a line": newline,
        "quote": quotes,
        "bracket": brackets,
    }
    return {**named, "other signs": ~np.any(list(named.values()), axis=0)}


def openings(run: LoadedRun) -> dict[str, Any]:
    """Return the mean span of a run's characters by where they stand: of all heads, and of each head of each layer."""
    test = load_text(run.config["text"]).part("test")
    before = int(run.model.span_limit)  # what a character may depend on
    ends = np.linspace(before + COUNTED, len(test), WINDOWS).astype(int)
    standing, spans = places(test), []
    where = np.concatenate([np.arange(end - COUNTED, end) for end in ends])
    for end in ends:
        tokens = run.encode(test[end - COUNTED - before : end].tobytes())
        spans.append(lm.spans(run.weights, run.model, tokens[None])[:, 0, :, -COUNTED:])
    all_spans = np.concatenate(spans, axis=-1)
    rows = {}
    for name, stands in standing.items():
        place_spans = all_spans[..., stands[where]]
        rows[name] = {
            "characters": place_spans.shape[-1],
            "mean span": round(float(place_spans.mean()), 2),
            "of each head": place_spans.mean(axis=-1).astype(float).round(1).tolist(),
        }
    return {"run": run.path.name, "mean span": round(float(all_spans.mean()), 2), "places": rows}


def main() -> None:
    """Look at every dynamic run of a sweep that has finished."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", type=Path)
    folders = sorted(path.parent for path in parser.parse_args().sweep.glob("dynamic-*/result.json"))
    results = [openings(hs.lab.load_run(folder)) for folder in folders]
    for result in results:
        print(result["run"], result["mean span"], {name: row["mean span"] for name, row in result["places"].items()})
    machine = json.dumps(describe_machine(hs.get_num_threads()))
    runs = ",\n".join(map(json.dumps, results))
    (RESULTS / "openings.json").write_text(f'{{"machine": {machine}, "runs": [\n{runs}\n]}}\n')


if __name__ == "__main__":
    main()
