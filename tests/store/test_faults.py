"""Processes that are killed, damaged files, full disks: nothing acknowledged is lost, and errors say what is."""

import errno
import resource
import shutil

import headspan as hs
import killed
import numpy as np
import pytest
from cases import normals
from helpers import run_python

pytest.importorskip("lmdb", reason="needs lmdb: pip install '.[store]'")


@pytest.mark.unsanitized
def test_a_killed_process_loses_nothing(tmp_path):
    counts = [killed.check_one(tmp_path / "store", seed) for seed in range(10)]
    assert counts == sorted(counts)
    assert counts[-1] > 10_000


def flip(path, row):
    """Changes a bit of the numbers of a row, wherever they are: the file also has pages that are no longer in use."""
    data, right = path.read_bytes(), row.tobytes()
    assert right in data
    wrong = bytearray(right)
    wrong[len(wrong) // 2] ^= 1
    path.write_bytes(data.replace(right, bytes(wrong)))


@pytest.mark.parametrize(
    ("row", "damaged"),
    [(5, "rows 0 to 4095"), (4096, "rows 4096 to 8191"), (8000, "rows 4096 to 8191"), (8195, "rows 8192 to 8291")],
)
@pytest.mark.parametrize("which", ["key", "value"])
def test_a_flipped_bit_is_found_and_named(tmp_path, row, damaged, which):
    key, value = normals(0, 2, 8300, 8), normals(1, 2, 8300, 8)
    path = tmp_path / "store"
    with hs.memory.KeyValueStore(path, 2, 8, dtype="float64") as store:
        for first, last in ((0, 8192), (8192, 8292), (8292, 8300)):
            store.append(key[:, first:last], value[:, first:last])
    flip(path / "data.mdb", (key if which == "key" else value)[1, row])
    with hs.memory.KeyValueStore(path) as store:
        assert len(store) == 8300
        for call in (
            lambda: store.rows(row, row + 1),
            lambda: list(store),
            lambda: store.attend(key[:, :3]),
            lambda: store.attend(key[:, :3], span=9, query_positions=[row] * 3),
        ):
            with pytest.raises(OSError, match=f"^{damaged} are damaged in the store at {path}"):
                call()
        others = {5: (4096, 8192), 4096: (0, 4096), 8000: (8192, 8300), 8195: (8292, 8300)}[row]
        assert np.array_equal(store.rows(*others)[0], key[:, slice(*others)])


def test_a_damaged_tail_is_not_taken_for_whole(tmp_path):
    """Records that are put together are verified first, or the new checksum would be that of the damage."""
    key = normals(0, 2, 50, 8)
    path = tmp_path / "store"
    with hs.memory.KeyValueStore(path, 2, 8, dtype="float64") as store:
        store.append(key, key + 1)
    flip(path / "data.mdb", key[1, 20])
    with hs.memory.KeyValueStore(path) as store:
        with pytest.raises(OSError, match="rows 0 to 49 are damaged"):
            store.append(key, key)
        assert len(store) == 50
        store.append(key[:, :3], key[:, :3])  # which leaves the long record as it is
        assert np.array_equal(store.rows(50, 53)[0], key[:, :3])


def test_damaged_sizes_are_found(tmp_path):
    path = tmp_path / "store"
    hs.memory.KeyValueStore(path, 2, 8).close()
    data = (path / "data.mdb").read_bytes()
    assert data.count(b'"head_dim": 8') == 1
    (path / "data.mdb").write_bytes(data.replace(b'"head_dim": 8', b'"head_dim": 9'))
    with pytest.raises(OSError, match=r"the sizes of the store at .* are damaged"):
        hs.memory.KeyValueStore(path)


FULL = """
import resource, sys
import headspan as hs
import numpy as np

rows = np.arange(2 * 9000 * 4, dtype=np.float32).reshape(2, 9000, 4)
with hs.memory.KeyValueStore(sys.argv[1], 2, 4) as store:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), most))
    count, message = 0, ""
    while not message:
        try:
            store.append(rows[:, count % 5000 : count % 5000 + 700], rows[:, :700])
            count += 700
        except OSError as error:
            message = str(error)
    assert count > 700
    for _ in range(2):  # and it stays so
        assert len(store) == count
        key, value = store.rows(0, count)
        for first in range(0, count, 700):
            assert np.array_equal(key[:, first : first + 700], rows[:, first % 5000 : first % 5000 + 700])
            assert np.array_equal(value[:, first : first + 700], rows[:, :700])
        out = store.attend(rows[:, :2])
        assert np.array_equal(out, hs.memory.KeyValueStore.attend(store, rows[:, :2]))
        try:
            store.append(rows, rows)
            raise AssertionError("there was room")
        except OSError:
            pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    store.append(rows, rows)
    assert len(store) == count + 9000
    print(message)
"""


@pytest.mark.parametrize("limit", [1 << 20, 1_500_000])
def test_a_full_disk_loses_nothing(tmp_path, limit):
    """A limit on the length of files stands for it."""
    message = run_python(FULL, tmp_path / "store", limit)
    assert "nothing was added to the store at" in message
    with hs.memory.KeyValueStore(tmp_path / "store", readonly=True) as store:
        assert len(store) % 700 == 9000 % 700


def test_a_disk_without_room_is_said_to_be_full(tmp_path, monkeypatch):
    """By what the system says of it, since LMDB calls it an input/output error."""
    key = normals(0, 2, 500, 8)
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 8, dtype="float64") as store:
        store.append(key, key)
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=4096))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
        try:
            with pytest.raises(OSError, match="the disk is full; nothing was added") as caught:
                store.append(key, key)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert caught.value.errno == errno.ENOSPC
        assert np.array_equal(store.rows(0, len(store))[0], key)
        store.append(key, key)
        assert len(store) == 1000


def test_the_map_grows_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("headspan.memory.store.database.FIRST_MAP", 1 << 16)
    key = normals(0, 2, 30_000, 8)
    with hs.memory.KeyValueStore(tmp_path / "store", 2, 8, dtype="float64") as store:
        for first, last in ((0, 10), (10, 1000), (1000, 29_000), (29_000, 30_000)):
            store.append(key[:, first:last], -key[:, first:last])
        assert np.array_equal(store.rows(0, 30_000)[1], -key)
    with hs.memory.KeyValueStore(tmp_path / "store") as store:  # whose map is as long as the file
        store.append(key, key)
        assert len(store) == 60_000
