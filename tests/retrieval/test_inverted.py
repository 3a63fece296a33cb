"""An inverted file finds most of what an exact search finds, and nothing that it must not."""

import headspan as hs
import numpy as np
import pytest
from bad_values import check_sentence
from cases import normals

pytest.importorskip("faiss", reason="needs faiss: pip install '.[faiss]'")


def clustered(seed, count):
    """Keys around 60 centres."""
    rng = np.random.default_rng(seed)
    centres = normals(1, 60, 16)
    return (centres[rng.integers(0, 60, (2, count))] + 0.4 * rng.standard_normal((2, count, 16))).astype(np.float32)


def both(count, **options):
    key = clustered(0, count)
    exact, inverted = hs.memory.KeyIndex(2, 16), hs.memory.KeyIndex(2, 16, nlist=30, **options)
    for index in (exact, inverted):
        for part in np.array_split(key, 3, axis=1):
            index.add(part)
        assert len(index) == count
    return exact, inverted, clustered(2, 50)


def test_all_lists_together_hold_everything():
    exact, inverted, query = both(2000, nprobe=30)
    assert np.array_equal(inverted.retrieve(query, 10), exact.retrieve(query, 10))
    batch = np.stack([query, query[:, ::-1]])
    assert np.array_equal(inverted.retrieve(batch, 10), exact.retrieve(batch, 10))


def test_some_lists_hold_most():
    exact, inverted, query = both(6000, nprobe=8)
    indices, right = inverted.retrieve(query, 10), exact.retrieve(query, 10)
    share = np.mean([np.isin(a, b).mean() for a, b in zip(indices.reshape(-1, 10), right.reshape(-1, 10), strict=True)])
    assert 0.9 < share <= 1


def test_only_what_lies_before():
    exact, inverted, query = both(2000, nprobe=30)
    before = np.repeat([0, 3, 700, 1500, 5000], 10)
    indices = inverted.retrieve(query, 10, before=before)
    assert (indices < before[:, None]).all()
    assert (indices[:, :10] == -1).all()
    assert np.array_equal(indices, exact.retrieve(query, 10, before=before))


def test_errors_say_what_to_do():
    index = hs.memory.KeyIndex(2, 16, nlist=30)
    with pytest.raises(ValueError, match="from which the lists are learned") as caught:
        index.add(clustered(0, 20))
    check_sentence(caught.value, "nlist")
    assert len(index) == 0
    assert (index.retrieve(clustered(2, 5), 3) == -1).all()
    for options, error, name in (
        ({"nlist": 0}, ValueError, "nlist"),
        ({"nlist": 2.5}, TypeError, "nlist"),
        ({"nlist": 2, "nprobe": 0}, ValueError, "nprobe"),
        ({"nlist": 2, "dtype": "float64"}, TypeError, "dtype"),
        ({"dtype": "float16"}, TypeError, "dtype"),
        ({"dtype": "wide"}, TypeError, "dtype"),
    ):
        with pytest.raises(error) as caught:
            hs.memory.KeyIndex(2, 16, **options)
        check_sentence(caught.value, name)
