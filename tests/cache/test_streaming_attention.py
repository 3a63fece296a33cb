"""Streams in fixed memory against the definition in plain loops, and their memory, bits and errors."""

import copy
import pickle

import headspan as hs
import numpy as np
import pytest
import streaming_oracle
from cases import DTYPES, normals

RULE = {"slots": 24, "window": 6, "decay": 0.9}
INF = np.inf
# arguments, (batch, heads, key heads), chunks
CASES = {
    "token by token": ({}, (1, 2, 2), [1] * 60),
    "chunks of any length": ({}, (2, 2, 2), [1, 30, 5, 1, 1, 24, 50, 2, 0, 7]),
    "a prompt in pieces": ({"slots": 40, "window": 3}, (1, 2, 2), [600, 1, 257]),
    "grouped heads": ({}, (2, 6, 2), [1, 20, 1, 1, 1, 30, 1, 1]),
    "the window is all": ({"window": 24}, (1, 2, 2), [1, 40, 3, 1, 1]),
    "without decay": ({"decay": 1}, (1, 2, 2), [10, 30, 1, 1, 9]),
    "the last query decides": ({"decay": 0}, (1, 2, 2), [10, 30, 1, 1, 9]),
    "one slot": ({"slots": 1, "window": 1}, (1, 2, 1), [1, 1, 5, 1]),
    "spans and slots": ({"span": [4, INF, 15, INF], "ramp": 3}, (2, 4, 4), [1, 1, 30, 5, 1, 40, 1]),
    "spans alone": ({"span": [4, 10], "ramp": 0}, (1, 2, 2), [1, 30, 5, 1, 40, 1]),
    "a span that reaches further": ({"span": [60, 70.5], "ramp": 8}, (1, 2, 2), [1, 30, 5, 1, 40, 1, 100]),
    "grouped heads with and without": ({"span": [9, INF, 2, 3], "ramp": 4}, (2, 4, 2), [20, 1, 1, 40, 1, 1]),
    "grouped token by token": ({"span": [9, INF, 40, 30], "ramp": 4}, (2, 4, 2), [1] * 70),
    "merged": ({"merge": True}, (2, 2, 2), [1] * 40 + [30, 3, 70, 1]),
    "merged, spans and grouped": ({"merge": True, "span": [9, INF, 2, 3], "ramp": 4}, (1, 4, 2), [20, 1, 40, 1, 1]),
}  # fmt: skip
EVERY = {
    "scale": {"scale": 0.7},
    "temperature a number": {"temperature": 0.5},
    "temperature": {"temperature": np.array([0.5, 2, 1, 0.7])},
    "temperature of batch items": {"temperature": np.array([[0.5, 2, 1, 0.7], [1, 2, 3, 4]])},
    "slopes": {"alibi_slopes": np.array([0.0, 0.1, 0.2, 0.05])},
    "soft cap": {"softcap": 0.8},
    "sinks": {"sinks": np.array([[1.0, -1, 0, 3], [2, 0, 0, 1]])},
    "all": {
        "scale": 0.5, "softcap": 2.0, "temperature": np.array([0.5, 2, 1, 0.7]), "sinks": np.array([1.0, -1, 0, 3]),
        "alibi_slopes": np.array([0.0, 0.1, 0.2, 0.05]),
    },
}  # fmt: skip


def problem(heads, key_heads, batch, tokens, dtype="float64", value_dim=6):
    shapes = ((batch, heads, tokens, 8), (batch, key_heads, tokens, 8), (batch, key_heads, tokens, value_dim))
    query, key, value = (normals(i, *shape, dtype=dtype) for i, shape in enumerate(shapes))
    return query * 2, key, value  # weights that differ


def both(arguments, sizes, dtype="float64"):
    """Return a stream and its definition in plain loops."""
    batch, _, key_heads = sizes
    arguments = RULE | arguments
    stream = hs.memory.StreamingAttention(batch, key_heads, 8, value_dim=6, dtype=dtype, **arguments)
    of_spans = {name: arguments.pop(name) for name in ("span", "ramp") if name in arguments}
    return stream, streaming_oracle.streams(batch, key_heads, arguments, **of_spans)


def chunks_of(lengths):
    ends = np.cumsum(lengths)
    return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]


