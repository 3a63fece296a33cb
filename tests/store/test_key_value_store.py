"""Rows that are added come back, from this process and from others; sizes are kept; wrong calls change nothing."""

import subprocess
import sys
import threading
from itertools import pairwise

import headspan as hs
import numpy as np
import pytest
from cases import normals
from headspan._extra import how_to_install
from helpers import run_python

lmdb = pytest.importorskip("lmdb", reason="needs lmdb: pip install '.[store]'")

DTYPES = ("float16", "float32", "float64")


def problem(tokens, dtype, key_heads=2, dims=(5, 3)):
    return [normals(i, key_heads, tokens, dim).astype(dtype) for i, dim in enumerate(dims)]


def append_in_parts(store, key, value, sizes):
    """Append all rows, in parts of these sizes, which repeat."""
    first, turn = 0, 0
    while first < key.shape[1]:
        last = first + sizes[turn % len(sizes)]
        store.append(key[:, first:last], value[:, first:last])
        first, turn = last, turn + 1
        assert len(store) == min(first, key.shape[1])


def records_of(path):
    """The number of rows of each record in the file."""
    with lmdb.open(str(path), readonly=True) as env, env.begin() as transaction:
        firsts = [int.from_bytes(key, "big") for key, _ in transaction.cursor() if len(key) == 8]
    with hs.memory.KeyValueStore(path, readonly=True) as store:
        return np.diff([*firsts, len(store)]).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(4))
