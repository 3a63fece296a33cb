"""Pictures of gates and of the hierarchy: a block has the colour of its gate, a pair that of its level."""

import headspan as hs
import matplotlib
import numpy as np
import pytest
from headspan.plot import style
from hierarchy_oracle import means_of

matplotlib.use("Agg")


pytestmark = pytest.mark.unsanitized  # the sanitizers have nothing to find in other people's drawing


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    settings = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == settings


def drawn_gates(ax):
    """What is grey, and the numbers that have a colour, NaN elsewhere."""
    grey, coloured = (image.get_array() for image in ax.images)
    return ~np.ma.getmaskarray(grey), coloured.filled(np.nan)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("block", [16, (8, 24)])
def test_gates_are_coloured_and_closed_ones_grey(block, causal):
    sides = np.broadcast_to(block, 2)
    learned = np.random.default_rng(0).uniform(0.1, 1, [-(-48 // side) for side in sides])
    learned[1] = 0
    options = hs.sparse.learned_blocks(learned, block, tokens=48)
    gates = options["block_gates"][0]
    ax = hs.plot.block_gates(gates, options["gate_block_size"], causal=causal)
    pairs = np.tri(48, dtype=bool) if causal else np.ones((48, 48), bool)
    seen = np.logical_or.reduceat(
        np.logical_or.reduceat(pairs, np.arange(0, 48, sides[0]), 0), np.arange(0, 48, sides[1]), 1
    )
    grey, coloured = drawn_gates(ax)
    np.testing.assert_array_equal(grey, seen)  # behind the colours, too
    np.testing.assert_array_equal(coloured, np.where(seen & (gates > 0), gates, np.nan))
    assert ax.get_title() == f"{(gates[seen] > 0).sum()} of {seen.sum()} blocks open"
    assert ax.images[0].get_extent() == ax.images[1].get_extent() == [-0.5, 47.5, 47.5, -0.5]
    assert ax.images[0].cmap(0.0) == matplotlib.colors.to_rgba(style.NOTHING)
    assert ax.images[1].get_clim() == (0, 1)


def test_heads_have_panels_and_steps_rows():
    gates = np.random.default_rng(0).uniform(0, 1, (3, 2, 4, 4))
    figure = hs.plot.block_gates(gates, 8, steps=[1, 40, 1800])
    panels = [ax for ax in figure.axes if len(ax.images) == 2]
    assert len(panels) == 6
    for ax, (step, head) in zip(panels, np.ndindex(3, 2), strict=True):
        np.testing.assert_array_equal(drawn_gates(ax)[1], np.where(np.tri(4), gates[step, head], np.nan))
        assert ax.get_title() == f"head {head}, step {[1, 40, '1,800'][step]}\n10 of 10 blocks open"
    rows = {ax.get_subplotspec().rowspan.start for ax in panels[::2]}
    assert rows == {0, 1, 2}
    assert [ax.get_title() for ax in hs.plot.block_gates(gates[0], 8).axes[:2]] == [
        "head 0\n10 of 10 blocks open",
        "head 1\n10 of 10 blocks open",
    ]


def test_gates_beyond_the_bounds_are_drawn_as_these():
    grey, coloured = drawn_gates(hs.plot.block_gates([[1.5, -1], [-1, 0.5]], 4, causal=False))
    assert grey.all()
    np.testing.assert_array_equal(coloured, [[1, np.nan], [np.nan, 0.5]])


@pytest.mark.parametrize(("tokens", "side"), [(1, 4), (100, 4), (130, 1), (77, 7), (512, 64)])
def test_a_pair_has_the_colour_of_its_level_and_every_other_group_is_light(tokens, side):
    ax = hs.plot.hierarchy(tokens, side)
    image = ax.images[0].get_array()
    legend = [np.array(patch.get_facecolor()) for patch in ax.get_legend().get_patches()]
    pairs = np.zeros(len(legend), int)
    for query in range(tokens):
        assert not image[query, query + 1 :, 3].any()
        expected = np.full((query + 1, 4), np.nan)
        for first, size in means_of(query, side):
            pure = legend[size.bit_length() - 1]
            light = first // size % 2
            expected[first : first + size] = [*(pure[:3] + (0.4 * (1 - pure[:3]) if light else 0)), 1]
            pairs[size.bit_length() - 1] += 1
        np.testing.assert_allclose(image[query, : query + 1], expected, atol=1e-6)
    assert (pairs > 0).all()
    assert ax.get_title().startswith(f"{pairs.sum():,} of {tokens * (tokens + 1) // 2:,} pairs")
    words = ["one by one", *(f"means of {2**level}" for level in range(1, len(legend)))]
    expected = [f"{word}: {100 * n / pairs.sum():.2g} %" for word, n in zip(words, pairs, strict=True)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == expected


def test_of_many_tokens_some_are_drawn():
    tokens, side = 5000, 16
    ax = hs.plot.hierarchy(tokens, side)
    image = ax.images[0].get_array()
    legend = [patch.get_facecolor() for patch in ax.get_legend().get_patches()]
    places = np.linspace(0, tokens - 1, 512).astype(int)
    assert image.shape == (512, 512, 4)
    assert ax.images[0].get_extent() == [-0.5, 4999.5, 4999.5, -0.5]
    for row in range(0, 512, 73):
        size_at = {token: size for first, size in means_of(places[row], side) for token in range(first, first + size)}
        for column in range(0, row + 1, 5):
            level = size_at[places[column]].bit_length() - 1
            np.testing.assert_allclose(image[row, column], legend[level], atol=1e-6)
