"""One small problem and a case for each option, for central differences and loops over pairs."""

import numpy as np
from headspan.ops.arguments.options import DIFFERENTIABLE

ARRAYS = ("query", "key", "value")
SIZES = {"batch": 2, "heads": 4, "key_heads": 2, "queries": 5, "keys": 7, "dim": 3, "value_dim": 2}

# Spans are never integers here: at an integer distance the mask has a corner, where a central
# difference shows the mean of the two slopes.
OPTIONS = {
    "plain": {},
    "span": {"span": 2.3, "ramp": 3.0},
    "span per head": {"span": [0.4, 1.7, 2.6, 9.5], "ramp": 2.5},
    "span per token": {"span": np.linspace(0.15, 6.35, 40).reshape(2, 4, 5), "ramp": 4},
    "span per batch": {"span": [[1.3], [2.7]], "ramp": 1.5},
    "both directions": {"span": 1.6, "ramp": 2.2, "causal": False},
    "without self": {"span": 1.6, "ramp": 2.2, "include_self": False},
    "nearly no reach": {"span": 0.2, "ramp": 0.5, "include_self": False},
    "hard window": {"span": 2.5, "ramp": 0},
    "temperature": {"temperature": 0.7, "span": 2.3, "ramp": 3},
    "temperature per token": {"temperature": np.linspace(0.5, 2, 40).reshape(2, 4, 5)},
    "slopes": {"alibi_slopes": [0.1, 0.5, -0.2, 0.0], "causal": False},
    "slopes per batch": {"alibi_slopes": np.linspace(-0.3, 0.6, 8).reshape(2, 4)},
    "soft cap": {"softcap": 1.3, "span": 2.3, "ramp": 3, "temperature": [0.6, 1.0, 1.2, 3.0]},
    "soft cap and other terms": {"softcap": 0.4, "alibi_slopes": 0.2, "key_bias": [0.5, -1, 0, -np.inf, 2, 0.25, -0.5]},
    "sinks": {"sinks": [0.5, -1.0, 0.0, 2.0], "span": 1.3, "ramp": 2},
    "sinks per batch": {"sinks": [[1.0], [-0.5]], "softcap": 2.0, "key_stop": [6, 0]},
    "memory": {"persistent_key": np.linspace(-1, 2, 12).reshape(2, 2, 3),
               "persistent_value": np.linspace(3, -2, 8).reshape(2, 2, 2), "span": 1.3, "ramp": 2, "temperature": 0.7,
               "alibi_slopes": 0.3},
    "persistent of all heads": {"persistent_key": [[0.5, -1.0, 2.0]], "persistent_value": [[1.0, -3.0]], "softcap": 1.5,
                            "sinks": 0.5, "key_stop": [6, 0], "distance_bias": [0.5, -1.0]},
    "dropout": {"dropout": 0.4, "seed": 7, "span": 2.3, "ramp": 3, "temperature": 0.7, "sinks": 0.5},
    "dropout of memory": {"dropout": 0.3, "seed": 2**64 - 1, "persistent_key": [[0.5, -1.0, 2.0]] * 4,
                          "persistent_value": [[1.0, -3.0]] * 4, "alibi_slopes": 0.2, "softcap": 2.0},
    "by distance": {"distance_bias": [[0.5, -1, 2], [0, 1, 0], [3, 2, 1], [0.1, 0.2, 0.3]], "span": 2.3, "ramp": 3},
    "by distance, in buckets": {"distance_bias": [0.5, -1.0], "distance_buckets": [1, 0, 0, 1, 0], "causal": False,
                                "query_positions": [0, 1.5, 1.5, 4, 9.25],
                                "key_positions": [0, 0, 1.5, 2, 3.75, 4, 11]},
    "by pair": {"pair_bias": np.linspace(-2, 3, 35).reshape(5, 7), "softcap": 1.5, "sinks": 0.5},
    "by pair, some removed": {"pair_bias": np.where(np.arange(280) % 3, np.linspace(-1, 1, 280), -np.inf).reshape(
        2, 4, 5, 7), "distance_bias": [0.5, -1.0, 2.0], "key_stop": [6, 0]},
    "gates": {"block_gates": np.linspace(0.2, 1, 48).reshape(4, 4, 3), "gate_block_size": (2, 3), "span": 2.3,
              "ramp": 3},
    "gates of all heads": {"block_gates": [[0.5, 0.1], [0.3, 2.0]], "gate_block_size": 4, "sinks": 0.5,
                                        "causal": False, "softcap": 1.5, "key_stop": [6, 0]},
    "scale": {"scale": -0.8, "temperature": [0.6, 1.0, 1.2, 3.0]},
    "positions": {"query_positions": [0, 1.5, 1.5, 4, 9.25], "key_positions": [0, 0, 1.5, 2, 3.75, 4, 11], "span": 2.7,
                  "ramp": 3, "alibi_slopes": 0.2},
    "positions per batch": {"query_positions": [[0, 1, 2, 3, 7.5], [0.5, 0.5, 3, 3, 3]], "causal": False, "span": 1.6},
    "key positions": {"key_positions": [-4, 0.25, 1.5, 1.5, 3, 3.5, 8], "span": 2.7, "ramp": 2, "include_self": False},
    "key lengths": {"key_stop": [6, 0], "span": 2.3, "ramp": 3},
    "ranges": {"key_ranges": [[0, 3], [2, 2], [1, 5], [0, 4], [3, 7]], "span": 2.3, "ramp": 3},
    "ranges per batch": {"key_ranges": np.stack([np.arange(5), np.arange(5) + 3], axis=-1) + np.zeros((2, 1, 1), int),
                         "causal": False, "alibi_slopes": 0.2},
    "prefix": {"prefix_lengths": 5, "span": 2.3, "ramp": 3},
    "prefixes after padding": {"prefix_lengths": [2, 4], "key_start": [1, 0], "temperature": 0.7},
    "segments": {"segment_ids": [[5, 5, 5, 1, 1, 1, 1], [0, 0, 1, 2, 2, 2, 2]], "causal": False, "span": 0.7},
    "segments that recur": {"segment_ids": [[5, 1, 5, 1, 1, 5, 1], [0, 0, 1, 2, 0, 2, 0]], "span": 2.3, "ramp": 3},
    "segments of both": {"query_segments": [3, 3, 3, 8, 8], "key_segments": [3, 3, 8, 8, 8, 8, 9], "temperature": 0.7,
                         "span": 1.3, "ramp": 2},
    "segments of both, in pieces": {"query_segments": [1, 2, 1, 4, 2], "key_segments": [[2, 1, 1, 2, 2, 1, 1],
                                                                                         [1, 1, 2, 2, 2, 3, 2]],
                                    "key_start": [1, 0], "distance_bias": [0.5, -1.0, 2.0], "causal": False},
    "bias": {"key_bias": [0.5, -1.0, 0.0, -np.inf, 2.0, 0.25, -0.5], "span": 2.3, "ramp": 3},
    "bias per head": {"key_bias": np.linspace(-2, 2, 28).reshape(4, 7), "temperature": 0.7},
    "bias per batch": {"key_bias": np.linspace(-2, 2, 14).reshape(2, 1, 7), "alibi_slopes": [0.1, 0.5, -0.2, 0.0]},
    "bias per batch, some removed": {"key_bias": np.where(np.arange(14) % 4, np.linspace(-2, 2, 14), -np.inf).reshape(
        2, 1, 7), "span": 2.3, "ramp": 3},
    "bias of every axis": {"key_bias": np.linspace(-1, 3, 56).reshape(2, 4, 7), "causal": False, "key_stop": 5},
}  # fmt: skip