def check_rows(stream, plain, key_heads, tolerance):
    """Check the rows that slots hold, and the numbers of each row."""
    far = stream.state_dict()["far"]
    heads = [] if far is None else [h for h in range(key_heads) if plain[0][h].slots < 10**9]
    pairs = [of_item[head] for of_item in plain for head in heads]
    for pair, oracle in enumerate(pairs):
        assert [row["at"] for row in oracle.rows] == far["positions"][pair].tolist()
        for name in ("received", "tokens", "key", "value"):
            expected = np.array([row[name] for row in oracle.rows])
            assert np.allclose(far[name][pair], expected, rtol=tolerance, atol=tolerance), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("arguments", "sizes", "lengths"), CASES.values(), ids=CASES)
def test_against_the_definition(arguments, sizes, lengths, dtype):
    batch, heads, key_heads = sizes
    stream, plain = both(arguments, sizes, dtype)
    query, key, value = problem(heads, key_heads, batch, sum(lengths), dtype)
    tolerance = 1e-10 if dtype == "float64" else 2e-5
    for part in chunks_of(lengths):
        out, lse = stream.attend(query[:, :, part], key[:, :, part], value[:, :, part], return_lse=True)
        expected, expected_lse = streaming_oracle.attend(plain, query[:, :, part], key[:, :, part], value[:, :, part])
        assert out.dtype == lse.dtype == dtype
        assert np.allclose(out, expected, rtol=tolerance, atol=tolerance)
        assert np.allclose(lse, expected_lse, rtol=tolerance, atol=tolerance)
    assert stream.count == sum(lengths)
    check_rows(stream, plain, key_heads, tolerance)


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("options", EVERY.values(), ids=EVERY)
def test_options_of_a_query(options, merge):
    """Single queries of grouped heads are among them: their received weight is computed in another way."""
    stream, plain = both({"span": [INF, 100, 3, 4], "ramp": 8, "merge": merge}, (2, 4, 2))
    query, key, value = problem(4, 2, 2, 100)
    each = {name: np.broadcast_to(o, (2, 4)) if np.ndim(o) else o for name, o in options.items()}
    if np.ndim(options.get("temperature")) == 0 and "temperature" in options:
        each["temperature"] = np.full((2, 4), options["temperature"])
    for chunk in chunks_of([1, 30, 1, 1, 20, 1, 1, 1, 20, 1, 1, 2]):
        new = query[:, :, chunk], key[:, :, chunk], value[:, :, chunk]
        out = stream.attend(*new, **options)
        assert np.allclose(out, streaming_oracle.attend(plain, *new, **each)[0], rtol=1e-10, atol=1e-10)
    check_rows(stream, plain, 2, 1e-10)


def test_temperatures_of_single_queries():
    stream, plain = both({"slots": 20, "window": 10, "span": [INF, 3]}, (1, 2, 2))
    query, key, value = problem(2, 2, 1, 520)
    temperature = np.random.default_rng(0).uniform(0.5, 2, (1, 2, 520))
    out = stream.attend(query, key, value, temperature=temperature)
    expected, _ = streaming_oracle.attend(plain, query, key, value, temperature=temperature)
    assert np.allclose(out, expected, rtol=1e-10, atol=1e-10)


def test_queries_of_the_last_of_many_tokens():
    stream, plain = both({"span": [INF, 5], "ramp": 2}, (1, 2, 2))
    query, key, value = problem(2, 2, 1, 1000)
    for chunk, last in zip(chunks_of([600, 3, 397]), (300, 1, 2), strict=True):
        new = query[:, :, chunk][:, :, -last:], key[:, :, chunk], value[:, :, chunk]
        expected, _ = streaming_oracle.attend(plain, *new)
        assert np.allclose(stream.attend(*new), expected, rtol=1e-10, atol=1e-10)


def test_tokens_without_queries():
    stream, plain = both({"span": [INF, 5], "ramp": 2}, (1, 2, 2))
    query, key, value = problem(2, 2, 1, 400)
    for i, chunk in enumerate(chunks_of([10, 1, 5, 280, 1, 1, 102])):
        new = query[:, :, chunk], key[:, :, chunk], value[:, :, chunk]
        if i % 2:
            stream.append(*new[1:])
            streaming_oracle.attend(plain, new[0][:, :, :0], *new[1:])
        else:
            expected, _ = streaming_oracle.attend(plain, *new)
            assert np.allclose(stream.attend(*new), expected, rtol=1e-10, atol=1e-10)
    assert stream.count == 400


