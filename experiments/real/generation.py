"""Time and memory of generation with fitted spans: ``python experiments/real/generation.py``, after ``run.py``.

After a prompt from the held-out half of the Bible, the model predicts tokens with the cache of transformers and "sdpa",
and with `headspan.torch.head_cache` and the spans that were fitted. The two take turns.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import arms
from headspan.lab import load_pretrained
from headspan.lab.pretrained.compare import generations
from run import LONG_SHARES, SIZES, Results, of_fit
from texts import windows


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/texts"), help="folder of the unpacked texts")
    parser.add_argument("--shares", nargs="+", type=float, default=LONG_SHARES)
    args = parser.parse_args()
    model, tokenizer = load_pretrained("smollm2")[1:]
    text = windows("bible", tokenizer, args.folder, **SIZES)
    results = Results("generation")
    for prompt in (text.held_out[:1], text.long[:1]):
        for share in args.shares:
            arms.set_table(model, of_fit("bible", share))
            name = f"{share:.0%} of the bytes, {prompt.shape[1]} tokens"
            results.once(
                name, lambda prompt=prompt: {way: taken._asdict() for way, taken in generations(model, prompt).items()}
            )


if __name__ == "__main__":
    main()
