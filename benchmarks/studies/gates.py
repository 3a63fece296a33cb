"""Time of attention with block gates: ``python -m benchmarks.studies.gates``.

4 heads of 64, 4096 tokens, blocks of 64, of which a share has gates and the others are closed. Blocks with and without
gates take turns, forward and backward. The results also state the time as a share of that for gates on all blocks.
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
    all_blocks: dict[str, float] = {}
    for share in SHARES:
        mask = (rng.random((blocks, blocks)) < share) | np.eye(blocks, dtype=bool)
        fraction = mask[np.tri(blocks, dtype=bool)].mean()
        plain = {"pattern": Blocks(mask, BLOCK)}
        gated = plain | {"block_gates": np.where(mask, rng.uniform(0.1, 1, mask.shape), 0), "gate_block_size": BLOCK}
        calls = {}
        for name, arguments in (("gated", gated), ("plain", plain)):
            _, vjp = hs.attention_vjp(query, key, value, **arguments)
            calls[f"forward, {name}"] = lambda arguments=arguments: hs.attention(query, key, value, **arguments)
            calls[f"backward, {name}"] = lambda vjp=vjp: vjp(grad)
        seconds = medians(calls, options.rounds)
        all_blocks = all_blocks or seconds
        for step in ("forward", "backward"):
            ours, theirs = seconds[f"{step}, gated"], seconds[f"{step}, plain"]
            part = ours / all_blocks[f"{step}, gated"]
            print(
                f"{fraction:5.1%} kept, {step:8}: {1e3 * ours:6.1f} ms, {ours / theirs:.2f} of plain; "
                f"{part:.1%} of the time of all, {part / fraction:.2f} of what is kept"
            )


if __name__ == "__main__":
    main()
