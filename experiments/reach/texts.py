"""Texts of which it is known how far a reader has to look back, and what is left when it does.

``python experiments/reach/texts.py`` writes them to ``build/reach/``. They are the same everywhere.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

LETTERS = np.frombuffer(b"abcdefghijklmnop", np.uint8)
Rng = np.random.Generator
Document = tuple[bytes, float]
"""The bytes of a document, and the bits that a reader needs for it who has seen what it is made of."""


def copying(rng: Rng, length: int) -> Document:
    """Draw letters at random, and say them once more: each of the second half stands ``length + 1`` before."""
    drawn = rng.choice(LETTERS, length).tobytes()
    return drawn + b"|" + drawn + b"\n", length * math.log2(len(LETTERS))


def lookup(rng: Rng, names: int, uses: int) -> Document:
    """Define names once, at the top, and use them again and again below, as in a program.

    A reader has to find the definition, or the last use, of each name; which one is used is drawn at random.
    """
    order = rng.permutation(len(LETTERS) ** 2)[:names]
    pairs = [LETTERS[[i // len(LETTERS), i % len(LETTERS)]].tobytes() for i in order]
    values = [rng.choice(LETTERS, 4).tobytes() for _ in pairs]
    lines = [name + b"=" + value + b";" for name, value in zip(pairs, values, strict=True)]
    asked = rng.integers(0, names, uses)
    text = b"".join(lines) + b"\n" + b"".join(lines[i] for i in asked) + b"\n"
    bits = math.log2(len(LETTERS)) * (2 * names + 4 * names) + math.log2(names) * uses
    return text, bits


def near(rng: Rng, length: int, chain: np.ndarray) -> Document:
    """Draw letters of which each follows from the two before, but for one in eight, which is any."""
    letters = rng.integers(0, len(LETTERS), length)
    kept = rng.random(length) < 7 / 8
    for i in range(2, length):
        if kept[i]:
            letters[i] = chain[letters[i - 2], letters[i - 1]]
    right = 7 / 8 + 1 / 8 / len(LETTERS)
    wrong = (1 - right) / (len(LETTERS) - 1)
    each = -right * math.log2(right) - (1 - right) * math.log2(wrong)
    return b"#" + LETTERS[letters].tobytes() + b"\n", 2 * math.log2(len(LETTERS)) + (length - 2) * each


def mixture(rng: Rng, chain: np.ndarray) -> Document:
    """Draw a document that needs two letters, or one that needs the letter 193 before: heads must differ."""
    text, bits = near(rng, 384, chain) if rng.random() < 0.5 else copying(rng, 192)
    return text, bits + 1


def write(path: Path, document: Callable[[Rng], Document], size: int) -> dict[str, float]:
    """Write documents one after another, and say what a reader needs who looks as far back as is useful."""
    rng, parts, bits, length = np.random.default_rng(0), [], 0.0, 0
    while length < size:
        text, its = document(rng)
        parts.append(text)
        bits, length = bits + its, length + len(text)
    path.write_bytes(b"".join(parts))
    return {"bytes": length, "least_bits_per_character": round(bits / length, 4)}


def main() -> None:
    """Write all texts."""
    parser = argparse.ArgumentParser(description="Write texts of which it is known how far one has to look back.")
    parser.add_argument("--out", type=Path, default=Path("build/reach"))
    parser.add_argument("--size", type=int, default=4_000_000)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    chain = np.random.default_rng(1).integers(0, len(LETTERS), (len(LETTERS), len(LETTERS)))
    texts: dict[str, Callable[[Rng], Document]] = {
        **{f"copying-{n}": lambda rng, n=n: copying(rng, n) for n in (128, 512)},
        "lookup": lambda rng: lookup(rng, 64, 128),
        "mixture": lambda rng: mixture(rng, chain),
    }
    about = {name: write(given.out / f"{name}.txt", document, given.size) for name, document in texts.items()}
    (given.out / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    for name, its in about.items():
        print(f"{name}: {its['least_bits_per_character']} bits per character at least")


if __name__ == "__main__":
    main()
