"""How many pairs there are, counted and not measured.

It stands below the patterns, so that a pattern can tell its own cost, and `headspan.cost` that of any.
"""

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check, _core


class Cost(NamedTuple):
    """Work of one attention.

    Attributes
    ----------
    pairs : int
        Pairs of a query and a key with a mask above 0, over all heads and batch items.
    forward_flops, backward_flops : int
        4 and 10 times head_dim for each pair; a multiplication and an addition are two.
    dense_flops : int
        What the forward pass takes when every pair is computed, allowed or not.
    head_pairs : ndarray of int64, shape (heads,)
        Pairs of each head, over all batch items.
    """

    pairs: int
    forward_flops: int
    backward_flops: int
    dense_flops: int
    head_pairs: npt.NDArray[np.int64]


def cost(
    patterns_of: Callable[[int, int, int], Sequence[_core.Pattern]],
    *,
    tokens: int,
    heads: int,
    head_dim: int,
    key_tokens: int | None = None,
    batch: int = 1,
    span: npt.ArrayLike | None = None,
    ramp: float = 32,
    causal: bool = True,
) -> Cost:
    """Count as `headspan.cost` does.

    ``patterns_of(heads, tokens, key_tokens)`` gives the pattern of each head, one for all, or none.
    """
    sizes = {"tokens": tokens, "heads": heads, "head_dim": head_dim, "batch": batch}
    tokens, heads, head_dim, batch = (_check.integer(name, n, at_least=1) for name, n in sizes.items())
    keys = tokens if key_tokens is None else _check.integer("key_tokens", key_tokens, at_least=1)
    if batch * heads * tokens * keys > sys.maxsize:
        raise ValueError(
            f"cost counts less than 2**63 pairs, not those of tokens {tokens}, heads {heads}, batch {batch}"
        )
    ramp = _check.number("ramp", ramp, at_least=0)
    causal = _check.flag("causal", causal)
    limit = 2.0 * (tokens + keys)
    if span is None:
        spans = np.full((1, 1, 1), limit)
    else:
        array = _check.real_array("span", span)
        _check.non_negative("span", array)
        per_query = _check.per_query("span", array, (batch, heads, tokens))
        spans = np.minimum(per_query.astype(np.float64), limit)
    patterns = patterns_of(heads, tokens, keys)
    # Batch items and heads that share a span and a pattern are counted once.
    shape = (spans.shape[0], max(spans.shape[1], len(patterns)), tokens)
    counted = _core.pairs(tokens, keys, np.broadcast_to(spans, shape), ramp, causal, patterns)
    head_pairs = np.broadcast_to(counted.sum(axis=0) * (batch // counted.shape[0]), (heads,)).copy()
    pairs = int(head_pairs.sum())
    dense = 4 * head_dim * batch * heads * tokens * keys
    return Cost(pairs, 4 * head_dim * pairs, 10 * head_dim * pairs, dense, head_pairs)
