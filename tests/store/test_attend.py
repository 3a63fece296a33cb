"""Attention over a store against attention over the same keys in memory."""

import tracemalloc

import headspan as hs
import numpy as np
import pytest
from cases import normals
from tolerances import check_close

pytest.importorskip("lmdb", reason="needs lmdb: pip install '.[store]'")

TOKENS = 9500  # two pieces and a tail
CASES = {
    "all": {},
    "scores": {"scale": 0.7, "temperature": [0.5, 1, 2, 3], "softcap": 2.0},
    "sinks": {"sinks": [0.5, -1, 9, 30]},
    "a span": {"span": 70, "ramp": 8},
    "spans": {"span": [0, 30, 5000, 9000], "ramp": 100},
    "spans of tokens": {"span": np.linspace(0, 6000, 12).reshape(4, 3), "sinks": 1},
    "a hard window": {"span": 4200, "ramp": 0},
    "slopes": {"alibi_slopes": [0.5, 0.01, 0, 1e-4]},
    "memory": {"persistent_key": normals(8, 2, 3, 8), "persistent_value": normals(9, 2, 3, 6)},
    "queries behind the rows": {"span": [10, 100, 1000, 8000], "query_positions": np.arange(3) + TOKENS},
    "queries among the rows": {"span": [10, 100, 1000, 5000], "query_positions": [0, 40.5, 4097]},
    "queries beyond reach": {"span": 100, "query_positions": np.arange(3) + 2 * TOKENS, "sinks": [1, 2, 3, 4]},
}


def options_of(case, dtype):
    return {name: item.astype(dtype) if name.startswith("persistent") else item for name, item in CASES[case].items()}


def arrays(dtype):
    shapes = ((4, 3, 8), (2, TOKENS, 8), (2, TOKENS, 6))
    return [normals(i, *shape).astype(dtype) for i, shape in enumerate(shapes)]


@pytest.fixture(scope="module", params=["float32", "float64", "float16"])
def stored(request, tmp_path_factory):
    """A store, the query, and the keys and values in the type of the computation."""
    dtype = request.param
    query, key, value = arrays(np.float64 if dtype == "float64" else np.float32)
    with hs.memory.KeyValueStore(tmp_path_factory.mktemp("store") / dtype, 2, 8, value_dim=6, dtype=dtype) as store:
        sizes = iter([1, 4000, 100, 5, 4500, 700, 150, 30, 9, 4, 1])
        first = 0
        for size in sizes:
            store.append(key[:, first : first + size], value[:, first : first + size])
            first += size
        assert first == len(store) == TOKENS
        yield store, query, *(array.astype(dtype).astype(query.dtype) for array in (key, value))


def check(actual, expected, dtype):
    for name, result, right in zip(("out", "lse"), actual, expected, strict=True):
        check_close(name, result, right, dtype)


@pytest.mark.parametrize("case", CASES)
def test_the_same_as_in_memory(stored, case):
    store, query, key, value = stored
    options = options_of(case, query.dtype)
    expected = hs.attention(query, key, value, causal=False, return_lse=True, **options)
    check(store.attend(query, return_lse=True, **options), expected, query.dtype)
    if np.ndim(options.get("span")) == 2:
        options["span"] = options["span"][None]
    out = store.attend(query[None], **options)
    assert out.shape == (1, *expected[0].shape)
    check_close("out", out[0], expected[0], query.dtype)


@pytest.mark.parametrize("piece", [1, 7, 64, 300])
def test_pieces_of_any_size(tmp_path, monkeypatch, piece):
    for module in ("records", "pieces", "key_value_store"):
        monkeypatch.setattr(f"headspan.memory.store.{module}.PIECE", piece)
    query, key, value = (array[:, :333] for array in arrays("float64"))
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 8, value_dim=6, dtype="float64") as store:
        for first in range(0, 333, 40):
            store.append(key[:, first : first + 40], value[:, first : first + 40])
        for options in ({}, {"span": 50, "ramp": 9, "sinks": 2.0}):
            expected = hs.attention(query, key, value, causal=False, return_lse=True, **options)
            check(store.attend(query, return_lse=True, **options), expected, "float64")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_results_are_merged_on_the_way(tmp_path, monkeypatch, dtype):
    """The results that wait for a merge are bounded, by number and by bytes."""
    for module in ("records", "pieces", "key_value_store"):
        monkeypatch.setattr(f"headspan.memory.store.{module}.PIECE", 16)
    monkeypatch.setattr("headspan.memory.store.streaming._BYTES", 2000)
    query, key, value = (array[:, :4000] for array in arrays(dtype))
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 8, value_dim=6, dtype=dtype) as store:
        store.append(key, value)
        for some in (query, query[:, :1]):
            for options in ({}, {"span": [0, 30, 1000, 3500], "sinks": 1, "alibi_slopes": 1e-3}):
                expected = hs.attention(some, key, value, causal=False, return_lse=True, **options)
                check(store.attend(some, return_lse=True, **options), expected, dtype)


