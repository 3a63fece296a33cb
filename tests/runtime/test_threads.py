"""The number of threads changes no result, and what is outside a span is never even read."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import headspan as hs
import numpy as np
import oracle
import pattern_draws
import pattern_oracle
import pytest
from bits import all_bits, check_untouched, make_arguments, poisoned, spread_over_keys
from cases import DTYPES, normals
from helpers import run_python

pytestmark = pytest.mark.numerical

THREADS = (1, 2, 3, 7, 16)

# name: (heads, key_heads, queries, keys, head_dim), options; no size a multiple of 2, 3, 4 or 5.
BIT_CASES = {
    "causal": ((7, 7, 257, 257, 17), {}),
    "one long head": ((1, 1, 1009, 1009, 7), {"span": 301.5}),
    "spans": ((7, 1, 331, 331, 13), {"span": [0, 1.5, 9, 33.25, 64, 150, 1e6]}),
    "a long span among short ones": ((8, 8, 1009, 1009, 7), {"span": [8, 8, 8, 16, 16, 32, 64, 900]}),
    "spans per token": ((1, 1, 517, 517, 11), {"span": np.linspace(0, 300, 517)[None, None]}),
    "both directions": ((7, 7, 211, 307, 13), {"span": 41.5, "causal": False}),
    "temperature and slopes": (
        (7, 7, 257, 257, 7),
        {"temperature": np.linspace(0.5, 2, 7), "alibi_slopes": np.linspace(-0.1, 0.5, 7)},
    ),
    "soft cap and sinks": ((7, 7, 257, 257, 7), {"softcap": 1.5, "sinks": np.linspace(-1, 2, 7), "span": 70.5}),
    "by distance": ((7, 1, 331, 331, 13), {"distance_bias": np.linspace(-1, 1, 7 * 99).reshape(7, 99), "span": 70.5}),
    "by blocks": (
        (7, 1, 331, 331, 13),
        {"block_gates": np.linspace(0, 1, 7 * 36).reshape(7, 6, 6), "gate_block_size": 64},
    ),
    "by distance, shared keys": ((6, 3, 801, 801, 13), {"distance_bias": np.linspace(-1, 1, 300), "span": 700.5}),
    "by distance, a long head": ((1, 1, 4003, 4003, 7), {"distance_bias": np.linspace(-1, 1, 300), "span": 256.5}),
    "memory": ((6, 3, 801, 801, 13), {"memory": 70, "span": 70.5}),
    "memory, a long head": ((1, 1, 4003, 4003, 7), {"memory": 5, "span": 256.5}),
    "memory, keys in parts": ((2, 2, 3, 9001, 16), {"memory": 3}),
    "dropout": ((6, 3, 801, 801, 13), {"dropout": 0.3, "seed": 11, "span": 70.5, "memory": 5}),
    "dropout, keys in parts": ((2, 2, 3, 9001, 16), {"dropout": 0.3, "seed": 12}),
    "sinks, keys in parts": ((2, 2, 3, 9001, 16), {"sinks": [3.0, -2.0]}),
    "decode": ((7, 7, 1, 4999, 17), {"temperature": 0.7}),
    "grouped decode in parts": ((7, 1, 3, 9001, 13), {"span": np.linspace(1, 9000, 7), "temperature": 0.7}),
    "decode in parts": ((1, 1, 3, 9001, 64), {"span": 1e6}),
    "few heads with long spans": ((6, 3, 801, 801, 13), {"span": 700.5}),
    "four heads with long spans": ((4, 4, 801, 801, 13), {"span": 700.5}),
    "a long head, both directions": ((1, 1, 1203, 1203, 11), {"span": 1e6, "causal": False}),
    "many chunks": ((1, 1, 6007, 6007, 7), {"span": 30.5}),
    "a few chunks": ((1, 1, 4003, 4003, 7), {"span": 256.5}),
    "spans per token in no order": (
        (1, 1, 1517, 1517, 11),
        {"span": np.random.default_rng(0).uniform(0, 900, (1, 1, 1517))},
    ),
    "keys shared by many rows": ((1, 1, 1999, 7, 7), {"causal": False, "alibi_slopes": 0.001}),
    "ranges in no order": (
        (3, 3, 801, 801, 13),
        {"key_ranges": np.sort(np.random.default_rng(0).integers(0, 802, (801, 2)), axis=1), "causal": False},
    ),
    "ranges, a long head": (
        (1, 1, 4003, 4003, 7),
        {"key_ranges": np.clip(np.arange(4003)[::-1, None] + [-90, 90], 0, 4003), "causal": False},
    ),
    "a prefix": ((2, 1, 1517, 1517, 11), {"prefix_lengths": 700, "span": [60.5, 900]}),
    "segments that recur": (
        (3, 3, 801, 801, 13),
        {"segment_ids": np.random.default_rng(0).integers(0, 9, 801), "span": 300.5},
    ),
    "segments of both": (
        (3, 1, 401, 801, 13),
        {"query_segments": np.arange(401) // 77, "key_segments": np.arange(801) // 150},
    ),
    "without self": ((1, 1, 401, 401, 7), {"span": 63.5, "include_self": False, "ramp": 0}),
}


def with_persistent(arrays, options):
    """Options of a case, with persistent keys and values if it has a number of them."""
    count, options = options.get("memory"), {name: option for name, option in options.items() if name != "memory"}
    if count:
        for name in ("key", "value"):
            (_, heads, _, dim), dtype = arrays[name].shape, arrays[name].dtype
            options[f"persistent_{name}"] = normals(count, heads, count, dim, dtype=dtype)
    return options


@pytest.fixture
def threads():
    """Restores the number of threads that a test changes."""
    before = hs.get_num_threads()
    yield
    hs.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "options"), BIT_CASES.values(), ids=BIT_CASES)
def test_bits_do_not_depend_on_threads(threads, shape, options, dtype):
    arrays, grad_out, grad_lse = make_arguments(shape, dtype)
    options = with_persistent(arrays, {"span": 1000.0} | options)
    hs.set_num_threads(1)
    expected = all_bits(arrays, grad_out, grad_lse, **options)
    for count in THREADS:
        hs.set_num_threads(count)
        assert hs.get_num_threads() == count
        for _ in range(2):
            for name, bits in all_bits(arrays, grad_out, grad_lse, **options).items():
                assert bits.tobytes() == expected[name].tobytes(), f"{name}, {count} threads"


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", [*pattern_draws.PRIMITIVES, "a late global token"])
def test_no_bit_of_a_pattern_depends_on_threads(threads, name, causal, include_self):
    """One head, whose chunks add to the same keys, with spans, which do not limit global tokens.

    The group of a global token that does not see itself has none of these keys. With more keys than a range has,
    threads share the head.
    """
    tokens = 4603 if name in ("Window", "Blockwise", "a late global token") else 1003
    if name == "a late global token":
        pattern = hs.patterns.Global([903]) | hs.patterns.Window(301)
    else:
        room = pattern_draws.Room(tokens, tokens, 1, None, 0, 1)
        pattern = pattern_oracle.build(pattern_draws.PRIMITIVES[name].draw(np.random.default_rng(5), room))
    arrays, grad_out, grad_lse = make_arguments((1, 1, tokens, tokens, 8), "float32")
    options = {"pattern": pattern, "span": 300.5, "causal": causal, "include_self": include_self}
    hs.set_num_threads(1)
    expected = all_bits(arrays, grad_out, grad_lse, **options)
    for count in (2, 3, 5) * 4:
        hs.set_num_threads(count)
        for result, bits in all_bits(arrays, grad_out, grad_lse, **options).items():
            assert bits.tobytes() == expected[result].tobytes(), f"{result}, {count} threads"


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_and_merge_do_not_depend_on_threads(threads, dtype):
    arrays, grad_out, grad_lse = make_arguments((7, 7, 331, 331, 13), dtype)
    seen = set()
    for count in THREADS:
        hs.set_num_threads(count)
        weights = hs.attention_weights(arrays["query"], arrays["key"], span=77.5, pool=10)
        merged = hs.merge_attention([grad_out, arrays["query"]], [grad_lse, -grad_lse])
        seen.add((weights.tobytes(), merged[0].tobytes(), merged[1].tobytes()))
    assert len(seen) == 1


AFFINITY = """
import os
import numpy as np
import headspan as hs

