"""Random calls with a pattern, or with positions, lengths, segments and biases, and their check.

As in `cases`, a case is a function of its seed and dtype, and every number that decides whether a
pair is seen is a multiple of 1/4: spans, ramps and positions.
"""

from dataclasses import dataclass, field

import headspan as hs
import numpy as np
import oracle
import pattern_draws
import pattern_oracle
from cases import DTYPES, HEADS, draw_array, draw_memory, draw_options, dress, seeds
from tolerances import check_close, check_gradients

# Of random compositions, for each dtype; the runs of every variant set it lower.
SEEDS = seeds("HEADSPAN_TEST_PATTERNS", 40, few=10)
SIZES = (1, 63, 64, 65, 257)
MOST_PAIRS = 140_000  # over all heads and batch items


@dataclass(frozen=True)
class PatternCase:
    arrays: dict
    options: dict = field(default_factory=dict)  # but for the pattern
    tree: object = None  # or a list of one a head, or a list of lists
    grad_out: np.ndarray | None = None
    grad_lse: np.ndarray | None = None

    @property
    def shares(self):
        """Batch items and heads."""
        return (1, 1, *self.arrays["query"].shape[:-2])[-2:]

    @property
    def arguments(self):
        pattern = {} if self.tree is None else {"pattern": pattern_oracle.build(self.tree)}
        return {**self.arrays, **self.options, **pattern}

    @property
    def dense(self):
        """The arguments of the same call for the oracle."""
        tokens = [np.shape(self.arrays[name])[-2] for name in ("query", "key")]
        limits = {} if self.tree is None else pattern_oracle.limits(self.tree, *tokens, *self.shares)
        return {**self.arrays, **self.options, **limits}


def check_case(case):
    """Values, weights and every gradient of one call."""
    arguments, dense = case.arguments, case.dense
    query, key = case.arrays["query"], case.arrays["key"]
    dtype, shape = query.dtype, query.shape[:-1]
    matrices = oracle.with_persistent_columns(**dense)
    (out, lse), vjp = hs.attention_vjp(**arguments, return_lse=True)
    check_close("out", out, matrices.out.reshape(case.grad_out.shape), dtype)
    check_close("lse", lse, matrices.lse.reshape(shape), dtype)
    expected = oracle.gradients(**dense, grad_out=case.grad_out, grad_lse=case.grad_lse, matrices=matrices)
    check_gradients(vjp(case.grad_out, case.grad_lse), expected, arguments)
    weights = hs.attention_weights(**{name: value for name, value in arguments.items() if name != "value"})
    expected = matrices.weights[..., : key.shape[-2]]
    check_close("weights", weights, expected.reshape(*shape, key.shape[-2]), dtype)
    # The forward call alone takes the same path and must give the same bits.
    alone, alone_lse = hs.attention(**arguments, return_lse=True)
    assert alone.tobytes() == out.tobytes()
    assert alone_lse.tobytes() == lse.tobytes()


def check_reference(case):
    """The package's own dense definition."""
    expected = oracle.dense(**case.dense)
    out, lse = hs.reference.attention(**case.arguments, return_lse=True)
    np.testing.assert_allclose(out, expected.out.reshape(out.shape), rtol=0, atol=1e-12)
    np.testing.assert_allclose(lse, expected.lse.reshape(lse.shape), rtol=0, atol=1e-12)


def draw_positions(rng, tokens, lead):
    """Non-decreasing multiples of 1/4, some of them repeated."""
    steps = rng.choice([0, 0.25, 1, 1, 2.5], (*lead, tokens))
    return np.floor(rng.uniform(-9, 9)) + np.cumsum(steps, axis=-1)


def draw_segments(rng, tokens, lead, come_back=False):
    """Ids in no order; `come_back` lets segments recur."""
    rows = np.empty((*lead, tokens), dtype=np.int64)
    if come_back:
        return rng.integers(-2, rng.choice([1, 5, tokens]), rows.shape)
    for row in rows.reshape(-1, tokens):
        changes = rng.random(tokens) < rng.choice([0.01, 0.05, 0.5])
        row[:] = rng.permutation(tokens + 1)[np.cumsum(changes)] - 3
    return rows


def draw_two_segments(rng, queries, keys, lead, come_back):
    """Ids of queries and of keys: some in common, in one order or in others."""
    if come_back and rng.random() < 0.6:
        return draw_segments(rng, queries, lead(), True), draw_segments(rng, keys, lead(), True)
    ids = rng.permutation(9)

    def packed(tokens, lead, order):
        cuts = np.sort(rng.integers(0, tokens + 1, (*lead, 4)), axis=-1)
        return order[(np.arange(tokens)[..., None, :] >= cuts[..., :, None]).sum(axis=-2)]

    return packed(queries, lead(), ids), packed(keys, lead(), ids if rng.random() < 0.5 else rng.permutation(9))


