"""The cache against attention over all keys: the same numbers, in the memory of the spans."""

import headspan as hs
import numpy as np
import pytest
from cases import DTYPES, normals
from headspan.patterns import Blockwise, Full, Global, Window

# Patterns are made in each test: what the core made of one must not outlive its types.
CASES = {
    "no limit": ({}, (2, 3, 3)),
    "span": ({"span": [3, 40], "ramp": 8}, (1, 2, 2)),
    "hard windows": ({"span": [0, 5, 64, 200], "ramp": 0}, (2, 4, 4)),
    "grouped": ({"span": [1, 2, 30, 7, 0, 90], "ramp": 4}, (2, 6, 2)),
    "sinks": ({"span": [3, 40], "ramp": 8, "first_tokens": 5}, (1, 2, 2)),
    "a span without limit": ({"span": [3, 1e30], "ramp": 8, "first_tokens": 2}, (1, 2, 2)),
    "a window": ({"pattern": lambda: Window(31)}, (2, 2, 1)),
    "global tokens": ({"span": [9, 20], "ramp": 2, "pattern": lambda: Window(16) | Global([0, 7, 100])}, (1, 2, 2)),
    "blocks": ({"pattern": lambda: Blockwise(16, back=1), "first_tokens": 3}, (1, 2, 2)),
    "a pattern for each head": ({"pattern": lambda: [Window(5), Full()], "span": [50, 7]}, (1, 2, 2)),
}


def made(arguments):
    """The arguments of a case, with its pattern."""
    return {name: value() if callable(value) else value for name, value in arguments.items()}


def problem(heads, key_heads, batch, tokens, dtype, value_dim=6):
    shapes = ((batch, heads, tokens, 8), (batch, key_heads, tokens, 8), (batch, key_heads, tokens, value_dim))
    return [normals(i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]


def uncached(query, key, value, arguments, **options):
    """Attention over all keys, with the spans, the pattern and the first tokens of a cache."""
    heads, sinks = query.shape[1], arguments.get("first_tokens", 0)
    pattern = arguments.get("pattern")
    if sinks:
        each = pattern if isinstance(pattern, list) else [Full() if pattern is None else pattern] * heads
        pattern = [part | Global(range(min(sinks, key.shape[2]))) for part in each]
    return hs.attention(
        query, key, value, span=arguments.get("span"), ramp=arguments.get("ramp", 32), pattern=pattern, **options
    )


def pieces_of(tokens, size):
    return [(first, min(first + size, tokens)) for first in range(0, tokens, size)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 7, 64, 150, 330])
@pytest.mark.parametrize(("arguments", "sizes"), CASES.values(), ids=CASES)
def test_pieces_are_the_same_to_the_bit(arguments, sizes, size, dtype):
    """Each piece has the bits of the same call over all keys so far."""
    arguments = made(arguments)
    batch, heads, key_heads = sizes
    tokens = 330
    query, key, value = problem(heads, key_heads, batch, tokens, dtype)
    cache = hs.SpanCache(batch, key_heads, 8, value_dim=6, dtype=dtype, **arguments)
    begin = 101 if "pattern" in arguments else 0  # after all global tokens
    cache.append(key[:, :, :begin], value[:, :, :begin])
    for first, last in pieces_of(tokens - begin, size):
        new, last = slice(begin + first, begin + last), begin + last
        out, lse = cache.attend(query[:, :, new], key[:, :, new], value[:, :, new], return_lse=True)
        if first % 5 == 0 or size > 1:
            expected, expected_lse = uncached(
                query[:, :, new], key[:, :, :last], value[:, :, :last], arguments, return_lse=True
            )
            assert np.array_equal(out, expected)
            assert np.array_equal(lse, expected_lse)
    assert cache.count == tokens


@pytest.mark.parametrize("name", CASES)
def test_memory_is_that_of_the_spans(name):
    arguments, sizes = made(CASES[name][0]), CASES[name][1]
    batch, heads, key_heads = sizes
    query, key, value = problem(heads, key_heads, batch, 900, "float32")
    cache = hs.SpanCache(batch, key_heads, 8, value_dim=6, **arguments)
    seen = []
    cache.append(key[:, :, :101], value[:, :, :101])  # with all global tokens
    for token in range(101, 900):
        cache.attend(query[:, :, [token]], key[:, :, [token]], value[:, :, [token]])
        seen.append(cache.nbytes)
    spans = np.asarray(arguments.get("span", [1e9] * heads), float)
    ramp = arguments.get("ramp", 32)
    reaches = np.maximum(np.floor(spans), np.ceil(spans + ramp) - 1)
    each = arguments.get("pattern")
    bounds = {"a window": 30, "global tokens": 15, "blocks": 31, "a pattern for each head": None}
    if bounds.get(name):
        reaches = np.minimum(reaches, bounds[name])
    if isinstance(each, list):
        reaches[0] = 4
    kept = len({*range(arguments.get("first_tokens", 0)), *((0, 7, 100) if name == "global tokens" else ())})
    rows = sum(reaches.reshape(key_heads, -1).max(axis=1) + 1 + kept)
    if rows < 1e6:
        assert cache.nbytes == rows * batch * (8 + 6) * 4
        assert seen[-1] == seen[600]
    else:
        assert cache.nbytes <= 2 * 900 * batch * key_heads * (8 + 6) * 4 + 1000


