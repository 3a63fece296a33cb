"""The picture of a stream: a token has a line for as long as it is kept."""

import headspan as hs
import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")


pytestmark = pytest.mark.unsanitized  # the sanitizers have nothing to find in other people's drawing


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    settings = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == settings


def stream(moments, total, rows, seed=0):
    """At moments of a stream, a random choice of the tokens so far; some rows are empty."""
    rng = np.random.default_rng(seed)
    counts = np.sort(rng.choice(np.arange(1, total), moments - 1, replace=False))
    counts = np.append(counts, total)
    positions = np.full((moments, rows), -1)
    for row, count in zip(positions, counts, strict=True):
        chosen = rng.choice(count, min(count, rows - 1), replace=False)
        row[rng.permutation(rows)[: chosen.size]] = chosen
    return counts, positions, np.where(positions >= 0, rng.uniform(0.5, 9, positions.shape), 100)


@pytest.mark.parametrize("total", [60, 2000])  # a row a token, and four tokens a row
@pytest.mark.parametrize("weighted", [True, False])
def test_a_cell_is_coloured_while_one_of_its_tokens_is_kept(total, weighted):
    counts, positions, weights = stream(7, total, 12)
    ax = hs.plot.kept_tokens(counts, positions, weights if weighted else None)
    gone, shown = (np.ma.masked_invalid(mesh.get_array()) for mesh in ax.collections)
    each = -(-total // 512)
    assert shown.shape == (-(-total // each), 7)
    for moment, count in enumerate(counts):
        for cell in range(len(shown)):
            tokens = range(cell * each, (cell + 1) * each)
            kept = [w for token, w in zip(positions[moment], weights[moment], strict=True) if token in tokens]
            assert np.ma.getmaskarray(gone)[cell, moment] == (tokens[0] >= count)
            assert np.ma.getmaskarray(shown)[cell, moment] == (not kept)
            if kept:
                assert shown[cell, moment] == (max(kept) if weighted else 1)
    assert ax.get_title() == f"{(positions[-1] >= 0).sum()} of {total:,} tokens kept"
    if weighted:
        assert ax.collections[1].get_clim()[1] == weights[positions >= 0].max()


def test_moments_and_tokens_are_where_they_are():
    ax = hs.plot.kept_tokens([10, 20, 50], [[0], [0], [49]], unit="characters")
    corners = ax.collections[1].get_coordinates()
    np.testing.assert_array_equal(corners[0, :, 0], [5, 15, 35, 65])
    np.testing.assert_array_equal(corners[:, 0, 1], np.arange(51) - 0.5)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("characters so far", "position (characters)")