def draw_ranges(rng, queries, keys, lead):
    """A range of keys for every query: in any order, or ascending as those of caches and chunks, some of them empty."""
    ranges = np.sort(rng.integers(0, keys + 1, (*lead, queries, 2)), axis=-1)
    kind = rng.integers(3)
    if kind == 0:
        return np.sort(ranges, axis=-2)
    return ranges if kind == 1 else np.repeat(ranges[..., ::5, :], 5, axis=-2)[..., :queries, :]


def draw_bias(rng, ndim, batch, heads, keys):
    lead = {2: [()], 3: [(), (1,), (heads,)], 4: [(), (heads,), (1, heads), (batch, 1), (batch, heads)]}[ndim]
    shape = (*lead[rng.integers(len(lead))], keys)
    bias = np.floor(64 * rng.normal(0, 1, shape)) / 64
    if rng.random() < 0.5:
        bias[rng.random(shape) < rng.choice([0.05, 0.6])] = -np.inf
    return bias if rng.random() < 0.5 else bias.astype(np.float32)


def draw_limits(rng, ndim, sizes, share, positions=True, come_back=False):
    """Every limit but a pattern, each on a share of the cases; `come_back` lets segments recur."""
    batch, heads, queries, keys = sizes
    options = {}

    def lead():
        return (batch,) if ndim == 4 and rng.random() < 0.5 else ()

    if rng.random() < share:
        options["key_bias"] = draw_bias(rng, ndim, batch, heads, keys)
    if rng.random() < share:
        stops = rng.integers(0, keys + 1, lead())
        options["key_stop"] = stops if stops.ndim else int(stops)
    if rng.random() < share:
        starts = np.minimum(rng.integers(0, keys + 1, lead()), rng.integers(1, keys + 1))
        starts = np.minimum(starts, np.min(options.get("key_stop", keys)))
        options["key_start"] = starts if starts.ndim else int(starts)
    if rng.random() < share:
        options["key_ranges"] = draw_ranges(rng, queries, keys, lead())
    if rng.random() < share:
        prefix = rng.integers(0, keys + 1, lead())
        options["prefix_lengths"] = prefix if prefix.ndim else int(prefix)
    elif rng.random() < share and queries <= keys:
        options["segment_ids"] = draw_segments(rng, keys, lead(), come_back and rng.random() < 0.5)
    elif positions and rng.random() < share:
        ids = draw_two_segments(rng, queries, keys, lead, come_back)
        options["query_segments"], options["key_segments"] = ids
    if positions and rng.random() < share:
        options["query_positions"] = dress(rng, draw_positions(rng, queries, lead()))
    if positions and rng.random() < share and ("query_positions" in options or queries <= keys):
        options["key_positions"] = dress(rng, draw_positions(rng, keys, lead()))
    return options


def draw_case(rng, dtype, tree, sizes, ndim, head_dim, share=0.25):
    """A case of the given sizes: (batch, heads, key_heads, queries, keys)."""
    batch, heads, key_heads, queries, keys = sizes
    value_dim = head_dim if rng.random() < 0.7 else int(rng.choice([1, 5, 16, 33]))
    lead, key_lead = (batch, heads)[4 - ndim :], (batch, key_heads)[4 - ndim :]
    arrays = {
        "query": draw_array(rng, (*lead, queries, head_dim), dtype),
        "key": draw_array(rng, (*key_lead, keys, head_dim), dtype),
        "value": draw_array(rng, (*key_lead, keys, value_dim), dtype),
    }
    options = draw_options(rng, ndim, (batch, heads, queries), keys, head_dim)
    if "alibi_slopes" in options:
        # The nearest key a pattern leaves may be far: scores beyond 10 or so would round coarsely.
        slopes = np.floor(4096 * np.asarray(options["alibi_slopes"], dtype=np.float64) * min(1, 50 / keys)) / 4096
        options["alibi_slopes"] = slopes
    trees = pattern_oracle.flat(tree)
    if any(one.options.get("extra") for some in trees if some is not None for one in pattern_oracle.leaves_of(some)):
        options.pop("alibi_slopes", None)  # tokens outside a grid have no distance
    if any(some is not None and pattern_oracle.looks_both_ways(some) for some in trees):
        options.setdefault("causal", True)
    kinds = [one.kind for some in trees if some is not None for one in pattern_oracle.leaves_of(some)]
    if "Neighborhood" in "".join(kinds):  # tables by its axes have another test
        options.pop("distance_bias", None), options.pop("distance_buckets", None)
    on_a_line = "Neighborhood" not in kinds
    come_back = tree is None and not {"dropout", "block_gates"} & options.keys()
    options |= draw_limits(rng, ndim, (batch, heads, queries, keys), share, on_a_line, come_back)
    if not options.get("causal", True):
        options.pop("prefix_lengths", None)
    grad_lse = draw_array(rng, (*lead, queries), dtype) if rng.random() < 0.5 else None
    options |= draw_memory(rng, arrays)
    return PatternCase(arrays, options, tree, draw_array(rng, (*lead, queries, value_dim), dtype), grad_lse)


