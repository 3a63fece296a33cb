"""Dropout: the choice of weights passes tests of randomness, and is the same however it is computed."""

import headspan as hs
import numpy as np
import pytest
from cases import normals
from headspan.ops.arguments import dropout

pytestmark = pytest.mark.numerical

SIGMAS = 4.5  # no draw of the test should deviate more; the draws are always the same


def dropped(rate, seed, batch, heads, tokens):
    """Which weights are dropped, read off the map of a head that looks at all keys alike."""
    zeros = np.zeros((batch, heads, tokens, 1))
    return hs.attention_weights(zeros, zeros, causal=False, dropout=rate, seed=seed) == 0


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])
def test_the_share_of_dropped_weights_is_the_rate(rate):
    is_dropped = dropped(rate, 1, 2, 3, 400)
    for axes in ((0, 1, 2, 3), (2, 3), (3,), (2,)):
        shares = is_dropped.mean(axis=axes)
        off = (shares - rate) / np.sqrt(rate * (1 - rate) * shares.size / is_dropped.size)
        assert np.abs(off).max() < SIGMAS
        assert 0.8 < np.square(off).mean() < 1.2 or shares.size < 400


def test_neighbours_are_uncorrelated():
    rate = 0.3
    is_dropped = np.stack([dropped(rate, seed, 3, 4, 150) for seed in (0, 1, 2**32, 2**63)])
    centred = (is_dropped - rate) / np.sqrt(rate * (1 - rate))
    for axis in range(5):
        for step in (1, 2):
            ahead = np.take(centred, np.arange(step, centred.shape[axis]), axis)
            product = ahead * np.take(centred, np.arange(centred.shape[axis] - step), axis)
            assert abs(product.mean()) * np.sqrt(product.size) < SIGMAS
    diagonal = centred[..., 1:, 1:] * centred[..., :-1, :-1]
    assert abs(diagonal.mean()) * np.sqrt(diagonal.size) < SIGMAS


def test_rows_are_not_shifts_of_each_other():
    """A hash of a sum of query and key would give every row the same sequence, shifted."""
    is_dropped = dropped(0.5, 3, 1, 1, 256)[0, 0]
    of_row = np.fft.rfft(is_dropped - 0.5, axis=1)
    for row in range(1, 64):
        against_first = np.fft.irfft(of_row[row] * of_row[0].conj(), 256) / (256 * 0.25)
        assert np.abs(against_first).max() < SIGMAS / np.sqrt(256)


def test_the_mean_over_seeds_is_attention_without_dropout():
    query, key, value = (normals(i, 1, 2, 40, 8) for i in range(3))
    plain = hs.attention(query, key, value, span=20)
    outs = [hs.attention(query, key, value, span=20, dropout=0.3, seed=seed) for seed in range(2000)]
    off = (np.mean(outs, axis=0) - plain) / (np.std(outs, axis=0) / np.sqrt(len(outs)) + 1e-12)
    assert np.abs(off).max() < SIGMAS
    assert not np.allclose(outs[0], plain, atol=0.1)


def test_the_log_sum_exp_is_that_without_dropout():
    query, key, value = (normals(i, 1, 2, 70, 8) for i in range(3))
    _, plain = hs.attention(query, key, value, return_lse=True)
    _, lse = hs.attention(query, key, value, return_lse=True, dropout=0.5, seed=1)
    assert np.array_equal(lse, plain)


def test_the_last_queries_alone_drop_the_same():
    query, key, value = (normals(i, 1, 2, 200, 8) for i in range(3))
    options = {"span": 150.5, "dropout": 0.2, "seed": 9}
    expected = hs.attention(query, key, value, **options)
    for count in (1, 63, 64, 65, 199):
        part = hs.attention(query[:, :, -count:], key, value, **options)
        np.testing.assert_allclose(part, expected[:, :, -count:], rtol=0, atol=1e-12)


def test_a_rate_of_zero_needs_no_seed_and_drops_nothing():
    query, key, value = (normals(i, 1, 2, 70, 8) for i in range(3))
    assert np.array_equal(hs.attention(query, key, value, dropout=0), hs.attention(query, key, value))
    assert np.array_equal(hs.attention(query, key, value, dropout=0, seed=4), hs.attention(query, key, value))


def test_dropped_weights_are_those_of_the_definition():
    expected = dropout.factors(0.3, 2**64 - 1, 2, 3, np.arange(70), np.arange(70)) == 0
    assert np.array_equal(dropped(0.3, 2**64 - 1, 2, 3, 70), expected)
