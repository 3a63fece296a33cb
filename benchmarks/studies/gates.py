"""Gates of blocks: ``python -m benchmarks.studies.gates``.

4 heads of 64, 4096 tokens, blocks of 64, of which a share has a gate and the others are closed: forward and backward,
beside the same blocks without gates, in turn. Time counts as a share of that of all blocks, all of which have gates.
"""

from __future__ import annotations

import argparse

import headspan as hs
import numpy as np
from headspan.patterns import Blocks

from benchmarks.measure.turns import medians

HEADS, TOKENS, HEAD_DIM, BLOCK = 4, 4096, 64, 64
SHARES = (1.0, 0.5, 0.25, 0.1)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.gates", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=hs.get_num_threads())
    options = parser.parse_args()
    hs.set_num_threads(options.threads)
    rng = np.random.default_rng(0)
    query, key, value, grad = rng.standard_normal((4, HEADS, TOKENS, HEAD_DIM), np.float32)
    blocks = TOKENS // BLOCK
    whole: dict[str, float] = {}
    for share in SHARES:
        open_ = (rng.random((blocks, blocks)) < share) | np.eye(blocks, dtype=bool)
        kept = open_[np.tri(blocks, dtype=bool)].mean()
        plain = {"pattern": Blocks(open_, BLOCK)}
        gated = plain | {"block_gates": np.where(open_, rng.uniform(0.1, 1, open_.shape), 0), "gate_block": BLOCK}
        calls = {}
        for name, its in (("gated", gated), ("plain", plain)):
            _, vjp = hs.attention_vjp(query, key, value, **its)
            calls[f"forward, {name}"] = lambda its=its: hs.attention(query, key, value, **its)
            calls[f"backward, {name}"] = lambda vjp=vjp: vjp(grad)
        seconds = medians(calls, options.rounds)
        whole = whole or seconds
        for step in ("forward", "backward"):
            ours, theirs = seconds[f"{step}, gated"], seconds[f"{step}, plain"]
            part = ours / whole[f"{step}, gated"]
            print(
                f"{kept:5.1%} kept, {step:8}: {1e3 * ours:6.1f} ms, {ours / theirs:.2f} of plain; "
                f"{part:.1%} of the time of all, {part / kept:.2f} of what is kept"
            )


if __name__ == "__main__":
    main()
