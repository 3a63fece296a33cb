"""A table of bad calls, and the good ones that it spoils."""

import headspan as hs
import numpy as np
from bad_memory import MEMORY, RETRIEVED_ROWS
from bad_merge import MERGE, MERGED
from bad_values import INF, NAN, OBJECTS, RAGGED, Tensor, ones

# Heads 4 on 2 key heads, 5 queries on 6 keys, dims 3 and 2: no two sizes are the same.
QKV = {"query": ones(1, 4, 5, 3), "key": ones(1, 2, 6, 3), "value": ones(1, 2, 6, 2)}
DYNAMIC = {"x": ones(2, 5, 3), "weight": ones(4, 3), "bias": ones(4), "max_span": 10.0}
IMPORTANCE = {name: DYNAMIC[name] for name in ("x", "weight", "bias")}
HYBRID = {
    "x": ones(2, 5, 6),
    "parameters": hs.hybrid.hybrid_parameters(6, 3, per="head"),
    "num_heads": 3,
    "max_span": 10.0,
    "per": "head",
}
RETRIEVAL = QKV | RETRIEVED_ROWS


def falling(spans):
    return 1 + float(np.exp(-spans / 3).sum())


FIT = {"loss": falling, "held_out": falling, "num_layers": 2, "num_heads": 4, "tokens": 20, "head_dim": 3, "ramp": 2}
LEARNED = {"gates": ones(3, 3), "block_size": 2, "tokens": 6}
PENALTY = {"span": np.arange(5.0), "weight": 0.1}
GOOD = {
    "attention": QKV,
    "attention_vjp": QKV,
    "attention_weights": {"query": QKV["query"], "key": QKV["key"]},
    "sparse.hierarchical_attention": QKV,
    "sparse.hierarchical_attention_vjp": QKV,
    "hybrid.hybrid_attention": HYBRID,
    "hybrid.hybrid_attention_vjp": HYBRID,
    "hybrid.hybrid_parameters": {"embed_dim": 6, "num_heads": 3},
    "sparse.learned_blocks": LEARNED,
    "sparse.learned_blocks_vjp": LEARNED,
    "merge_attention": MERGE,
    "merge_attention_vjp": MERGE,
    "memory.retrieval_attention": RETRIEVAL,
    "memory.retrieval_attention_vjp": RETRIEVAL,
    "cost": {"tokens": 10, "num_heads": 4, "head_dim": 3},
    "sparse.hierarchical_cost": {"tokens": 10, "num_heads": 4, "head_dim": 3},
    "fit_spans": FIT | {"tolerance": 0.5},
    "soft_mask": {"distance": np.arange(5.0), "span": 2.0, "ramp": 3.0},
    "span_penalty": PENALTY,
    "span_penalty_vjp": PENALTY,
    "dynamic_span": DYNAMIC,
    "dynamic_span_vjp": DYNAMIC,
    "key_importance": IMPORTANCE,
    "key_importance_vjp": IMPORTANCE,
    "sparse.selected_blocks": {"query": QKV["query"], "key": QKV["key"], "keep": 2},
    "segment_ids": {"cumulative_lengths": [0, 2, 5]},
    "t5_buckets": {"buckets": 32},
    "set_num_threads": {"n": 1},
    "reference.attention": dict.fromkeys(("query", "key", "value"), ones(1, 4, 5, 3)),
}