def named_case(shape, dtype, tree=None, **options):
    """A case given as (batch, heads, key_heads, queries, keys, head_dim)."""
    batch, heads, key_heads, queries, keys, dim = shape

    def draw(i, *s):
        return np.random.default_rng([i, *shape]).standard_normal((batch, *s)).astype(dtype)

    arrays = {"query": draw(1, heads, queries, dim), "key": draw(2, key_heads, keys, dim)}
    arrays["value"] = draw(3, key_heads, keys, dim + 1)
    return PatternCase(arrays, options, tree, draw(4, heads, queries, dim + 1), draw(5, heads, queries))


def draw_extra(rng, keys):
    """The number of tokens outside a grid, in either of its forms."""
    if keys < 10 or rng.random() < 0.6:
        return 0
    return int(rng.integers(1, 4)) if rng.random() < 0.4 else (int(rng.integers(4)), int(rng.integers(3)))


def draw_heads(rng, queries, keys):
    """(batch, heads, key_heads), at most MOST_PAIRS pairs."""
    batch, (heads, key_heads) = int(rng.integers(1, 3)), HEADS[rng.integers(len(HEADS))]
    batch = batch if batch * heads * queries * keys <= MOST_PAIRS else 1
    return (batch, heads, key_heads) if heads * queries * keys <= MOST_PAIRS else (1, 1, 1)


def make_primitive_case(name, queries, keys, dtype):
    rng = np.random.default_rng([31, sorted(pattern_draws.PRIMITIVES).index(name), queries, keys])
    large = queries * keys > 4 * MOST_PAIRS
    batch, heads, key_heads = (1, 1, 1) if large else draw_heads(rng, queries, keys)
    ndim = int(rng.choice([4, 4, 3]))
    extra = draw_extra(rng, keys) if name.startswith("Neighborhood") else 0
    room = pattern_draws.Room(queries, keys, heads, None, extra, batch if ndim == 4 else 1)
    tree = pattern_draws.PRIMITIVES[name].draw(rng, room)
    head_dim = 8 if large else int(rng.choice([3, 8, 16, 17, 64]))
    sizes = (batch if ndim == 4 else 1, heads, key_heads, queries, keys)
    return draw_case(rng, dtype, tree, sizes, ndim, head_dim, share=0.1)


def make_composed_case(seed, dtype):
    """A random expression, or a list of one a head, or a list of lists."""
    rng = np.random.default_rng([32, seed, DTYPES.index(dtype)])
    on_grid = rng.random() < 0.35
    queries = keys = int(rng.choice(SIZES))
    if rng.random() < 0.5:
        other = int(rng.choice(SIZES))
        queries, keys = (min(other, keys), max(other, keys)) if on_grid else (other, keys)
    batch, heads, key_heads = draw_heads(rng, queries, keys)
    ndim = int(rng.choice([4, 4, 4, 3, 2])) if heads == 1 else int(rng.choice([4, 4, 3]))
    extra = draw_extra(rng, keys) if on_grid else 0
    on_it = keys - sum(pattern_oracle.before_and_after(extra))
    grid = pattern_draws.draw_grid(rng, on_it, int(rng.integers(1, 4))) if on_grid else None
    form = rng.choice(["one", "one a head", "one an item", "one an item and head"], p=[0.6, 0.2, 0.1, 0.1])
    room = pattern_draws.Room(queries, keys, heads if ndim > 2 else 0, grid, extra, batch if ndim == 4 else 1)

    def draw_row(count):
        return [pattern_draws.draw_tree(rng, room, int(rng.integers(2, 6))) for _ in range(count)]

    if form == "one" or ndim == 2:
        (tree,) = draw_row(1)
    elif form == "one a head":
        tree = draw_row(heads)
    else:
        tree = [draw_row(heads if form.endswith("head") else 1) for _ in range(room.items)]
    sizes = (batch if ndim == 4 else 1, heads, key_heads, queries, keys)
    return draw_case(rng, dtype, tree, sizes, ndim, int(rng.choice([1, 4, 8, 15, 16, 33, 64])))