def test_attention_over_all_keys_while_they_fit():
    """The chunks do not matter, and later keys change nothing."""
    query, key, value = problem(4, 2, 2, 60, "float32")
    for lengths in ([60], [1] * 60, [13, 40, 7]):
        stream = hs.memory.StreamingAttention(2, 2, 8, slots=60, window=1, decay=0.5, value_dim=6)
        for chunk in chunks_of(lengths):
            out = stream.attend(query[:, :, chunk], key[:, :, chunk], value[:, :, chunk])
            seen = slice(chunk.stop)
            expected = hs.attention(query[:, :, chunk], key[:, :, seen], value[:, :, seen])
            assert np.allclose(out, expected, rtol=1e-6, atol=1e-6)
    later = key.copy()
    later[:, :, 30:] = 9
    first, second = (
        hs.memory.StreamingAttention(2, 2, 8, slots=10, window=3, decay=0.5, value_dim=6).attend(query, keys, value)
        for keys in (key, later)
    )
    assert np.array_equal(first[:, :, :30], second[:, :, :30])
    assert not np.array_equal(first[:, :, 30:], second[:, :, 30:])


def test_keys_that_are_attended_to_stay():
    """One key far back that all queries look for, among many that no query looks for."""
    rng = np.random.default_rng(0)
    stream = hs.memory.StreamingAttention(1, 1, 8, slots=16, window=4, decay=0.99)
    target = np.zeros((1, 1, 1, 8), np.float32)
    target[..., 0] = 5
    for token in range(2000):
        key = rng.standard_normal((1, 1, 1, 8)).astype(np.float32) * 0.1
        value = np.zeros((1, 1, 1, 8), np.float32)
        if token == 3:
            key, value = target, target
        out = stream.attend(target, key, value)
    assert out[0, 0, 0, 0] > 4.9
    assert 3 in stream.state_dict()["far"]["positions"]


@pytest.mark.parametrize("merge", [False, True])
def test_memory_does_not_grow(merge):
    query, key, value = problem(2, 2, 1, 5000, "float32")
    stream, _ = both({"span": [INF, 5], "ramp": 2, "merge": merge}, (1, 2, 2), "float32")
    before, arrays = stream.nbytes, [array.shape for array in stream._far._arrays()]
    for chunk in chunks_of([2000, 1, 999, 2000]):
        stream.attend(query[:, :, chunk], key[:, :, chunk], value[:, :, chunk])
        assert stream.nbytes == before
        assert [array.shape for array in stream._far._arrays()] == arrays
    rows = 24 + 256
    assert before == rows * ((8 + 6) * 4 + 3 * 8) + 7 * (8 + 6) * 4


def test_cost_of_the_next_token():
    """A head with slots sees its rows and the token itself, and a head with a span the keys in reach."""
    stream = hs.memory.StreamingAttention(2, 2, 8, slots=16, window=4, decay=0.9, span=[2, 3, np.inf, 40], ramp=2)
    for tokens, far in ((0, 1), (10, 11), (100, 17)):
        rows = normals(tokens, 2, 2, tokens - stream.count, 8, dtype="float32")
        stream.append(rows, rows)
        cost = stream.cost()
        assert stream.count == tokens
        assert cost.head_pairs.tolist() == [2 * x for x in (min(4, tokens + 1), min(5, tokens + 1), far, far)]
        assert (cost.pairs, cost.forward_flops) == (sum(cost.head_pairs), 32 * sum(cost.head_pairs))
        assert cost.dense_flops == 32 * 2 * 4 * (tokens + 1)
        assert cost.cache_bytes == stream.nbytes
        assert cost.read_bytes == 2 * (min(5, tokens + 1) + far) * (8 + 8) * 4
    assert hs.memory.StreamingAttention(1, 2, 8, slots=16, window=4, decay=0.9).cost(num_heads=6).pairs == 6
    with pytest.raises(ValueError, match="heads must be 4, not 8"):
        stream.cost(num_heads=8)
    with pytest.raises(ValueError, match="heads must be a multiple of 2, not 3"):
        hs.memory.StreamingAttention(1, 2, 8, slots=16, window=4, decay=0.9).cost(num_heads=3)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_give_the_same_bits(threads):
    query, key, value = problem(6, 3, 2, 1500, "float32")
    results = []
    for number in (1, threads):
        before = hs.get_num_threads()
        hs.set_num_threads(number)
        try:
            stream = hs.memory.StreamingAttention(
                2, 3, 8, slots=300, window=50, decay=0.97, value_dim=6, span=[50, 60, 70, INF, INF, INF]
            )
            outs = [
                stream.attend(query[:, :, chunk], key[:, :, chunk], value[:, :, chunk], return_lse=True)
                for chunk in chunks_of([700, 1, 1, 98, 700])
            ]
        finally:
            hs.set_num_threads(before)
        results.append([array.tobytes() for pair in outs for array in pair] + [stream._far.received.tobytes()])
    assert results[0] == results[1]