def test_options_of_a_query_are_those_of_attention():
    arguments = {"span": [12, 60], "ramp": 8, "first_tokens": 2}
    query, key, value = problem(2, 2, 2, 200, "float64")
    persistent_key, persistent_value = normals(7, 2, 3, 8), normals(8, 2, 3, 6)
    options = {
        "scale": 0.4, "temperature": [0.7, 1.5], "alibi_slopes": [0.1, 0.0], "softcap": 3.0, "sinks": [0.5, -1],
        "persistent_key": persistent_key,
        "persistent_value": persistent_value, "key_start": [3, 0], "include_self": False,
        "distance_bias": normals(9, 20), "dropout": 0.2, "seed": 5,
    }  # fmt: skip
    cache = hs.SpanCache(2, 2, 8, value_dim=6, dtype="float64", **arguments)
    cache.append(key[:, :, :190], value[:, :, :190])
    out = cache.attend(query[:, :, 190:], key[:, :, 190:], value[:, :, 190:], **options)
    assert np.array_equal(out, uncached(query[:, :, 190:], key, value, arguments, **options))


def test_queries_of_tokens_that_were_appended_before():
    arguments = {"span": [12, 60], "ramp": 8}
    query, key, value = problem(2, 2, 1, 200, "float32")
    cache = hs.SpanCache(1, 2, 8, value_dim=6, slack=4, **arguments)
    cache.append(key, value)
    for count in (1, 5):
        assert np.array_equal(cache.attend(query[:, :, -count:]), uncached(query[:, :, -count:], key, value, arguments))
    with pytest.raises(ValueError, match="slack"):
        cache.attend(query[:, :, -6:])


def test_rows_out_of_reach_are_not_read():
    """All rows of the ring except those in reach are NaN or infinite."""
    arguments = {"span": [12, 60], "ramp": 8}
    query, key, value = problem(2, 2, 1, 300, "float32")
    cache = hs.SpanCache(1, 2, 8, value_dim=6, slack=40, **arguments)
    cache.append(key[:, :, :299], value[:, :, :299])
    expected = uncached(query[:, :, -1:], key, value, arguments)
    for head, reach in enumerate((19, 67)):
        rings = cache._rings
        length = rings.keys[head].shape[1]
        beyond = [row % length for row in range(299 - length, 299 - reach)]
        rings.keys[head][:, beyond] = np.nan
        rings.values[head][:, beyond] = np.inf
    assert np.array_equal(cache.attend(query[:, :, -1:], key[:, :, -1:], value[:, :, -1:]), expected)


def test_dynamic_spans_may_not_reach_further():
    query, key, value = problem(2, 2, 1, 200, "float32")
    cache = hs.SpanCache(1, 2, 8, value_dim=6, span=[12, 60], ramp=8)
    cache.append(key[:, :, :199], value[:, :, :199])
    new = (query[:, :, -1:], key[:, :, -1:], value[:, :, -1:])
    with pytest.raises(ValueError, match="key head 0"):
        cache.attend(*new, span=[13.5, 60])
    assert cache.count == 199
    clipped = cache.copy().attend(*new, span=np.array([[[500.0], [30]]]), clip=True)
    assert np.array_equal(clipped, hs.attention(new[0], key, value, span=[12, 30], ramp=8))
    shorter = cache.attend(*new, span=[1.5, 59])
    assert np.array_equal(shorter, hs.attention(new[0], key, value, span=[1.5, 59], ramp=8))


def test_spans_shrink_while_the_text_goes_on():
    query, key, value = problem(4, 2, 2, 400, "float32")
    cache = hs.SpanCache(2, 2, 8, value_dim=6, span=[12, 60, 100, 3], ramp=8, first_tokens=2)
    for first, last in pieces_of(200, 50):
        cache.append(key[:, :, first:last], value[:, :, first:last])
    before, cache.span = cache.nbytes, [12, 5, 30, 3]
    assert cache.nbytes < before / 2
    arguments = {"span": [12, 5, 30, 3], "ramp": 8, "first_tokens": 2}
    for token in range(200, 400):
        out = cache.attend(query[:, :, [token]], key[:, :, [token]], value[:, :, [token]])
        seen = slice(token + 1)
        assert np.array_equal(out, uncached(query[:, :, [token]], key[:, :, seen], value[:, :, seen], arguments))
    with pytest.raises(ValueError, match="head 2"):
        cache.span = [1, 1, 31, 1]


