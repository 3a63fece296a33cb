"""The bytes that ranks send, compared with a count of all keys of other ranks that some query sees."""

import itertools

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Blockwise, Strided, Window

LENGTHS = [(9, 11, 10), (30,), (14, 1, 0, 15)]
CASES = {
    "spans": {"span": [0.0, 2.5, 7.0, 100.0], "ramp": 3},
    "both ways": {"span": [0.0, 2.5, 7.0, 100.0], "ramp": 1, "causal": False},
    "no halo": {"span": 0, "ramp": 0},
    "no limit": {},
    "all see all": {"causal": False},
    "of items": {"span": [[0, 1, 2, 3], [4, 3, 2, 9]], "ramp": 0},
    "of tokens": {"span": np.random.default_rng(0).uniform(0, 12, (2, 4, 30)), "ramp": 0.5, "causal": False},
    "between two floats": {"span": np.nextafter(5.0, 4.0), "ramp": 0},
    "a window": {"pattern": lambda: Window(5, 2), "span": [0, 2, 20, 3], "ramp": 1, "causal": False},
    "a pattern a head": {"pattern": lambda: [Window(4), Window(3, dilation=3), Window(1), Strided(1)]},
}


def seen(head, queries, *, span=np.inf, ramp=32, causal=True, pattern=None):
    """Whether some of the queries of a head see a key, over all batch items."""
    query, key = np.arange(30)[:, None], np.arange(30)
    distance = query - key if causal else abs(query - key)
    spans = np.asarray(span, np.float32).astype(float)
    spans = np.broadcast_to(spans if spans.ndim == 3 else spans[..., None], (2, 4, 30))[:, head, :, None]
    mask = (distance <= spans) | (distance < spans + ramp)
    mask &= distance >= 0
    if pattern is not None:
        mask &= (pattern[head] if isinstance(pattern, list) else pattern).mask(30)
    return mask[:, queries].any(axis=(0, 1))


@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_sent_bytes_are_those_of_the_keys_that_are_seen(options, lengths, key_heads):
    options = {name: option() if callable(option) else option for name, option in options.items()}  # makes the pattern
    each, rows = 4 // key_heads, 0
    for (start, stop), key_head in itertools.product(itertools.pairwise(np.cumsum([0, *lengths])), range(key_heads)):
        heads = range(key_head * each, (key_head + 1) * each)
        keys = np.flatnonzero(np.any([seen(head, slice(start, stop), **options) for head in heads], axis=0))
        if keys.size:  # all from the first to the last
            rows += max(start - keys[0], 0) + max(keys[-1] + 1 - stop, 0)
    sizes = {"tokens": 30, "num_heads": 4, "head_dim": 5, "batch": 2, "num_key_heads": key_heads}
    cost = hs.cost(**sizes, ranks=lengths, **options)
    assert cost.sent_bytes == rows * 2 * 2 * 5 * 4
    assert cost[:4] == hs.cost(tokens=30, num_heads=4, head_dim=5, batch=2, **options)[:4]
    assert hs.cost(**sizes, ranks=lengths, dtype="bfloat16", **options).sent_bytes == rows * 2 * 2 * 5 * 2


def test_a_number_of_ranks_shares_the_tokens_evenly():
    sizes = {"tokens": 11, "num_heads": 1, "head_dim": 2, "span": 3, "ramp": 0}
    assert hs.cost(**sizes, ranks=4) == hs.cost(**sizes, ranks=[3, 3, 3, 2])
    assert hs.cost(**sizes, ranks=4).sent_bytes == 3 * 3 * 2 * 2 * 4
    assert hs.cost(**sizes, ranks=1).sent_bytes == 0
    assert hs.cost(**sizes).sent_bytes is None


def test_blocks_need_no_more_than_they_are_wide():
    sizes = {"tokens": 40, "num_heads": 1, "head_dim": 1, "causal": False}
    sent = hs.cost(**sizes, ranks=[20, 20], pattern=Blockwise(10, 1, 0)).sent_bytes
    assert 10 * 8 <= sent <= 2 * 19 * 8


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ranks": 0}, "ranks must be at least 1, not 0"),
        ({"ranks": [3, 8]}, "ranks must have 10 tokens in total, not 11"),
        ({"ranks": [11, -1]}, "ranks must be at least 0, not -1"),
        ({"ranks": 2, "decode": True}, "ranks are for whole inputs, and cannot be combined with decode"),
        ({"ranks": 2, "key_tokens": 10}, "ranks are for whole inputs, and cannot be combined with key_tokens"),
        ({"ranks": 2, "dtype": "int8"}, "dtype must be a type of tensors if ranks are given, not int8"),
        ({"ranks": 2, "num_key_heads": 3}, "num_heads must be a multiple of num_key_heads, not 4 and 3"),
        ({"ranks": 2, "key_stop": 9}, "key_stop has no halo"),
    ],
    ids=str,
)
def test_wrong_ranks(wrong, says):
    with pytest.raises(ValueError) as raised:
        hs.cost(tokens=10, num_heads=4, head_dim=2, **wrong)
    assert str(raised.value).startswith(says)