@pytest.mark.parametrize("how", ["state", "pickle", "copy"])
@pytest.mark.parametrize("case", ["chunks of any length", "spans alone", "merged, spans and grouped"])
def test_a_stream_goes_on_from_its_state(case, how):
    arguments, (batch, heads, key_heads), lengths = CASES[case]
    query, key, value = problem(heads, key_heads, batch, sum(lengths), "float32")
    stream, _ = both(arguments, (batch, heads, key_heads), "float32")
    for i, chunk in enumerate(chunks_of(lengths)):
        new = query[:, :, chunk], key[:, :, chunk], value[:, :, chunk]
        if i == len(lengths) // 2:
            state = stream.state_dict()
            first = stream.attend(*new)
            other = {
                "state": lambda state=state: hs.memory.StreamingAttention.from_state_dict(state),
                "pickle": lambda state=state: pickle.loads(
                    pickle.dumps(hs.memory.StreamingAttention.from_state_dict(state))
                ),
                "copy": lambda state=state: copy.deepcopy(hs.memory.StreamingAttention.from_state_dict(state)),
            }[how]()
            assert other.attend(*new).tobytes() == first.tobytes()
        else:
            out = stream.attend(*new)
            if i > len(lengths) // 2:
                assert other.attend(*new).tobytes() == out.tobytes()
    assert (other.count, other.nbytes) == (stream.count, stream.nbytes)
    spans = arguments.get("span")
    assert (other.span is None) == (spans is None)
    if spans is not None:
        assert np.array_equal(other.span, spans)


def test_narrow_arrays_are_computed_in_float32():
    query, key, value = (array.astype(np.float16) for array in problem(2, 2, 1, 300, "float32"))
    stream, wide = (both({"span": [INF, 5], "ramp": 2}, (1, 2, 2), "float32")[0] for _ in range(2))
    out = stream.attend(query, key, value)
    assert out.dtype == np.float16
    expected = wide.attend(*(array.astype(np.float32) for array in (query, key, value)))
    assert np.array_equal(out, expected.astype(np.float16))


def test_memory_behind_the_rows_is_not_read():
    query, key, value = problem(2, 2, 1, 80, "float32")
    stream, _ = both({"merge": True, "span": [INF, 100]}, (1, 2, 2), "float32")
    stream.attend(query[:, :, :60], key[:, :, :60], value[:, :, :60])
    twin = hs.memory.StreamingAttention.from_state_dict(stream.state_dict())
    for array in (stream._far.key, stream._far.value, stream._far.received, stream._far.tokens):
        array[:, 24:] = np.nan
    for chunk in (slice(60, 61), slice(61, 80)):
        new = query[:, :, chunk], key[:, :, chunk], value[:, :, chunk]
        assert stream.attend(*new).tobytes() == twin.attend(*new).tobytes()


@pytest.mark.parametrize("merge", [False, True])
def test_nan_passes_by(merge):
    """NaN reaches the queries that see it. Its row gets no weight that counts, so that it is dropped."""
    query, key, value = problem(2, 2, 1, 400)
    key[0, 0, 50] = np.nan
    stream, _ = both({"merge": merge}, (1, 2, 2))
    outs = [stream.attend(query[:, :, [i]], key[:, :, [i]], value[:, :, [i]]) for i in range(400)]
    bad = np.array([[np.isnan(out[0, head]).any() for out in outs] for head in (0, 1)])
    assert not bad[1].any()
    assert not bad[0, :50].any()
    assert bad[0, 50:56].all()
    assert not bad[0, 100:].any()


def test_a_failing_call_leaves_the_stream_as_it_was(monkeypatch):
    query, key, value = problem(2, 2, 1, 1000, "float32")
    stream, _ = both({"span": [INF, 5], "ramp": 2}, (1, 2, 2), "float32")
    stream.attend(query[:, :, :60], key[:, :, :60], value[:, :, :60])
    twin = hs.memory.StreamingAttention.from_state_dict(stream.state_dict())
    rest = query[:, :, 60:], key[:, :, 60:], value[:, :, 60:]
    for options in ({"temperature": 0}, {"softcap": -1}, {"alibi_slopes": np.ones(3)}, {"sinks": np.nan}):
        with pytest.raises(ValueError, match=next(iter(options))):
            stream.attend(*rest, **options)

    def no_memory(*_, **__):
        raise MemoryError

    for new in (rest, [array[:, :, :1] for array in rest]):
        with monkeypatch.context() as patch:
            patch.setattr(hs.SpanCache, "attend", no_memory)  # after the slots have computed all their pieces
            with pytest.raises(MemoryError):
                stream.attend(*new)
        assert stream.count == twin.count
        assert stream.attend(*new).tobytes() == twin.attend(*new).tobytes()


