"""Pictures of patterns: each pair has the colour of the first part that allows it."""

import headspan as hs
import matplotlib
import numpy as np
import pytest
from headspan.patterns import Blocks, Fixed, Full, Global, Neighborhood, Random, Strided, Window
from headspan.plot import _pattern

matplotlib.use("Agg")


pytestmark = pytest.mark.unsanitized  # the sanitizers have nothing to find in other people's drawing


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    settings = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == settings


LAYOUTS = {
    "union": (Window(6) | Global([0, 9]) | Strided(4), 40, 40, None),
    "span": (Window(16) | Global([3]) | Strided(4), 40, 40, 6.5),
    "more keys": (Window(6, ahead=2) | Fixed(4, 2), 20, 33, None),
    "more queries": (Window(6, ahead=2) | Random(1, 4), 33, 20, 3),
    "grid": (Neighborhood((5, 8), 3) | Global(7), 40, 40, 1),
    "nested": (Window(10) & (Strided(2) | Global(1)), 40, 40, None),
}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_coloured_by_the_first_part_that_allows_a_pair(name, causal):
    pattern, queries, keys, span = LAYOUTS[name]
    ax = hs.plot.pattern(pattern, queries, key_tokens=keys, causal=causal, span=span, ramp=2, head_dim=8)
    image = ax.images[0].get_array()
    left = pattern.mask(queries, keys)
    if causal:
        left &= np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    if span is not None:
        zeros = [np.zeros((n, 1)) for n in (queries, keys)]
        left &= hs.attention_weights(*zeros, span=span, ramp=2, causal=causal, pattern=pattern) > 0
    cost = hs.cost(
        tokens=queries, key_tokens=keys, num_heads=1, head_dim=8, causal=causal, span=span, ramp=2, pattern=pattern
    )
    assert ax.get_title().startswith(f"{cost.pairs:,} of ")
    assert left.sum() == cost.pairs
    np.testing.assert_array_equal(image[..., 3] > 0, left)
    for part, patch in zip(pattern.alternatives, ax.get_legend().get_patches(), strict=False):
        pairs = left & part.mask(queries, keys)
        if span is not None and not part.grid:
            pairs &= hs.attention_weights(*zeros, span=span, ramp=2, causal=causal, pattern=part) > 0
        np.testing.assert_allclose(image[pairs], np.broadcast_to(patch.get_facecolor(), (pairs.sum(), 4)), atol=1e-6)
        left &= ~pairs
    assert not left.any()


def test_beyond_the_span_a_pair_came_from_the_global_token():
    layout = _pattern.layout_of(Window(25) | Strided(8) | Global([0]), 64, 64, True, span=10, ramp=4)
    local, strided, by_global = layout.counts[..., 0] > 0  # column 0
    np.testing.assert_array_equal(np.flatnonzero(local), np.arange(14))
    assert not strided.any()
    np.testing.assert_array_equal(np.flatnonzero(by_global), np.arange(14, 64))
    # A token that is Global in one part is out of the span's reach in all of them.
    nested = Strided(2) | (Window(10) & Global([1]))
    layout = _pattern.layout_of(nested, 40, 40, True, span=4, ramp=0)
    cost = hs.cost(tokens=40, num_heads=1, head_dim=8, pattern=nested, span=4, ramp=0)
    assert layout.counts.sum() == cost.pairs


def test_legend_says_whose_colour_a_pair_has_and_what_the_flops_are_for():
    legend = hs.plot.pattern(Window(9) | Global([0]), 40, head_dim=32).get_legend()
    assert legend.get_title().get_text() == "first part that allows it"
    assert "FLOPs for head_dim 32" in [text.get_text() for text in legend.get_texts()]
    assert hs.plot.pattern(Window(9), 40).get_legend().get_title().get_text() == ""
    figure = hs.plot.pattern([Window(2), Strided(2)], 20)
    assert figure.legends[0].get_title().get_text() == "first part that allows it"