# argument: (what is wrong with it, the error, the value)
ARRAYS = {
    "query": [
        ("integers", TypeError, ones(1, 4, 5, 3, dtype=np.int64)),
        ("booleans", TypeError, ones(1, 4, 5, 3, dtype=bool)),
        ("float16", TypeError, ones(1, 4, 5, 3, dtype=np.float16)),
        ("long double", TypeError, ones(1, 4, 5, 3, dtype=np.longdouble)),
        ("complex", TypeError, ones(1, 4, 5, 3, dtype=np.complex128)),
        ("objects", TypeError, ones(1, 4, 5, 3).astype(object)),
        ("strings", TypeError, np.full((1, 4, 5, 3), "a")),
        ("mixed dtypes", TypeError, ones(1, 4, 5, 3, dtype=np.float32)),
        ("None", TypeError, None),
        ("masked", TypeError, np.ma.masked_less(np.arange(60.0).reshape(1, 4, 5, 3), 7)),
        ("a tensor that needs a gradient", TypeError, Tensor()),
        ("one axis", ValueError, ones(3)),
        ("five axes", ValueError, ones(1, 1, 4, 5, 3)),
        ("no axis", ValueError, np.float64(1.0)),
        ("other head_dim", ValueError, ones(1, 4, 5, 7)),
        ("other batch", ValueError, ones(3, 4, 5, 3)),
        ("heads not a multiple", ValueError, ones(1, 3, 5, 3)),
        ("no heads", ValueError, ones(1, 0, 5, 3)),
        ("fewer axes than key", ValueError, ones(4, 5, 3)),
        ("empty head_dim", ValueError, ones(1, 4, 5, 0)),
    ],
    "key": [
        ("integers", TypeError, ones(1, 2, 6, 3, dtype=np.int32)),
        ("mixed dtypes", TypeError, ones(1, 2, 6, 3, dtype=np.float32)),
        ("objects", TypeError, ones(1, 2, 6, 3).astype(object)),
        ("None", TypeError, None),
        ("empty", ValueError, ones(1, 2, 0, 3)),
        ("no heads", ValueError, ones(1, 0, 6, 3)),
        ("one axis", ValueError, ones(3)),
        ("other head_dim", ValueError, ones(1, 2, 6, 4)),
        ("more heads than query", ValueError, ones(1, 8, 6, 3)),
        ("other batch", ValueError, ones(2, 2, 6, 3)),
    ],
    "value": [
        ("None", TypeError, None),
        ("mixed dtypes", TypeError, ones(1, 2, 6, 2, dtype=np.float32)),
        ("complex", TypeError, ones(1, 2, 6, 2, dtype=np.complex64)),
        ("fewer tokens than key", ValueError, ones(1, 2, 5, 2)),
        ("other heads than key", ValueError, ones(1, 4, 6, 2)),
        ("other batch", ValueError, ones(2, 2, 6, 2)),
        ("fewer axes", ValueError, ones(2, 6, 2)),
        ("empty last axis", ValueError, ones(1, 2, 6, 0)),
    ],
}
PER_TOKEN = [
    ("NaN", ValueError, NAN),
    ("infinite", ValueError, INF),
    ("negative", ValueError, -1.0),
    ("negative integer", ValueError, -1),
    ("one NaN", ValueError, [1.0, 2.0, NAN, 3.0]),
    ("one negative", ValueError, np.array([1, 2, -3, 4])),
    ("heads do not match", ValueError, [1.0, 2.0, 3.0]),
    ("batch does not match", ValueError, ones(2, 4)),
    ("tokens do not match", ValueError, ones(1, 4, 6)),
    ("four axes", ValueError, ones(1, 4, 5, 1)),
    ("empty", ValueError, []),
    ("beyond every float", (TypeError, ValueError), 10**400),
    ("string", TypeError, "wide"),
    ("complex", TypeError, 1j),
    ("objects", TypeError, OBJECTS),
    ("ragged", (TypeError, ValueError), RAGGED),
    ("masked", TypeError, np.ma.masked_array([1.0, 2.0, 3.0, 4.0], mask=[True, False, False, False])),
]
PARAMETERS = {
    "span": [row for row in PER_TOKEN if row[0] != "infinite"] + [("minus infinite", ValueError, -INF)],
    "temperature": [*PER_TOKEN, ("zero", ValueError, 0.0), ("one zero", ValueError, [1, 1, 0, 1])],
    "alibi_slopes": [
        ("NaN", ValueError, NAN),
        ("infinite", ValueError, -INF),
        ("heads do not match", ValueError, ones(3)),
        ("one a token", ValueError, ones(1, 4, 5)),
        ("string", TypeError, "steep"),
        ("complex", TypeError, 1j),
    ],
    "sinks": [
        ("NaN", ValueError, NAN),
        ("infinite", ValueError, INF),
        ("heads do not match", ValueError, ones(3)),
        ("one a token", ValueError, ones(1, 4, 5)),
        ("string", TypeError, "deep"),
    ],
    "persistent_key": [
        ("without its value", ValueError, ones(2, 3, 3)),
        ("and without any axis", ValueError, 3.0),
    ],
    "persistent_value": [("without its key", ValueError, ones(2, 3, 2))],
    "distance_bias": [
        ("NaN", ValueError, [0.5, NAN]),
        ("empty", ValueError, []),
        ("a number", ValueError, 3.0),
        ("heads do not match", ValueError, ones(3, 9)),
        ("three axes", ValueError, ones(1, 4, 9)),
        ("string", TypeError, "near"),
    ],
    "distance_buckets": [("without a table", ValueError, [0, 1, 0])],
    "pair_bias": [
        ("one axis", ValueError, ones(6)),
        ("other keys", ValueError, ones(5, 7)),
        ("one key", ValueError, ones(5, 1)),
        ("heads do not match", ValueError, ones(3, 5, 6)),
        ("another type", TypeError, ones(5, 6, dtype=np.float32)),
        ("string", (TypeError, ValueError), "all"),
    ],
    "block_gates": [("without blocks", ValueError, ones(1, 1)), ("string", TypeError, "open")],
    "gate_block_size": [("without gates", ValueError, 4)],
    "softcap": [
        ("NaN", ValueError, NAN),
        ("zero", ValueError, 0),
        ("negative", ValueError, -50.0),
        ("too large to cap", ValueError, 1e9),
        ("string", TypeError, "50"),
        ("array", TypeError, ones(4)),
    ],
    "dropout": [
        ("without a seed", ValueError, 0.5),
        ("all", ValueError, 1.0),
        ("negative", ValueError, -0.1),
        ("NaN", ValueError, NAN),
        ("None", TypeError, None),
        ("string", TypeError, "half"),
    ],
    "seed": [
        ("negative", ValueError, -1),
        ("beyond 64 bits", ValueError, 2**64),
        ("no integer", TypeError, 0.5),
    ],
    "ramp": [
        ("negative", ValueError, -1),
        ("NaN", ValueError, NAN),
        ("infinite", ValueError, INF),
        ("None", TypeError, None),
        ("string", TypeError, "32"),
        ("beyond every float", (TypeError, ValueError), 10**400),
        ("array", (TypeError, ValueError), ones(4)),
    ],
    "causal": [("string", TypeError, "no"), ("a number", TypeError, 1)],
    "window": [("unknown option", TypeError, 3)],
}
SCORES = {
    "include_self": [("string", TypeError, "no")],
    "scale": [
        ("NaN", ValueError, NAN),
        ("infinite", ValueError, INF),
        ("string", TypeError, "big"),
        ("beyond every float", (TypeError, ValueError), 10**400),
        ("complex", TypeError, 1j),
        ("array", (TypeError, ValueError), ones(4)),
    ],
}
SIZE = [("zero", ValueError, 0), ("negative", ValueError, -3), ("not whole", TypeError, 1.5)]
INDICES = [
    ("out of range", (ValueError, IndexError), [0, 9]),
    ("far below", (ValueError, IndexError), [-9]),
    ("floats", TypeError, [0.5]),
    ("two axes", (TypeError, ValueError), [[0, 1], [2, 3]]),
    ("string", TypeError, "all"),
    ("slice not whole", TypeError, slice(0.5, 2)),
    ("slice of strings", TypeError, slice("a")),
    ("slice without a step", ValueError, slice(None, None, 0)),
]
X = [
    ("integers", TypeError, ones(2, 5, 3, dtype=int)),
    ("mixed dtypes", TypeError, ones(2, 5, 3, dtype=np.float32)),
    ("two axes", ValueError, ones(5, 3)),
]
LIMIT = [
    ("negative", ValueError, -1.0),
    ("NaN", ValueError, NAN),
    ("infinite", ValueError, INF),
    ("string", TypeError, "far"),
]
DYNAMIC_SPAN = {
    "x": X,
    "weight": [("one axis", ValueError, ones(3)), ("other width", ValueError, ones(4, 2))],
    "bias": [("other heads", ValueError, ones(3)), ("objects", TypeError, np.array([None] * 4))],
    "max_span": LIMIT,
}
PER = [("unknown", ValueError, "layer"), ("None", TypeError, None), ("array", TypeError, ones(3))]
FLAG = [("string", TypeError, "no"), ("None", TypeError, None), ("number", TypeError, 1)]
SIGNS = np.tile([1.0, -1.0], 3)


