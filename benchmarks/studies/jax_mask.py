"""`headspan.jax` compared with the same mask in plain JAX: ``python -m benchmarks.studies.jax_mask``.

8 heads of 64 in float32 with a span of 256 and a ramp of 32. Both functions are jitted and take turns. The ratio is
that of the times in one round.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import headspan.jax
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure.turns import seconds_in_turns
from benchmarks.output.saved import add_json_option, write_study

HEADS, HEAD_DIM, SPAN, RAMP = 8, 64, 256.0, 32.0
CASES = ((2048, "forward"), (2048, "forward and backward"), (4096, "forward"))


def attend(query: Any, key: Any, value: Any) -> Any:
    """Compute attention with headspan."""
    return headspan.jax.attention(query, key, value, span=jnp.full(HEADS, SPAN), ramp=RAMP)


def masked(query: Any, key: Any, value: Any) -> Any:
    """Compute the same in plain JAX, with the logarithm of the mask added to the scores."""
    tokens = query.shape[2]
    x = jnp.arange(tokens)[:, None] - jnp.arange(tokens)
    mask = jnp.where(x < 0, 0, jnp.clip((RAMP + SPAN - x) / RAMP, 0, 1))
    scores = query @ key.mT * HEAD_DIM**-0.5 + jnp.log(mask)
    return jax.nn.softmax(scores) @ value


def total(function: Callable[..., Any], *arrays: Any) -> Any:
    """Return the sum of a result, whose gradients are timed."""
    return function(*arrays).sum()


def complete(function: Callable[..., Any], *arrays: Any) -> None:
    """Call a function and wait for its result."""
    jax.block_until_ready(function(*arrays))


def contenders(tokens: int, passes: str) -> dict[str, Callable[[], object]]:
    """Return the timed calls of a case by name."""
    arrays = np.random.default_rng(0).standard_normal((3, 1, HEADS, tokens, HEAD_DIM), np.float32)
    leaves = [jnp.asarray(x) for x in arrays]
    calls: dict[str, Callable[[], object]] = {}
    for name, function in (("headspan", attend), ("plain JAX", masked)):
        timed = jax.jit(function if passes == "forward" else jax.value_and_grad(partial(total, function), (0, 1, 2)))
        calls[name] = partial(complete, timed, *leaves)
    return calls


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.jax_mask", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    add_json_option(parser)
    options = parser.parse_args()
    cases = {}
    for tokens, passes in CASES:
        times = seconds_in_turns(contenders(tokens, passes), options.rounds)
        ratios = [slow / fast for slow, fast in zip(times["plain JAX"], times["headspan"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        milliseconds = {name: 1e3 * statistics.median(seconds) for name, seconds in times.items()}
        cases[f"{tokens} tokens, {passes}"] = {"ratio": middle, "from": low, "to": high, "milliseconds": milliseconds}
        print(f"{tokens} tokens, {passes}: {middle:.1f} times ({low:.1f} to {high:.1f})", milliseconds, flush=True)
    write_study(options.json, {"rounds": options.rounds, "cases": cases})


if __name__ == "__main__":
    main()