def test_large_layout_counts_the_pairs_of_every_block():
    pattern = Window(91) | Global([3]) | Strided(7)
    layout = _pattern.layout_of(pattern, 1000, 1000, True)
    causal = np.tri(1000, dtype=bool)
    assert (layout.block, layout.is_complete) == ((8, 8), True)
    blocks = (pattern.mask(1000) & causal).reshape(125, 8, 125, 8).sum(axis=(1, 3))
    np.testing.assert_array_equal(layout.counts.sum(axis=0), blocks)
    np.testing.assert_array_equal(layout.sizes, 64)
    window_blocks = (Window(91).mask(1000) & causal).reshape(125, 8, 125, 8).sum(axis=(1, 3))
    np.testing.assert_array_equal(layout.counts[0], window_blocks)
    image = hs.plot.pattern(pattern, 1000).images[0]
    np.testing.assert_array_equal(image.get_array()[..., 3] > 0, blocks > 0)
    assert image.get_extent() == [-0.5, 999.5, 999.5, -0.5]


def test_of_a_very_large_layout_some_rows_are_looked_at(monkeypatch):
    monkeypatch.setattr(_pattern, "MOST_PAIRS", 2**18)
    ax = hs.plot.pattern(Window(91) | Strided(7), 1000)
    layout = _pattern.layout_of(Window(91), 1000, 1000, True)
    assert not layout.is_complete
    np.testing.assert_array_equal(layout.sizes, 2 * 8)
    assert "2 rows of each looked at" in ax.get_legend().get_texts()[-1].get_text()
    assert ax.get_legend().get_texts()[0].get_text() == "Window(91)"  # no number that would be a guess


def test_heads_that_differ_have_panels():
    mask = np.array([[[1, 0], [1, 1]], [[0, 0], [0, 0]]], bool)
    figure = hs.plot.pattern(Blocks(mask, 3, per_head=True), 6)
    assert [ax.get_title() for ax in figure.axes] == ["head 0: 100 %, 5.38 kFLOP", "head 1: 0 %, 0 FLOP"]
    assert [(ax.images[0].get_array()[..., 3] > 0).sum() for ax in figure.axes] == [21, 0]
    figure = hs.plot.pattern(Random(1, 2, per_head=True), 12, span=[99, 99])
    drawn = [ax.images[0].get_array()[..., 3] > 0 for ax in figure.axes]
    np.testing.assert_array_equal(drawn, Random(1, 2, per_head=True).mask(12, num_heads=2) & np.tri(12, dtype=bool))
    figure = hs.plot.pattern(Full(), 6, span=[0, 1], ramp=0)
    assert [(ax.images[0].get_array()[..., 3] > 0).sum() for ax in figure.axes] == [6, 11]


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (Window(5), "Window(5)"),
        (Window(5, dilation=2), "Window(5, dilation=2)"),
        (Strided(4, offset=0), "Strided(4, offset=0)"),
        (Neighborhood((4, 4), 3), "Neighborhood((4, 4), window=3)"),
        (Blocks([[True]], 4), "Blocks(block_size=4)"),
        (Window(5) & (Strided(2) | Global([1])), "Window(5) & (Strided(2) | Global(1))"),
        (Global(range(99)), "Global((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1\u2026"),
    ],
)
def test_parts_are_named_as_they_are_written(pattern, name):
    assert pattern.short_name() == name


def test_chosen_blocks_are_drawn_head_by_head():
    query, key = np.random.default_rng(0).standard_normal((2, 1, 2, 60, 8))
    pattern = hs.sparse.selected_blocks(query, key, keep=2, block_size=(8, 4))
    figure = hs.plot.pattern(pattern, 60)
    for ax, mask in zip(figure.axes, pattern.mask(60), strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array()[..., 3] > 0, mask & np.tri(60, dtype=bool))
