"""An index finds the same keys as sorting all products, with every implementation; and its errors."""

import headspan as hs
import numpy as np
import pytest
from bad_values import check_sentence
from cases import normals
from headspan._extra import how_to_install
from helpers import run_python


def all_sorted(query, key, k, before):
    """Sort by products in float64: of equal products the first key comes first, and -1 fills the rest."""
    heads, group = query.shape[1], query.shape[1] // key.shape[0]
    indices = np.full((*query.shape[:3], k), -1)
    for b, h, i in np.ndindex(*query.shape[:3]):
        seen = min(before[i], key.shape[1])
        products = key[h // group, :seen].astype(np.float64) @ query[b, h, i].astype(np.float64)
        assert heads
        order = np.lexsort((np.arange(seen), -products))[:k]
        indices[b, h, i, : len(order)] = order
    return indices


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("batch", "heads", "key_heads", "queries", "rows", "k"),
    [(1, 1, 1, 1, 1, 1), (2, 4, 2, 7, 333, 5), (1, 2, 2, 300, 9001, 32), (1, 1, 1, 130, 40, 64), (1, 1, 1, 3, 5000, 0),
     (1, 2, 1, 5, 4096, 4096), (1, 1, 1, 0, 10, 3)],
)  # fmt: skip
def test_the_keys_with_the_largest_products(batch, heads, key_heads, queries, rows, k, dtype):
    query, key = normals(0, batch, heads, queries, 12, dtype=dtype), normals(1, key_heads, rows, 12, dtype=dtype)
    index = hs.memory.KeyIndex(key_heads, 12, dtype=dtype)
    for part in np.array_split(key, 5, axis=1):
        index.add(part)
    assert len(index) == rows
    everything = np.full(queries, rows)
    assert np.array_equal(index.retrieve(query, k), all_sorted(query, key, k, everything))
    before = np.random.default_rng(2).integers(0, rows + 20, queries)
    indices = index.retrieve(query, k, before=before)
    assert indices.shape == (batch, heads, queries, k)
    assert indices.dtype == np.int64
    assert np.array_equal(indices, all_sorted(query, key, k, before))


def test_equal_products_go_to_the_first_key():
    """Also where a matrix product would tell them apart by its last bit, and where nearly all are equal."""
    key = np.repeat(normals(0, 1, 30, 16, dtype="float32"), 300, axis=1)[:, np.random.default_rng(1).permutation(9000)]
    query = normals(2, 1, 140, 16, dtype="float32")
    index = hs.memory.KeyIndex(1, 16)
    index.add(key)
    assert np.array_equal(index.retrieve(query, 50)[None], all_sorted(query[None], key, 50, np.full(140, 9000)))
    for value in (0.0, 0.3):
        alike = hs.memory.KeyIndex(1, 16)
        alike.add(np.full((1, 9000, 16), value, np.float32))
        assert (alike.retrieve(query, 9) == np.arange(9)).all()


def test_numbers_of_any_size():
    key, query = normals(0, 1, 5000, 8, dtype="float32"), normals(1, 1, 9, 8, dtype="float32")
    for size in (1e-18, 1e15):
        index = hs.memory.KeyIndex(1, 8)
        index.add(key * np.float32(size))
        right = all_sorted(query[None], key * np.float32(size), 20, np.full(9, 5000))
        assert np.array_equal(index.retrieve(query, 20)[None], right)


THREADS = """
import headspan as hs
import numpy as np
rng = np.random.default_rng(0)
key, query = (rng.integers(-3, 4, (1, n, 24)).astype(np.float32) / 7 for n in (20001, 513))
index = hs.memory.KeyIndex(1, 24)
index.add(key)
print(hash(index.retrieve(query, 32).tobytes()))
"""


@pytest.mark.unsanitized
def test_the_same_for_every_number_of_threads():
    hashes = {
        run_python(THREADS, OPENBLAS_NUM_THREADS=n, OMP_NUM_THREADS=n, PYTHONHASHSEED="0") for n in ("1", "2", "3")
    }
    assert len(hashes) == 1


def test_what_is_added_is_copied():
    key, query = normals(0, 2, 50, 4), normals(1, 2, 3, 4)
    index = hs.memory.KeyIndex(2, 4, dtype="float64")
    index.add(key)
    right = index.retrieve(query, 5)
    key[:] = 0
    assert np.array_equal(index.retrieve(query, 5), right)


def test_an_empty_index_finds_nothing():
    assert (hs.memory.KeyIndex(2, 4).retrieve(np.ones((4, 3, 4), np.float32), 2) == -1).all()


WRONG = {
    "query": [
        (np.ones((2, 3, 4)), TypeError),
        (np.ones((2, 3, 5), np.float32), ValueError),
        (np.ones((3, 3, 4), np.float32), ValueError),
        (np.ones(4, np.float32), ValueError),
        (np.full((2, 3, 4), np.nan, np.float32), ValueError),
        ("all", TypeError),
    ],
    "k": [(-1, ValueError), (1.5, TypeError), (None, TypeError)],
    "before": [([1, 2], ValueError), (-1, ValueError), (1.5, TypeError), ([1, 2, -3], ValueError)],
}


@pytest.mark.parametrize(
    ("argument", "value", "error"), [(name, *row) for name, rows in WRONG.items() for row in rows], ids=str
)
def test_bad_queries(argument, value, error):
    index = hs.memory.KeyIndex(2, 4)
    index.add(np.ones((2, 9, 4), np.float32))
    good = {"query": np.ones((2, 3, 4), np.float32), "k": 2, "before": None}
    assert index.retrieve(**good).shape == (2, 3, 2)
    with pytest.raises(error) as caught:
        index.retrieve(**good | {argument: value})
    check_sentence(caught.value, argument)


@pytest.mark.parametrize(
    ("key", "error"),
    [(np.ones((2, 3, 4)), TypeError), (np.ones((2, 3, 5), np.float32), ValueError),
     (np.ones((1, 3, 4), np.float32), ValueError), (np.ones((3, 4), np.float32), ValueError),
     (np.full((2, 3, 4), np.inf, np.float32), ValueError)],
)  # fmt: skip
def test_bad_keys_change_nothing(key, error):
    index = hs.memory.KeyIndex(2, 4)
    index.add(np.ones((2, 9, 4), np.float32))
    with pytest.raises(error) as caught:
        index.add(key)
    check_sentence(caught.value, "key")
    assert len(index) == 9


def test_without_faiss_the_error_names_the_extra():
    code = """
import sys
sys.modules["faiss"] = None
import headspan as hs
hs.memory.KeyIndex(1, 4)
try:
    hs.memory.KeyIndex(1, 4, nlist=2)
except ImportError as error:
    print(error)
"""
    assert run_python(code) == f"KeyIndex with nlist needs faiss; {how_to_install('faiss')}\n"
