"""Small calls, where time goes into what surrounds the kernel: ``python -m benchmarks.studies.calls``.

Each case is computed in turn by `headspan.attention`, by `headspan.torch.attention` and by torch's own function, many
times a round, so that what disturbs the machine meets all of them. The numbers are medians over rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import headspan as hs
import headspan.torch
import numpy as np
import torch

from benchmarks.measure.machine import describe_machine

SHAPES = ((1, 4, 16, 16), (1, 8, 1, 64), (1, 8, 128, 64))
CALLS, ROUNDS = 200, 25


def contenders(shape: tuple[int, ...]) -> dict[str, Callable[[], object]]:
    """Return who computes attention of a shape, forward and, for tensors, forward and backward."""
    arrays = np.random.default_rng(0).standard_normal((3, *shape)).astype(np.float32)
    tensors = [torch.from_numpy(x) for x in arrays]
    leaves = [x.clone().requires_grad_() for x in tensors]
    upstream = torch.ones(shape)
    torch_function = torch.nn.functional.scaled_dot_product_attention

    def gradients(out: torch.Tensor) -> object:
        return torch.autograd.grad(out, leaves, upstream)

    return {
        "headspan.attention": lambda: hs.attention(*arrays),
        "headspan.torch": lambda: headspan.torch.attention(*tensors),
        "torch": lambda: torch_function(*tensors, is_causal=True),
        "headspan.torch, gradients": lambda: gradients(headspan.torch.attention(*leaves)),
        "torch, gradients": lambda: gradients(torch_function(*leaves, is_causal=True)),
    }


def measured(shape: tuple[int, ...]) -> dict[str, float]:
    """Return the microseconds of a call of each."""
    calls = contenders(shape)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS + 1):  # the first one warms up
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    return {name: round(statistics.median(each[1:]), 1) for name, each in times.items()}


def main() -> None:
    """Measure, print a table, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    arguments = parser.parse_args()
    results = {"x".join(map(str, shape)): measured(shape) for shape in SHAPES}
    for shape, times in results.items():
        print(shape, *(f"{name} {time:.1f} us" for name, time in times.items()), sep="  ")
    if arguments.json:
        about = {"machine": describe_machine(hs.get_num_threads()), "date": datetime.now(UTC).date().isoformat()}
        arguments.json.write_text(json.dumps(about | {"microseconds": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