def make_arrays(seed=0):
    rng = np.random.default_rng(seed)
    s = SIZES
    query = rng.standard_normal((s["batch"], s["heads"], s["queries"], s["dim"]))
    key = rng.standard_normal((s["batch"], s["key_heads"], s["keys"], s["dim"]))
    value = rng.standard_normal((s["batch"], s["key_heads"], s["keys"], s["value_dim"]))
    return query, key, value


def arguments_of(case, dtype=np.float64):
    """The arguments of a case by name, as arrays of one type."""
    inputs = dict(zip(ARRAYS, make_arrays(), strict=True))
    inputs |= {name: np.asarray(x, np.float64) if name in DIFFERENTIABLE else x for name, x in OPTIONS[case].items()}
    return {
        name: x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for name, x in inputs.items()
    }


# Arguments that vmap maps besides query, key and value, for three calls with 2 batch items, 4 heads, 9 tokens.
MAPPED = {
    "span": (3,),
    "span of heads": (3, 4),
    "span of batch items": (3, 2, 4),
    "span of tokens": (3, 2, 4, 9),
    "temperature": (3, 4),
    "alibi_slopes": (3, 2, 1),
    "sinks": (3, 4),
    "persistent_key": (3, 4, 2, 3),
    "persistent_value": (3, 2, 3),
    "key_bias": (3, 9),
    "key_bias of heads": (3, 4, 9),
    "distance_bias": (3, 4, 5),
    "pair_bias": (3, 4, 9, 9),
    "pair_bias of batch items": (3, 2, 1, 9, 9),
    "block_gates": (3, 4, 3, 2),
}