def test_rows_come_back(tmp_path, seed, dtype):
    rng = np.random.default_rng(seed)
    tokens = int(rng.integers(1, 20_000))
    key, value = problem(tokens, dtype)
    sizes = rng.choice([0, 1, 2, 40, 900, 4095, 4096, 4097, 9000], 12).tolist()
    sizes[-1] += 1000
    path = tmp_path / "store"
    with hs.memory.KeyValueStore(path, 2, 5, value_dim=3, dtype=dtype) as store:
        append_in_parts(store, key, value, sizes)
        first, last = sorted(rng.integers(0, tokens + 1, 2))
        for rows, right in zip(store.rows(first, last), (key, value), strict=True):
            assert rows.dtype == dtype
            assert np.array_equal(rows, right[:, first:last])
    with hs.memory.KeyValueStore(path) as store:
        assert (store.num_key_heads, store.head_dim, store.value_dim, store.dtype) == (2, 5, 3, dtype)
        pieces = list(store)
        assert [key.shape[1] for key, _ in pieces] == [4096] * (tokens // 4096) + [tokens % 4096] * (tokens % 4096 > 0)
        for i, right in enumerate((key, value)):
            assert np.array_equal(np.concatenate([piece[i] for piece in pieces], axis=1), right)


@pytest.mark.parametrize("sizes", [[1], [7], [3000, 1, 1, 50], [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]], ids=str)
def test_a_tail_is_a_dozen_records_that_become_a_piece(tmp_path, sizes, monkeypatch):
    """After the full pieces, each record has at most half the rows of the one before, whatever is added."""
    monkeypatch.setattr("headspan.memory.store.records.PIECE", 64)
    monkeypatch.setattr("headspan.memory.store.pieces.PIECE", 64)
    key, value = problem(300, "float32")
    path = tmp_path / "store"
    with hs.memory.KeyValueStore(path, 2, 5, value_dim=3) as store:
        append_in_parts(store, key, value, sizes)
    records = records_of(path)
    assert records[:4] == [64] * 4
    assert sum(records) == 300
    tail = records[4:]
    assert all(later <= earlier // 2 for earlier, later in pairwise(tail))


def test_float16_is_rounded_once(tmp_path):
    key, value = problem(10, "float32")
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 5, value_dim=3, dtype=np.float16) as store:
        store.append(key, value)
        assert np.array_equal(store.rows(0, 10)[0], key.astype(np.float16))
        key[1, 3, 2] = 1e5
        with pytest.raises(ValueError, match="key must fit into float16, got 100000"):
            store.append(key, value)
        key[1, 3, 2] = np.inf  # which float16 has
        store.append(key, value)
        assert len(store) == 20


@pytest.mark.parametrize(
    "later", [{"head_dim": 6}, {"num_key_heads": 3}, {"value_dim": 5}, {"dtype": "float64"}], ids=str
)
def test_sizes_are_those_it_was_made_with(tmp_path, later):
    path = tmp_path / "store"
    hs.memory.KeyValueStore(path, 2, 5, value_dim=3).close()
    hs.memory.KeyValueStore(path, 2, 5, value_dim=3, dtype=np.float32).close()
    (name,) = later
    with pytest.raises(ValueError, match=f"^{name} of the store at .* is (2|5|3|float32), not {later[name]}$"):
        hs.memory.KeyValueStore(path, **later)
    hs.memory.KeyValueStore(path).close()  # what was refused holds nothing


BAD = {
    "no path": (TypeError, "path must be a folder", lambda p: hs.memory.KeyValueStore(3, 2, 5)),
    "no sizes": (ValueError, "num_key_heads and head_dim are required", lambda p: hs.memory.KeyValueStore(p)),
    "no head_dim": (ValueError, "num_key_heads and head_dim are required", lambda p: hs.memory.KeyValueStore(p, 2)),
    "no heads": (ValueError, "num_key_heads must be at least 1", lambda p: hs.memory.KeyValueStore(p, 0, 5)),
    "a type": (TypeError, "dtype must be one of float16, float32", lambda p: hs.memory.KeyValueStore(p, 2, 5,
                                                                                                     dtype="i4")),
    "long rows": (ValueError, "rows of .* bytes are too long", lambda p: hs.memory.KeyValueStore(p, 1024, 1024)),
    "nothing to read": (FileNotFoundError, "store does not exist", lambda p: hs.memory.KeyValueStore(p, 2, 5,
                                                                                                     readonly=True)),
    "no folder": (FileNotFoundError, "No such file", lambda p: hs.memory.KeyValueStore(p / "a" / "b", 2, 5)),
}  # fmt: skip


@pytest.mark.parametrize(("error", "message", "call"), BAD.values(), ids=BAD)
def test_what_cannot_be_opened(tmp_path, error, message, call):
    with pytest.raises(error, match=message):
        call(tmp_path / "store")
    hs.memory.KeyValueStore(tmp_path / "store", 2, 5).close()


def test_a_database_of_something_else_is_refused(tmp_path):
    with lmdb.open(str(tmp_path)) as env, env.begin(write=True) as transaction:
        transaction.put(b"a", b"b")
    with pytest.raises(OSError, match="is not a store of keys and values"):
        hs.memory.KeyValueStore(tmp_path, 2, 5)


BAD_ROWS = {
    "integers": (TypeError, "key must be float32, the type of the store, not int64", (np.ones((2, 4, 5), int), None)),
    "float64": (TypeError, "value must be float32, the type of the store, not float64", (None, np.ones((2, 4, 3)))),
    "one axis less": (ValueError, r"shape \(2, tokens, 5\), not \(4, 5\)", (np.ones((4, 5), "f4"), None)),
    "other heads": (ValueError, r"value must be of shape \(2, tokens, 3\)", (None, np.ones((1, 4, 3), "f4"))),
    "unequal numbers": (ValueError, "the same number of tokens, got 4 and 3", (None, np.ones((2, 3, 3), "f4"))),
}  # fmt: skip


@pytest.mark.parametrize(("error", "message", "changes"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_wrong_rows_change_nothing(tmp_path, error, message, changes):
    good = problem(4, "float32")
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 5, value_dim=3) as store:
        store.append(*good)
        with pytest.raises(error, match=message):
            store.append(*(right if wrong is None else wrong for wrong, right in zip(changes, good, strict=True)))
        assert len(store) == 4


def test_rows_that_are_not_there(tmp_path):
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 5, value_dim=3) as store:
        assert list(store) == []
        assert store.rows(0, 0)[0].shape == (2, 0, 5)
        store.append(*problem(4, "float32"))
        for first, last in ((0, 5), (3, 2), (5, 5)):
            with pytest.raises(ValueError, match=f"first <= last <= 4, not {first} and {last}"):
                store.rows(first, last)


def test_one_writer_and_several_readers(tmp_path, monkeypatch):
    """Readers see the rows that are added, also when the map becomes longer."""
    monkeypatch.setattr("headspan.memory.store.database.FIRST_MAP", 1 << 16)
    path = tmp_path / "store"
    key, value = problem(9000, "float32")
    read = (
        "import sys, headspan as hs\nimport headspan.memory.store.database as d\nd.FIRST_MAP = 1 << 16\n"
        "with hs.memory.KeyValueStore(sys.argv[1], readonly=True) as store:\n"
        "    for line in sys.stdin:\n        print(len(store), store.rows(0, len(store))[0].sum(), flush=True)\n"
    )
    with hs.memory.KeyValueStore(path, 2, 5, value_dim=3) as store:
        command = [sys.executable, "-c", read, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            for first, last in ((0, 10), (10, 5000), (5000, 9000)):
                store.append(key[:, first:last], value[:, first:last])
                reader.stdin.write("\n")
                reader.stdin.flush()
                count, total = reader.stdout.readline().split()
                assert (int(count), np.float32(total)) == (last, store.rows(0, last)[0].sum())
            reader.stdin.close()
        write = "import sys, headspan as hs\ntry: hs.memory.KeyValueStore(sys.argv[1])\nexcept OSError as e: print(e)"
        assert "already has a writer" in run_python(write, path)
        with pytest.raises(OSError, match="already open in this process"):
            hs.memory.KeyValueStore(path)
        assert "already has a writer" in run_python(write, path)  # the refused one has released nothing
    with hs.memory.KeyValueStore(path, readonly=True) as store:
        with pytest.raises(ValueError, match="was opened with readonly=True"):
            store.append(key, value)
        assert len(store) == 9000
    with pytest.raises(ValueError, match="is closed"):
        len(store)
    store.close()


def test_threads_share_a_store(tmp_path, monkeypatch):
    """One appends, so that the map is made longer again and again, while others read and attend."""
    monkeypatch.setattr("headspan.memory.store.database.FIRST_MAP", 1 << 16)
    key, value = problem(12_000, "float32")
    query = normals(7, 2, 3, 5).astype(np.float32)
    wrong = []
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 5, value_dim=3) as store:
        store.append(key[:, :1], value[:, :1])

        def look():
            while (count := len(store)) < 12_000:
                if not np.array_equal(store.rows(0, count)[1], value[:, :count]):
                    wrong.append(count)
                store.attend(query)

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        for first in range(1, 12_000, 500):
            store.append(key[:, first : first + 500], value[:, first : first + 500])
        for thread in threads:
            thread.join()
    assert wrong == []


FORKED = """
import os, sys
import headspan as hs
import numpy as np

store = hs.memory.KeyValueStore(sys.argv[1], 1, 2)
store.append(np.ones((1, 3, 2), np.float32), np.ones((1, 3, 2), np.float32))
sys.stdout.flush()
if child := os.fork():
    os.waitpid(child, 0)
    store.append(np.ones((1, 3, 2), np.float32), np.ones((1, 3, 2), np.float32))
    print(len(store))
else:
    try:
        len(store)
    except ValueError as error:
        print(error)
    store.close()
    sys.stdout.flush()
    os._exit(0)
"""


def test_what_was_opened_before_a_fork_is_the_parents(tmp_path):
    refused, count = run_python(FORKED, tmp_path / "store").splitlines()
    assert "was opened before a fork; each process must open it" in refused
    assert count == "6"


def test_without_lmdb_an_error_names_the_extra(tmp_path):
    code = (
        "import sys; sys.modules['lmdb'] = None\nimport headspan as hs\n"
        "try: hs.memory.KeyValueStore(sys.argv[1], 2, 5)\nexcept ImportError as error: print(error)"
    )
    assert run_python(code, tmp_path / "store") == f"KeyValueStore needs lmdb; {how_to_install('store')}\n"