def test_merged_with_a_window_that_is_not_in_the_store(stored):
    store, query, key, value = stored
    window_key, window_value = (normals(i, 2, 50, dim).astype(query.dtype) for i, dim in ((5, 8), (6, 6)))
    far = store.attend(query, return_lse=True)
    near = hs.attention(query, window_key, window_value, return_lse=True)
    keys, values = np.concatenate([key, window_key], axis=1), np.concatenate([value, window_value], axis=1)
    check(
        hs.merge_attention(*zip(far, near, strict=True)),
        hs.attention(query, keys, values, return_lse=True),
        query.dtype,
    )


def test_pieces_beyond_the_span_are_not_read(stored, monkeypatch):
    store, query, *_ = stored
    read = []
    add = "headspan.memory.store.streaming.Streaming.add"
    monkeypatch.setattr(add, lambda self, first, key, value: read.append((first, key.shape[1])))
    tail = (8192, TOKENS - 8192)
    for span, seen in ((1000, [tail]), (1306, [(4096, 4096), tail]), (9000, [(0, 4096), (4096, 4096), tail])):
        read.clear()
        store.attend(query, span=span, ramp=0)
        assert [piece[0] for piece in read] == [piece[0] for piece in seen]
        read.clear()
    store.attend(query, span=10, query_positions=[5, 6, 7])
    assert read == [(0, 4096)]


@pytest.mark.parametrize(("dtype", "most"), [("float32", 0.2), ("float64", 0.2), ("float16", 2.5)])
def test_memory_is_that_of_a_piece(tmp_path, dtype, most):
    """Rows are read where they lie in the file; only float16 is widened, a piece at a time."""
    query = normals(0, 4, 3, 64).astype("float64" if dtype == "float64" else "float32")
    with hs.memory.KeyValueStore(tmp_path / "store", 1, 64, dtype=dtype) as store:
        key = normals(1, 1, 4096 * 8 + 100, 64).astype(query.dtype)
        store.append(key, key)
        tracemalloc.start()
        try:
            store.attend(query)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    piece = 4096 * 2 * 64 * query.itemsize
    assert peak < most * piece


def test_an_empty_store_gives_nothing(tmp_path):
    query = arrays("float32")[0]
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 8, value_dim=6) as store:
        out, lse = store.attend(query, return_lse=True)
        assert (out == 0).all()
        assert (lse == -np.inf).all()
        out, lse = store.attend(query, sinks=[1, 2, 3, 4], span=3, return_lse=True)
        assert (out == 0).all()
        np.testing.assert_allclose(lse, np.repeat([[1], [2], [3], [4]], 3, axis=1), rtol=1e-6)


BAD = {
    "an option": (TypeError, "unknown option 'pattern'; attend accepts span, ramp", {"pattern": None}),
    "causal": (TypeError, "unknown option 'causal'; attend accepts", {"causal": True}),
    "a span": (ValueError, "span must be non-negative", {"span": -1}),
    "sinks": (ValueError, "sinks must be", {"sinks": [1, 2]}),
    "positions": (ValueError, "query_positions must", {"span": 3, "query_positions": [3, 2, 1]}),
    "one axis": (ValueError, r"query must be of shape \(heads, tokens, 8\)", {"query": np.ones(8, "f4")}),
    "a batch": (ValueError, r"or \(1, heads, tokens, 8\), not", {"query": np.ones((2, 4, 3, 8), "f4")}),
    "heads": (ValueError, "a multiple of the 2 key heads, not 3 heads", {"query": np.ones((3, 3, 8), "f4")}),
    "a type": (TypeError, "query must be float32, the type of the store, not float64", {"query": np.ones((4, 3, 8))}),
}


@pytest.mark.parametrize(("error", "message", "wrong"), BAD.values(), ids=BAD)
def test_wrong_calls_name_what_is_wrong(tmp_path, error, message, wrong):
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 8, value_dim=6) as store, pytest.raises(error, match=message):
        store.attend(**{"query": arrays("float32")[0]} | wrong)
