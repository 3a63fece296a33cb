"""Searching keys and reading rows of a store give the same as in memory, and damage is reported."""

import headspan as hs
import numpy as np
import pytest
from bad_values import check_sentence
from cases import normals

pytest.importorskip("lmdb", reason="needs lmdb: pip install '.[store]'")
ROWS = 9500


@pytest.fixture(params=["float32", "float64", "float16"])
def stored(request, tmp_path):
    """A store, and its keys and values in the type of the computation."""
    arithmetic = "float64" if request.param == "float64" else "float32"
    key, value = normals(0, 2, ROWS, 8, dtype=arithmetic), normals(1, 2, ROWS, 6, dtype=arithmetic)
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 8, value_dim=6, dtype=request.param) as store:
        for first, last in ((0, 5000), (5000, 9400), (9400, 9490), (9490, ROWS)):
            store.append(key[:, first:last], value[:, first:last])
        yield store, *(array.astype(request.param).astype(arithmetic) for array in (key, value))


def test_keys_come_without_values(stored):
    store, key, _ = stored
    for first, last in ((0, None), (0, 0), (4090, 4100), (123, 9499), (9450, ROWS)):
        at = first
        for begin, part in store.keys(first, last):
            assert begin == at
            at += part.shape[1]
            assert np.array_equal(part, key[:, begin:at])
        assert at == (ROWS if last is None else last)
    for wrong in ((0, ROWS + 1), (-1, 5), (3.5, 5)):
        with pytest.raises((ValueError, TypeError)):
            list(store.keys(*wrong))


@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3, 50, 4)])
def test_chosen_rows(stored, shape):
    store, key, value = stored
    indices = np.random.default_rng(0).integers(-1, ROWS, shape)
    gathered = store.gather(indices)
    rows = np.unique(indices[indices >= 0])
    assert np.array_equal(gathered[0], key[:, rows])
    assert np.array_equal(gathered[1], value[:, rows])
    assert [array.dtype for array in gathered[:2]] == [key.dtype] * 2
    assert np.array_equal(np.where(gathered[2] < 0, -1, np.append(rows, -1)[gathered[2]]), indices)


def test_an_index_of_a_store_finds_what_one_of_arrays_finds(stored):
    store, key, _ = stored
    query = normals(2, 1, 4, 30, 8, dtype=key.dtype)
    index, of_arrays = hs.memory.KeyIndex.of_store(store), hs.memory.KeyIndex(2, 8, dtype=key.dtype)
    of_arrays.add(key)
    before = np.linspace(0, ROWS, 30).astype(int)
    for limit in (None, before, 5000):
        assert np.array_equal(index.retrieve(query, 9, before=limit), of_arrays.retrieve(query, 9, before=limit))
    more = normals(3, 2, 300, 8, dtype=key.dtype)
    store.append(more, more[..., :6])
    of_arrays.add(more.astype(store.dtype).astype(key.dtype))
    assert len(index) == ROWS + 300
    assert np.array_equal(index.retrieve(query, 9), of_arrays.retrieve(query, 9))
    with pytest.raises(ValueError, match="store"):
        index.add(more)


def test_attention_to_rows_that_were_read(stored):
    store, key, value = stored
    query, near_key, near_value = (normals(i, 2, 40, n, dtype=key.dtype) for i, n in ((4, 8), (5, 8), (6, 6)))
    indices = hs.memory.KeyIndex.of_store(store).retrieve(query, 5)
    memory_key, memory_value, within = store.gather(indices)
    assert memory_key.shape[1] < ROWS
    options = {"gate": 0.5, "span": 10, "return_lse": True}
    result = hs.memory.retrieval_attention(query, near_key, near_value, memory_key, memory_value, within, **options)
    right = hs.memory.retrieval_attention(query, near_key, near_value, key, value, indices, **options)
    for a, b in zip(result, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 if key.dtype == np.float64 else 3e-6)


def test_an_inverted_file_of_a_store(stored):
    pytest.importorskip("faiss", reason="needs faiss: pip install '.[faiss]'")
    store, key, _ = stored
    if key.dtype != np.float32:
        with pytest.raises(TypeError, match="float32 with nlist"):
            hs.memory.KeyIndex.of_store(store, nlist=20)
        return
    index, exact = hs.memory.KeyIndex.of_store(store, nlist=20, nprobe=20), hs.memory.KeyIndex.of_store(store)
    query = normals(2, 2, 30, 8, dtype="float32")
    assert np.array_equal(index.retrieve(query, 5), exact.retrieve(query, 5))
    more = normals(3, 2, 300, 8, dtype="float32")
    store.append(more, more[..., :6])
    indices = index.retrieve(query, 5)
    assert (indices >= ROWS).any()
    assert np.array_equal(indices, exact.retrieve(query, 5))


def test_only_the_records_of_chosen_rows_are_read_and_those_are_verified(tmp_path):
    key, value = normals(0, 2, 8192, 8), normals(1, 2, 8192, 8)
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 8, dtype="float64") as store:
        store.append(key, value)
    file = tmp_path / "store" / "data.mdb"
    data, right = file.read_bytes(), value[1, 5000].tobytes()
    assert data.count(right) == 1
    file.write_bytes(data.replace(right, right[::-1]))
    with hs.memory.KeyValueStore(tmp_path / "store", readonly=True) as store:
        assert np.array_equal(store.gather([0, 4095, 7])[1], value[:, [0, 7, 4095]])
        for call in (
            lambda: store.gather([7, 4096]),
            lambda: list(store.keys()),
            lambda: hs.memory.KeyIndex.of_store(store).retrieve(key[:, :3], 2),
        ):
            with pytest.raises(OSError, match="rows 4096 to 8191 are damaged"):
                call()


@pytest.mark.parametrize(
    ("indices", "error"), [([ROWS], ValueError), ([-2], ValueError), ([0.5], TypeError), ("all", TypeError)]
)
def test_bad_rows(stored, indices, error):
    with pytest.raises(error) as caught:
        stored[0].gather(indices)
    check_sentence(caught.value, "indices")


def test_what_is_no_store():
    with pytest.raises(TypeError) as caught:
        hs.memory.KeyIndex.of_store(np.ones((2, 3, 4)))
    check_sentence(caught.value, "store")


def test_keys_that_are_not_finite_are_named(tmp_path):
    with hs.memory.KeyValueStore(tmp_path / "store", 1, 4) as store:
        store.append(np.full((1, 3, 4), np.nan, np.float32), np.ones((1, 3, 4), np.float32))
        with pytest.raises(ValueError, match="keys of the store from row 0 on must be finite"):
            hs.memory.KeyIndex.of_store(store).retrieve(np.ones((1, 2, 4), np.float32), 1)