x = np.random.default_rng(0).standard_normal((1, 4, 2048, 16))

def allowed():
    return {thread: os.sched_getaffinity(int(thread)) for thread in os.listdir("/proc/self/task")}

def run(threads):
    hs.set_num_threads(threads)
    return hs.attention(x, x, x, span=50.0).tobytes()

expected = run(1)
for threads in (2, len(os.sched_getaffinity(0)) + 3):
    assert run(threads) == expected
    before = allowed()
    for _ in range(20):
        assert run(threads) == expected
    assert allowed() == before
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
assert run(2) == expected
assert len(os.sched_getaffinity(0)) == 1
print(len(before))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads are kept apart on Linux only")
def test_threads_may_run_where_they_could_before():
    """Threads that meet on a processor separate; the processors that the system allows them must not change."""
    assert int(run_python(AFFINITY)) >= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_calls_from_several_threads_at_once(dtype):
    """The lock is released during a call: calls that overlap share nothing."""
    problems = [make_arguments((3, 3, 201 + i, 201 + i, 9), dtype, seed=i) for i in range(8)]

    def run(problem):
        return all_bits(*problem, span=50.5)

    expected = [run(problem) for problem in problems]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for want, got in zip(expected, pool.map(run, problems), strict=True):
                assert all(want[name].tobytes() == got[name].tobytes() for name in want)


def fresh_pattern():
    window = hs.patterns.Window(41) | hs.patterns.Random(2, block_size=16, seed=3)
    return (window & hs.patterns.Strided(2)) | hs.patterns.Global([0, 100])