def test_a_failing_call_leaves_the_cache_as_it_was(monkeypatch):
    query, key, value = problem(2, 2, 1, 1000, "float32")
    cache = hs.SpanCache(1, 2, 8, value_dim=6)
    cache.append(key[:, :, :60], value[:, :, :60])
    state = cache.state_dict()
    with pytest.raises(ValueError, match="temperature"):
        cache.attend(query[:, :, :1], key[:, :, :1], value[:, :, :1], temperature=0)
    with pytest.raises(ValueError, match="value"):
        cache.append(key[:, :, :1], value[:, :, :2])

    def no_memory(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(np, "zeros", no_memory)
        with pytest.raises(MemoryError):
            cache.append(key, value)
    for name, before in state.items():
        after = cache.state_dict()[name]
        same = all(map(np.array_equal, before, after)) if isinstance(before, list) else before == after
        assert same, name
    cache.append(key[:, :, 60:], value[:, :, 60:])
    assert np.array_equal(cache.attend(query[:, :, -1:]), hs.attention(query[:, :, -1:], key, value))


def test_beams_share_common_tokens():
    """Heads without limit share rows, and each beam continues with separate tokens, also after truncation."""
    arguments = {"span": [1e30, 9], "ramp": 4}
    query, key, value = problem(2, 2, 4, 1400, "float32")
    key[:, :, :1200], value[:, :, :1200] = key[:1, :, :1200], value[:1, :, :1200]
    cache = hs.SpanCache(1, 2, 8, value_dim=6, slack=300, **arguments)
    cache.append(key[:1, :, :1200], value[:1, :, :1200])
    before = cache.nbytes
    cache.reorder([0, 0, 0, 0])
    assert cache.batch == 4
    rings = 3 * (13 + 300) * (8 + 6) * 4
    assert cache.nbytes - before - rings < 4 * 256 * (8 + 6) * 4
    for _ in range(2):  # the second time from within the common tokens
        for first, last in ((1200, 1300), (1300, 1301), (1301, 1400)):
            new = slice(first, last)
            out = cache.attend(query[:, :, new], key[:, :, new], value[:, :, new])
            assert np.array_equal(out, uncached(query[:, :, new], key[:, :, :last], value[:, :, :last], arguments))
        cache.truncate(1100)
        cache.append(key[:, :, 1100:1200], value[:, :, 1100:1200])


BAD = {
    "no such option": (TypeError, {"query_positions": [3]}),
    "another number of heads": (ValueError, {"query": np.ones((1, 3, 1, 8), np.float32)}),
    "another type": (TypeError, {"key": np.ones((1, 2, 1, 8))}),
    "key alone": (ValueError, {"value": None}),
    "another head_dim": (ValueError, {"key": np.ones((1, 2, 1, 7), np.float32)}),
    "another batch": (ValueError, {"value": np.ones((2, 2, 1, 6), np.float32)}),
    "more values": (ValueError, {"value": np.ones((1, 2, 2, 6), np.float32)}),
    "three axes": (ValueError, {"query": np.ones((2, 1, 8), np.float32)}),
}


@pytest.mark.parametrize(("error", "wrong"), BAD.values(), ids=BAD)
def test_bad_calls(error, wrong):
    query, key, value = problem(2, 2, 1, 1, "float32")
    cache = hs.SpanCache(1, 2, 8, value_dim=6, span=[3, 9])
    with pytest.raises(error) as caught:
        cache.attend(**{"query": query, "key": key, "value": value} | wrong)
    assert "\n" not in str(caught.value)
    assert cache.count == 0


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (ValueError, {"span": [1, 2, 3]}), (ValueError, {"span": [-1, 2]}), (ValueError, {"ramp": -1}),
        (TypeError, {"dtype": np.int32}), (TypeError, {"pattern": "local"}), (ValueError, {"first_tokens": -1}),
        (TypeError, {"slack": 0.5}), (ValueError, {"num_key_heads": 0}), (TypeError,
                                                                          {"pattern": lambda: [Window(4)] * 3}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else " ".join(value),
)  # fmt: skip
def test_bad_caches(error, arguments):
    with pytest.raises(error):
        hs.SpanCache(**{"batch": 1, "num_key_heads": 2, "head_dim": 8} | made(arguments))


def test_an_empty_cache_has_nothing_to_attend_to():
    query, nothing = np.ones((1, 2, 1, 8), np.float32), np.ones((1, 2, 0, 8), np.float32)
    with pytest.raises(ValueError, match=r"the cache is empty and no key is given$"):
        hs.SpanCache(1, 2, 8).attend(query)
    with pytest.raises(ValueError, match=r"the cache is empty and key has 0 tokens$"):
        hs.SpanCache(1, 2, 8).attend(query, nothing, nothing)
