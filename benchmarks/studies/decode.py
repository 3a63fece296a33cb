"""Decoding of one token compared with the memory bandwidth: ``python -m benchmarks.studies.decode``.

One query attends to many keys: in arrays, in a `SpanCache` of each type, and with torch if it is installed. A plain sum
over as many float32 numbers is the reference. All take turns, and each result is the median over the rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence

import headspan as hs
import numpy as np
from headspan import _core
from headspan.ops.storage import STORAGES

from benchmarks.output.saved import add_json_option, write_study

# heads, key heads, keys
CASES = ((8, 8, 65536), (1, 1, 65536), (32, 32, 4096), (32, 4, 16384))
HEAD_DIM = 64
REPEATS = 3  # calls per round, of which the fastest counts


def contenders(heads: int, key_heads: int, keys: int) -> dict[str, Callable[[], object]]:
    """Return the measured functions by name."""
    rng = np.random.default_rng(0)
    query = rng.standard_normal((1, heads, 1, HEAD_DIM), np.float32)
    both = rng.standard_normal((2, 1, key_heads, keys, HEAD_DIM), np.float32)
    key, value = both
    calls: dict[str, Callable[[], object]] = {
        "a plain sum": lambda: _core.read_sum(both.reshape(-1), hs.get_num_threads()),
        "arrays": lambda: hs.attention(query, key, value),
    }
    for dtype in STORAGES:
        if dtype != "float64":
            calls[f"cache, {dtype}"] = _attend(query, key, value, dtype)
    if importlib.util.find_spec("torch"):
        calls |= _of_torch(query, key, value)
    return calls


def _attend(query: np.ndarray, key: np.ndarray, value: np.ndarray, dtype: str) -> Callable[[], object]:
    cache = hs.SpanCache(1, key.shape[1], HEAD_DIM, span=[key.shape[2]] * query.shape[1], ramp=0, dtype=dtype)
    cache.append(key, value)
    return lambda: cache.attend(query)


def _of_torch(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> dict[str, Callable[[], object]]:
    import torch  # type: ignore[import-not-found, unused-ignore]

    torch.set_num_threads(hs.get_num_threads())
    calls: dict[str, Callable[[], object]] = {}
    for dtype in (torch.float32, torch.bfloat16):
        tensors = [torch.from_numpy(array).to(dtype) for array in (query, key, value)]

        def call(tensors: Sequence[torch.Tensor] = tensors) -> object:
            with torch.no_grad():
                return torch.nn.functional.scaled_dot_product_attention(*tensors, enable_gqa=True)

        calls[f"torch sdpa, {str(dtype).removeprefix('torch.')}"] = call
    return calls


def _time(call: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.decode", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    add_json_option(parser)
    options = parser.parse_args()
    cases = {}
    for heads, key_heads, keys in CASES:
        calls = contenders(heads, key_heads, keys)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(options.rounds):
            for name, call in calls.items():
                times[name].append(_time(call))
        size = 2 * key_heads * keys * HEAD_DIM * 4
        rate = size / statistics.median(times["a plain sum"]) / 1e9
        case = f"{heads} heads on {key_heads} key heads, {keys} keys"
        cases[case] = {"mebibytes": size / 2**20, "contenders": (rows := {})}
        print(f"\n{case}: {size / 2**20:.0f} MiB at {rate:.1f} GB/s")
        print(f"{'':22}{'ms':>8}{'of the pace of memory':>24}{'of float32 arrays':>20}")
        for name, seconds in times.items():
            kind = STORAGES[name.removeprefix("cache, ")] if name.startswith("cache, ") else None
            bfloat16 = 2 * HEAD_DIM if "bfloat16" in name else 0
            narrow = kind.elements(HEAD_DIM) * kind.element.itemsize if kind else bfloat16
            share = (narrow or 4 * HEAD_DIM) / (4 * HEAD_DIM)
            pace = statistics.median(share * s / t for s, t in zip(times["a plain sum"], seconds, strict=True))
            of_arrays = statistics.median(t / a for t, a in zip(seconds, times["arrays"], strict=True))
            milliseconds = statistics.median(seconds) * 1e3
            rows[name] = {"milliseconds": milliseconds, "share of the pace of memory": pace, "of arrays": of_arrays}
            print(f"{name:22}{milliseconds:8.2f}{pace:24.0%}{of_arrays:20.2f}")
    write_study(options.json, {"rounds": options.rounds, "cases": cases})


if __name__ == "__main__":
    main()