def test_threads_share_all_arguments():
    """Threads may share arguments, and a pattern that no thread has used before: all make the same of it."""
    arrays, _, _ = make_arguments((3, 3, 257, 257, 9), np.float64)
    expected = hs.attention(**arrays, pattern=fresh_pattern()).tobytes()
    threads = 8
    start = Barrier(threads)

    def run(pattern):
        start.wait()
        result = hs.attention(**arrays, pattern=pattern).tobytes()
        return result, repr(pattern), pattern.mask(257).tobytes()

    with ThreadPoolExecutor(threads) as pool:
        for _ in range(10):
            results = list(pool.map(run, [fresh_pattern()] * threads))
            assert results == [results[0]] * threads
            assert results[0][0] == expected


POISON_CASES = {
    "causal, short": ((4, 2, 150, 150, 9), {"ramp": 3}, 8),
    "causal, mixed": ((4, 4, 150, 150, 16), {"ramp": 10.5}, 70),
    "both directions": ((2, 2, 150, 170, 8), {"ramp": 4, "causal": False}, 12),
    "hard window": ((2, 1, 131, 131, 5), {"ramp": 0}, 20),
    "without self": ((2, 2, 140, 131, 8), {"ramp": 5, "include_self": False, "causal": True}, 6),
    "slopes": ((2, 2, 150, 150, 8), {"ramp": 5, "alibi_slopes": 0.25}, 20),
}


def poison_problem(shape, options, longest, dtype, seed):
    """Arguments with a span for every token, which of the pairs are in reach, and a generator."""
    arrays, grad_out, grad_lse = make_arguments(shape, dtype, seed)
    rng = np.random.default_rng(seed)
    heads, _, queries, _, _ = shape
    span = np.floor(4 * rng.uniform(0, longest, (1, heads, queries))) / 4
    options = {**options, "span": span, "temperature": np.ones((1, heads, queries))}
    reach = oracle.dense(arrays["query"], arrays["key"], **options).mask > 0
    return arrays, grad_out, grad_lse, options, reach, rng


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", POISON_CASES.values(), ids=POISON_CASES)
@pytest.mark.parametrize("where", ["key", "value"])
def test_poisoned_keys_reach_only_the_rows_that_see_them(where, case, dtype, poison):
    for seed in range(3):
        arrays, *grads, options, reach, rng = poison_problem(*case, dtype, seed)
        clean = all_bits(arrays, *grads, **options)
        bad = rng.random(arrays["key"].shape[:3]) < 0.03
        heads, key_heads = arrays["query"].shape[1], arrays["key"].shape[1]
        seen = (reach & np.repeat(bad, heads // key_heads, axis=1)[:, :, None, :]).any(axis=3)
        dirty = all_bits({**arrays, where: poisoned(arrays[where], bad, poison)}, *grads, **options)
        met = spread_over_keys(seen, reach, key_heads)
        rows = dict.fromkeys(("query", "span", "temperature"), seen)
        values = {} if where == "key" else {"lse": np.zeros_like(seen)}
        check_untouched(clean, dirty, {"out": seen, "lse": seen, "key": met, "value": met, **rows, **values})
        if np.isnan(poison):  # and queries that see it are NaN
            assert np.isnan(dirty["out"][seen]).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", POISON_CASES.values(), ids=POISON_CASES)
@pytest.mark.parametrize("where", ["query", "grad_out", "grad_lse"])
def test_poisoned_rows_reach_only_the_keys_they_see(where, case, dtype, poison):
    for seed in range(3):
        arrays, grad_out, grad_lse, options, reach, rng = poison_problem(*case, dtype, seed)
        inputs = {**arrays, "grad_out": grad_out, "grad_lse": grad_lse}
        bad = rng.random(arrays["query"].shape[:3]) < 0.05
        empty = ~reach.any(axis=3)
        changed = {**inputs, where: poisoned(inputs[where], bad, poison)}
        clean, dirty = (
            all_bits({name: d[name] for name in oracle.ARRAYS}, d["grad_out"], d["grad_lse"], **options)
            for d in (inputs, changed)
        )
        rows = bad & ~empty  # a row without keys gives 0 and -inf whatever it holds
        met = spread_over_keys(rows, reach, arrays["key"].shape[1])
        forward = rows if where == "query" else np.zeros_like(rows)
        affected = dict.fromkeys(("query", "span", "temperature"), rows)
        check_untouched(clean, dirty, {"out": forward, "lse": forward, "key": met, "value": met, **affected})


@pytest.mark.parametrize("longest", [100, 400], ids=["many chunks", "a few chunks"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_groups_of_a_chunk_that_look_back_further_than_its_first(dtype, longest):
    """With a pattern there are no chunks, which gives the same gradients in another way."""
    rng = np.random.default_rng(0)
    query, key, value, grad_out = rng.standard_normal((4, 1, 1, 6016, 8)).astype(dtype)
    spans = np.where(np.arange(6016) // 64 % 2, longest, longest / 10)[None, None]
    options = {"span": spans, "ramp": 2, "key_bias": rng.standard_normal(6016)}
    one, two = (
        hs.attention_vjp(query, key, value, **options, pattern=pattern)[1](grad_out)
        for pattern in (None, hs.patterns.Full())
    )
    close = {"float64": 1e-12, "float32": 2e-5}[dtype]
    for name in ("query", "key", "value", "span", "key_bias"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=0, atol=close, err_msg=name)
