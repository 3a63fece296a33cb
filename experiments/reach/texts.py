"""Texts whose required reach is known, and the least bits that a reader with this reach needs.

``python experiments/reach/texts.py`` writes them to ``build/reach/``. They are the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

VOICES = {16: np.frombuffer(b"abcdefghijklmnop", np.uint8), 256: np.frombuffer(b"0123456789+-*/<>", np.uint8)}
"""The distance at which each voice repeats itself, and its letters."""
LENGTH, REPEATED = 1024, 7 / 8
LINE_END = math.log2(LENGTH + 1) + LENGTH * math.log2((LENGTH + 1) / LENGTH)
"""Bits for the end of a line in a document, of a reader who expects it at every place alike."""
Rng = np.random.Generator
Document = tuple[bytes, float]
"""The bytes of a document, and the bits that a reader needs who knows how documents are made."""


def echo(rng: Rng, distances: Sequence[int]) -> Document:
    """Return a document in which voices take turns, letter by letter, and each repeats itself at its distance.

    One letter in eight is random instead. A reader needs a head with this reach for each voice.
    """
    text, bits = np.empty(LENGTH, np.uint8), 0.0
    for voice, distance in enumerate(distances):
        letters = VOICES[distance]
        places = np.arange(voice, LENGTH, len(distances))
        drawn = rng.integers(len(letters), size=LENGTH)
        kept = rng.random(LENGTH) < REPEATED
        for i in places[places >= distance]:
            if kept[i]:
                drawn[i] = drawn[i - distance]
        text[places] = letters[drawn[places]]
        likely = REPEATED + (1 - REPEATED) / len(letters)
        other = (1 - likely) / (len(letters) - 1)
        each = -likely * math.log2(likely) - (1 - likely) * math.log2(other)
        new = int((places < distance).sum())
        bits += new * math.log2(len(letters)) + (len(places) - new) * each
    return text.tobytes() + b"\n", bits + LINE_END


def write(path: Path, distances: Sequence[int], size: int) -> dict[str, float]:
    """Write documents to a file, and return its bytes and the bits per character that a reader needs."""
    rng, parts, bits, length = np.random.default_rng(0), [], 0.0, 0
    while length < size:
        text, text_bits = echo(rng, distances)
        parts.append(text)
        bits, length = bits + text_bits, length + len(text)
    path.write_bytes(b"".join(parts))
    return {"bytes": length, "least_bits_per_character": round(bits / length, 4)}


def main() -> None:
    """Write all texts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/reach"))
    parser.add_argument("--size", type=int, default=4_000_000)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    texts = {"echo-256": (256,), "echo-16-256": (16, 256)}
    about = {name: write(args.out / f"{name}.txt", distances, args.size) for name, distances in texts.items()}
    (args.out / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    for name, properties in about.items():
        print(f"{name}: {properties['least_bits_per_character']} bits per character at least")


if __name__ == "__main__":
    main()