def hybrid_with(**changes):
    return HYBRID["parameters"]._replace(**changes)


HYBRID_ARGUMENTS = {
    "x": [
        ("integers", TypeError, ones(2, 5, 6, dtype=int)),
        ("mixed dtypes", TypeError, ones(2, 5, 6, dtype=np.float32)),
        ("one axis", ValueError, ones(6)),
        ("four axes", ValueError, ones(1, 2, 5, 6)),
        ("no tokens", ValueError, ones(2, 0, 6)),
        ("no channels", ValueError, ones(2, 5, 0)),
        ("no batch", ValueError, ones(0, 5, 6)),
        ("other channels", ValueError, ones(2, 5, 9)),
        ("channels that heads do not divide", ValueError, ones(2, 5, 7)),
        ("NaN", ValueError, np.full((2, 5, 6), NAN)),
        ("None", TypeError, None),
    ],
    "parameters": [
        ("None", TypeError, None),
        ("dict", TypeError, HYBRID["parameters"]._asdict()),
        ("tuple", TypeError, tuple(HYBRID["parameters"])),
        ("of the other per", ValueError, hs.hybrid.hybrid_parameters(6, 3, per="batch")),
        ("of other channels", ValueError, hs.hybrid.hybrid_parameters(9, 3, per="head")),
        ("of the other type", TypeError, hs.hybrid.hybrid_parameters(6, 3, per="head", dtype=np.float32)),
        ("one transposed", ValueError, hybrid_with(global_qkv=ones(18, 6))),
        ("one missing", TypeError, hybrid_with(projection=None)),
        ("one infinite", ValueError, hybrid_with(norm_bias=np.full(6, INF))),
        ("one of integers", TypeError, hybrid_with(predictor_bias=ones(3, dtype=int))),
        ("temperatures of other heads", ValueError, hybrid_with(log_temperature=ones(2))),
        (
            "so large that the span is not finite",
            ValueError,
            hybrid_with(
                norm_bias=np.full(6, 10.0),
                global_qkv=np.tile(np.eye(6), 3),
                predictor_weight=np.full((3, 6), 1e308) * SIGNS,
            ),
        ),
        ("temperatures beyond all floats", ValueError, hybrid_with(log_temperature=np.full(3, 1e3))),
        ("temperatures of 0", ValueError, hybrid_with(log_temperature=np.full(3, -1e3))),
    ],
    "num_heads": [*SIZE, ("not a divisor", ValueError, 4), ("None", TypeError, None)],
    "max_span": LIMIT,
    "ramp": PARAMETERS["ramp"],
    "per": [*PER, ("other than that of the parameters", ValueError, "batch")],
    "sharpen_longer": FLAG,
    "temperature_range": LIMIT,
    "causal": FLAG,
    "include_self": FLAG,
    "epsilon": [*LIMIT, ("zero", ValueError, 0)],
    "return_span": FLAG,
    "window": PARAMETERS["window"],
}
HIERARCHY = ARRAYS | {"block_size": [*SIZE, ("None", TypeError, None)]}
HIERARCHY |= {name: (PARAMETERS | SCORES)[name] for name in ("scale", "softcap", "sinks")}
OPTIONS = {name: rows for name, rows in (PARAMETERS | SCORES).items() if not name.startswith("persistent")}
RETRIEVED = ARRAYS | OPTIONS | MEMORY | {"return_lse": FLAG}
BLOCKS = {
    "gates": [
        ("NaN", ValueError, np.full((3, 3), NAN)),
        ("other blocks", ValueError, ones(2, 3)),
        ("one axis", ValueError, ones(3)),
        ("string", TypeError, "open"),
        ("None", TypeError, None),
    ],
    "block_size": [*SIZE, ("three sides", ValueError, (1, 2, 3)), ("string", TypeError, "2")],
    "tokens": [*SIZE, ("more than the gates have", ValueError, 9), ("None", TypeError, None)],
    "tied": FLAG,
}
SPAN_PENALTY = {
    "span": [("NaN", ValueError, [1.0, NAN]), ("string", TypeError, "a"), ("empty", ValueError, [])],
    "weight": [
        ("NaN", ValueError, NAN),
        ("infinite", ValueError, INF),
        ("negative", ValueError, -0.1),
        ("string", TypeError, "a"),
    ],
}
TABLE = {
    "memory.retrieval_attention": RETRIEVED,
    "memory.retrieval_attention_vjp": RETRIEVED,
    "attention": ARRAYS | PARAMETERS | SCORES,
    "attention_vjp": ARRAYS | PARAMETERS | SCORES,
    "sparse.hierarchical_attention": HIERARCHY,
    "sparse.hierarchical_attention_vjp": HIERARCHY,
    "sparse.learned_blocks": BLOCKS,
    "sparse.learned_blocks_vjp": BLOCKS,
    "sparse.selected_blocks": {name: ARRAYS[name] for name in ("query", "key")} | {
        "keep": [("negative", ValueError, -1), ("fraction", TypeError, 1.5), ("None", TypeError, None)],
        "block_size": [*SIZE, ("three sides", ValueError, (1, 2, 3)), ("None", TypeError, None)],
        "always": [("another name", ValueError, ["own", "next"]), ("one name", ValueError, "last"),
                   ("number", TypeError, 3), ("None", TypeError, None)],
        "window": [("negative", ValueError, -1), ("fraction", TypeError, 2.5)],
        "shortlist": [("fewer than keep", ValueError, 1), ("fraction", TypeError, 2.5)],
        "causal": FLAG,
    },
    "reference.attention": {"window": PARAMETERS["window"]},
    "attention_weights": {name: ARRAYS[name] for name in ("query", "key")} | PARAMETERS | SCORES | {
        "rows": INDICES,
        "cols": INDICES,
        "pool": [
            ("zero", ValueError, 0),
            ("negative", ValueError, (2, -1)),
            ("one number", ValueError, (2,)),
            ("three numbers", ValueError, (2, 2, 2)),
            ("not whole", TypeError, 1.5),
            ("string", TypeError, "mean"),
        ],
    },
    "hybrid.hybrid_attention": HYBRID_ARGUMENTS,
    "hybrid.hybrid_attention_vjp": HYBRID_ARGUMENTS,
    "hybrid.hybrid_parameters": {
        "embed_dim": [*SIZE, ("not a multiple", ValueError, 7)],
        "num_heads": [*SIZE, ("not a divisor", ValueError, 4)],
        "per": PER,
        "learn_temperature": FLAG,
        "dtype": [("None", TypeError, None), ("float16", TypeError, np.float16), ("integer", TypeError, "int"),
                  ("no type", TypeError, "wide")],
        "seed": [("negative", ValueError, -1), ("None", TypeError, None), ("not whole", TypeError, 0.5)],
    },
    "merge_attention": MERGED,
    "merge_attention_vjp": MERGED,
    "t5_buckets": {
        "buckets": [*SIZE, ("too few for both directions", ValueError, 3)],
        "max_distance": [*SIZE, ("within the exact ones", ValueError, 8)],
        "bidirectional": FLAG,
    },
    "cost": dict.fromkeys(("tokens", "num_heads", "head_dim", "key_tokens"), SIZE) | {
        "batch": [*SIZE, ("more pairs than are counted", ValueError, 10**18)],
        "span": [row for row in PARAMETERS["span"] if row[0] != "tokens do not match"],
        "ramp": PARAMETERS["ramp"],
        "window": PARAMETERS["window"],
    },
    "sparse.hierarchical_cost": dict.fromkeys(("tokens", "num_heads", "head_dim", "block_size"), SIZE) | {
        "key_tokens": [*SIZE, ("fewer than queries", ValueError, 9)],
        "batch": [*SIZE, ("more pairs than are counted", ValueError, 10**18)],
    },
    "fit_spans": dict.fromkeys(("num_layers", "num_heads", "head_dim", "num_key_heads"), SIZE) | {
        "tokens": [*SIZE, ("one, which sees itself", ValueError, 1)],
        "loss": [("a number", TypeError, 3.0), ("None", TypeError, None), ("of NaN", ValueError, lambda _: NAN),
                 ("of a text", TypeError, lambda _: "low"), ("of zero", ValueError, lambda _: 0.0)],
        "held_out": [("a number", TypeError, 3.0), ("of infinity", ValueError, lambda _: INF)],
        "budget": [("with a tolerance", ValueError, 0.5)],
        "tolerance": [("zero", ValueError, 0.0), ("negative", ValueError, -0.1), ("NaN", ValueError, NAN),
                      ("string", TypeError, "little"), ("neither it nor a budget", ValueError, None)],
        "ramp": PARAMETERS["ramp"],
        "method": [("unknown", ValueError, "guess"),
                   ("of a gradient that is missing", ValueError, "learn")],
        "profile": [("of other sizes", ValueError, ones(2, 4, 19)), ("negative", ValueError, -ones(2, 4, 20)),
                    ("NaN", ValueError, NAN * ones(2, 4, 20)), ("string", TypeError, "near")],
        "gradient": [("a number", TypeError, 3.0)],
        "budget_of": [("unknown", ValueError, "bytes")],
        "steps": [("three", ValueError, 3), ("not whole", TypeError, 9.5)],
        "state": [("a number", ValueError, 3)],
        "progress": [("a text", TypeError, "yes")],
        "first_tokens": [("negative", ValueError, -1), ("not whole", TypeError, 1.5)],
        "dtype": [("unknown", TypeError, "int4")],
    },
    "soft_mask": {
        "span": [("NaN", ValueError, NAN), ("negative", ValueError, -1), ("string", TypeError, "a"),
                 ("does not broadcast", ValueError, ones(3))],
        "ramp": [row for row in PARAMETERS["ramp"] if row[0] != "array"],
        "distance": [("string", TypeError, "a"), ("objects", TypeError, OBJECTS)],
    },
    "span_penalty": SPAN_PENALTY,
    "span_penalty_vjp": SPAN_PENALTY,
    "dynamic_span": DYNAMIC_SPAN,
    "dynamic_span_vjp": DYNAMIC_SPAN,
    "key_importance": {name: DYNAMIC_SPAN[name] for name in IMPORTANCE},
    "key_importance_vjp": {name: DYNAMIC_SPAN[name] for name in IMPORTANCE},
    "segment_ids": {
        "cumulative_lengths": [("late start", ValueError, [1, 2]), ("falling", ValueError, [0, 3, 2]),
                               ("not whole", TypeError, [0, 1.5]), ("two axes", ValueError, [[0, 1]]),
                               ("a number", ValueError, 0)],
    },
    "set_num_threads": {"n": [*SIZE, ("string", TypeError, "two"), ("None", TypeError, None),
                              ]},
}  # fmt: skip


def public(name):
    target = hs
    for part in name.split("."):
        target = getattr(target, part)
    return target
