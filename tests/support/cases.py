"""Seeded random cases: sizes around the kernel's tiles, every form of every argument.

A case is a pure function of its seed and dtype, so a failing id is all that is needed to see it
again. Spans, ramps and temperatures of float32 cases are multiples of 1/4: then the argument of
the soft mask is exact in both precisions and the oracle and the kernel see the same pairs.
"""

import os
from dataclasses import dataclass, field

import numpy as np
import pytest


def seeds(variable, count, few):
    """Seeds of random cases: as many as the variable says, or `count`, which are `thorough` but for the first few."""
    if variable in os.environ:
        return list(range(int(os.environ[variable])))
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(few, count))]


# Of each dtype; the runs of every variant set it lower.
SEEDS = seeds("HEADSPAN_TEST_CASES", 600, few=100)
DTYPES = ("float64", "float32")
# Pairs a case may hold: keeps the dense oracle to a fraction of a second.
MOST_PAIRS = 150_000

TOKENS = (1, 2, 3, 5, 17, 31, 63, 64, 65, 66, 127, 128, 129, 130, 191, 193, 257)
HEAD_DIMS = (1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 80, 96, 128, 160)
RAMPS = (0, 0.25, 1, 2.5, 7, 8.75, 32, 32, 32, 100)
HEADS = ((1, 1), (2, 1), (3, 1), (2, 2), (3, 3), (4, 2), (6, 2), (6, 3))  # heads, key heads
LAYOUTS = (
    "contiguous",
    "transposed",
    "fortran",
    "interleaved",
    "negative",
    "read-only",
    "unaligned",
)


@dataclass(frozen=True)
class Case:
    arrays: dict  # query, key, value
    options: dict = field(default_factory=dict)
    grad_out: np.ndarray | None = None
    grad_lse: np.ndarray | None = None

    @property
    def arguments(self):
        return {**self.arrays, **self.options}