BAD = {
    "no such option": (TypeError, {"query_positions": [3]}, "query_positions"),
    "an option of the stream": (TypeError, {"span": [3, 4]}, "span"),
    "another number of heads": (ValueError, {"query": np.ones((1, 3, 1, 8), np.float32)}, r"\(1, 2, queries, 8\)"),
    "another type of query": (TypeError, {"query": np.ones((1, 2, 1, 8))}, "float32"),
    "another type of key": (TypeError, {"key": np.ones((1, 2, 1, 8))}, "key must be float32"),
    "key alone": (ValueError, {"value": None}, "value was not given"),
    "another head_dim": (ValueError, {"key": np.ones((1, 2, 1, 7), np.float32)}, "key must be of shape"),
    "another head_dim of query": (ValueError, {"query": np.ones((1, 2, 1, 7), np.float32)}, "query must be of shape"),
    "another batch": (ValueError, {"value": np.ones((2, 2, 1, 6), np.float32)}, "value must be of shape"),
    "more values": (ValueError, {"value": np.ones((1, 2, 2, 6), np.float32)}, "the same number of tokens, got 1 and 2"),
    "more queries": (
        ValueError,
        {"query": np.ones((1, 2, 2, 8), np.float32)},
        "query must have at most as many tokens as key, 1, not 2",
    ),
    "three axes": (ValueError, {"query": np.ones((2, 1, 8), np.float32)}, "query must be of shape"),
    "text for temperature": (TypeError, {"temperature": ["a", "b"]}, "temperature"),
    "temperatures of other heads": (ValueError, {"temperature": [1, 2, 3]}, "temperature must be"),
    "sinks of tokens": (ValueError, {"sinks": np.ones((1, 2, 1))}, "sinks must be"),
    "return_lse": (TypeError, {"return_lse": 1}, "return_lse"),
}


@pytest.mark.parametrize(("error", "wrong", "message"), BAD.values(), ids=BAD)
def test_bad_calls(error, wrong, message):
    query, key, value = problem(2, 2, 1, 1, "float32")
    stream, _ = both({"span": [INF, 9]}, (1, 2, 2), "float32")
    with pytest.raises(error, match=message) as caught:
        stream.attend(**{"query": query, "key": key, "value": value} | wrong)
    assert "\n" not in str(caught.value)
    assert stream.count == 0


@pytest.mark.parametrize(
    ("error", "arguments", "message"),
    [
        (ValueError, {"span": [1, 2, 3]}, "span must be a number, or hold one number for each head"),
        (ValueError, {"span": [-1, 2]}, "span must be non-negative"),
        (ValueError, {"span": [np.nan, 2]}, "span must be finite"),
        (TypeError, {"span": ["a", "b"]}, "span must be real numbers"),
        (ValueError, {"ramp": -1}, "ramp"), (TypeError, {"dtype": np.int32}, "dtype must be"),
        (TypeError, {"dtype": "bfloat16"}, "dtype must be float32 or float64, not bfloat16"),
        (ValueError, {"num_key_heads": 0}, "num_key_heads"), (ValueError, {"slots": 0}, "slots"),
        (TypeError, {"slots": 2.5}, "slots"), (ValueError, {"window": 0}, "window"),
        (ValueError, {"window": 25}, "window must be at most 24, the number of slots"),
        (TypeError, {"window": None}, "window"),
        (ValueError, {"decay": 1.1}, "decay"), (ValueError, {"decay": np.nan}, "decay"),
        (TypeError, {"decay": "slow"}, "decay"), (TypeError, {"merge": 1}, "merge"),
        (ValueError, {"value_dim": -1}, "value_dim"), (TypeError, {"batch": "1"}, "batch"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)  # fmt: skip
def test_bad_streams(error, arguments, message):
    with pytest.raises(error, match=message) as caught:
        hs.memory.StreamingAttention(**{"batch": 1, "num_key_heads": 2, "head_dim": 8} | RULE | arguments)
    assert "\n" not in str(caught.value)