def normals(seed, *shape, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def lay_out(array, layout):
    """The same numbers in another memory arrangement."""
    if layout == "contiguous":
        return np.ascontiguousarray(array)
    if layout == "transposed":  # tokens before heads, as models keep it
        if array.ndim < 3:
            return np.asfortranarray(array)
        return np.ascontiguousarray(array.swapaxes(-2, -3)).swapaxes(-2, -3)
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "interleaved":
        steps = (1, 1, 2, 3)[-array.ndim :]
        shape = [size * step for size, step in zip(array.shape, steps, strict=True)]
        wide = np.full(shape, np.nan, dtype=array.dtype)  # the gaps must not be read as numbers
        view = wide[tuple(slice(None, None, step) for step in steps)]
        view[...] = array
        return view
    if layout == "negative":
        backwards = (slice(None, None, -1),) * min(2, array.ndim)
        return np.ascontiguousarray(array[(..., *backwards)])[(..., *backwards)]
    if layout == "read-only":
        array = array.copy()
        array.flags.writeable = False
        return array
    if layout == "unaligned":
        raw = np.empty(array.nbytes + 1, dtype=np.uint8)
        view = raw[1:].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view
    raise ValueError(layout)


def draw_tokens(rng):
    return int(rng.integers(1, 601)) if rng.random() < 0.1 else int(rng.choice(TOKENS))


def draw_sizes(rng):
    """(batch, heads, key_heads, queries, keys), at most MOST_PAIRS pairs."""
    queries = draw_tokens(rng)
    keys = queries if rng.random() < 0.5 else draw_tokens(rng)
    batch = int(rng.integers(1, 4))
    heads, key_heads = HEADS[rng.integers(len(HEADS))]
    if batch * heads * queries * keys > MOST_PAIRS:
        batch = 1
    if heads * queries * keys > MOST_PAIRS:
        heads = key_heads = 1
    return batch, heads, key_heads, queries, keys


def parameter_shape(rng, ndim, sizes, per_token=True):
    """One of the shapes a parameter may have; every axis may also be 1."""
    batch, heads, queries = sizes
    axes = {4: [(), (heads,), (batch, heads)], 3: [(), (heads,)], 2: [()]}[ndim]
    if per_token:
        axes = [*axes, {4: (batch, heads, queries), 3: (heads, queries), 2: (queries,)}[ndim]]
    shape = axes[rng.integers(len(axes))]
    return tuple(1 if rng.random() < 0.15 else size for size in shape)


def dress(rng, values):
    """A parameter as a user may hand it over: number, list, integers or either float."""
    kind = rng.integers(4)
    if kind == 0:
        return values.tolist()
    if kind == 1 and np.all(values == np.floor(values)) and np.abs(values).max() < 2**31:
        return values.astype(np.int64)
    return values.astype(np.float32) if kind == 2 else values


def draw_span(rng, ndim, sizes, keys):
    if rng.random() < 0.12:
        return None
    shape = parameter_shape(rng, ndim, sizes)
    kind = rng.integers(4)
    if kind == 0:
        values = np.floor(rng.uniform(0, 1.3 * keys + 2, shape))
    elif kind == 1:
        values = np.floor(4 * rng.uniform(0, 1.1 * keys + 2, shape)) / 4
    elif kind == 2:
        values = np.floor(4 * rng.uniform(0, 20, shape)) / 4
    else:  # the ends: nothing, one, the edge of a tile, everything
        ends = [0, 0, 0.25, 1, 63, 64, 65, keys - 1, keys, keys + 0.5, 1e9]
        values = np.asarray(rng.choice(ends, shape), dtype=np.float64)
    return dress(rng, np.asarray(values, dtype=np.float64))


def draw_options(rng, ndim, sizes, keys, head_dim):
    options = {}
    span = draw_span(rng, ndim, sizes, keys)
    if span is not None:
        options["span"] = span
        ramp = RAMPS[rng.integers(len(RAMPS))]
        if ramp != 32 or rng.random() < 0.5:
            options["ramp"] = ramp
    if rng.random() < 0.4:
        options["causal"] = False
    elif sizes[2] > keys:
        options["causal"] = True  # not taken for granted where some queries see nothing
    if rng.random() < 0.3:
        options["include_self"] = False
    if rng.random() < 0.3:
        options["scale"] = float(rng.choice([-0.5, 0.0, 0.7, 1.0, 1.5])) / head_dim**0.5
    if rng.random() < 0.4:
        shape = parameter_shape(rng, ndim, sizes)
        options["temperature"] = dress(rng, np.floor(4 * rng.uniform(0.75, 3, shape)) / 4)
    if rng.random() < 0.4:
        shape = parameter_shape(rng, ndim, sizes, per_token=False)
        options["alibi_slopes"] = dress(rng, np.floor(64 * rng.uniform(-0.02, 0.2, shape)) / 64)
    return options | draw_terms(rng, ndim, sizes, keys)


def draw_terms(rng, ndim, sizes, keys):
    """Score terms that fit any problem, each on a share of the cases."""
    options = {}
    if rng.random() < 0.2:
        options["softcap"] = float(rng.choice([0.3, 2.5, 30]))
    if rng.random() < 0.2:
        shape = parameter_shape(rng, ndim, sizes, per_token=False)
        options["sinks"] = dress(rng, np.floor(64 * rng.normal(0, 2, shape)) / 64)
    if rng.random() < 0.2:
        heads = (sizes[1],) if ndim > 2 and rng.random() < 0.5 else ()
        options["distance_bias"] = np.floor(64 * rng.normal(0, 1, (*heads, int(rng.choice([1, 5, 64, 200]))))) / 64
        if rng.random() < 0.5:
            reach = int(rng.choice([0, 3, 70]))
            options["distance_buckets"] = rng.integers(0, options["distance_bias"].shape[-1], 2 * reach + 1)
    if rng.random() < 0.2 and sizes[2] <= keys:
        block = (int(rng.choice([1, 16, 64, 100])), int(rng.choice([1, 3, 64, 200])))
        heads = [(), (1,), (sizes[1],)][int(rng.integers(3 if ndim > 2 else 2))]
        shape = (*heads, *(-(-keys // side) for side in block))
        options["block_gates"] = np.ceil(8 * rng.uniform(0, 1.2, shape)) / 8
        options["gate_block_size"] = block if rng.random() < 0.5 else np.array(block)
    if rng.random() < 0.15:
        options["dropout"], options["seed"] = float(rng.choice([0.05, 0.5, 0.9])), int(rng.integers(2**63))
    return options


def draw_memory(rng, arrays):
    """Keys that every query sees, and their values, on a share of the cases."""
    if rng.random() >= 0.15:
        return {}
    key, value = arrays["key"], arrays["value"]
    lead = key.shape[-3:-2] if rng.random() < 0.7 else ()
    shape = (*lead, int(rng.choice([0, 1, 3, 16, 63, 64, 65, 130])))
    return {
        f"persistent_{name}": draw_array(rng, (*shape, like.shape[-1]), key.dtype)
        for name, like in (("key", key), ("value", value))
    }


def draw_array(rng, shape, dtype):
    """Unit normals in a random layout; sometimes one axis is a broadcast one."""
    if rng.random() < 0.1:
        # Not the last axis: products of two equal vectors are far from unit normal.
        axis = int(rng.integers(max(1, len(shape) - 1)))
        narrow = tuple(1 if i == axis else size for i, size in enumerate(shape))
        return np.broadcast_to(rng.standard_normal(narrow).astype(dtype), shape)
    array = rng.standard_normal(shape).astype(dtype)
    return lay_out(array, LAYOUTS[rng.integers(len(LAYOUTS))] if rng.random() < 0.6 else LAYOUTS[0])


def make_case(seed, dtype):
    rng = np.random.default_rng([20240, seed, DTYPES.index(dtype)])
    batch, heads, key_heads, queries, keys = draw_sizes(rng)
    ndim = int(rng.choice([4, 4, 4, 4, 3, 2]))
    head_dim = int(rng.choice(HEAD_DIMS))
    value_dim = head_dim if rng.random() < 0.7 else int(rng.choice(HEAD_DIMS))
    if ndim < 4:
        batch = 1
    if ndim == 2:
        heads = key_heads = 1
    lead, key_lead = (batch, heads)[4 - ndim :], (batch, key_heads)[4 - ndim :]
    arrays = {
        "query": draw_array(rng, (*lead, queries, head_dim), dtype),
        "key": draw_array(rng, (*key_lead, keys, head_dim), dtype),
        "value": draw_array(rng, (*key_lead, keys, value_dim), dtype),
    }
    return Case(
        arrays,
        draw_options(rng, ndim, (batch, heads, queries), keys, head_dim) | draw_memory(rng, arrays),
        draw_array(rng, (*lead, queries, value_dim), dtype),
        draw_array(rng, (*lead, queries), dtype) if rng.random() < 0.5 else None,
    )
