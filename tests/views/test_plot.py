"""Pictures: what is drawn is what was given."""

import inspect
import sys

import headspan as hs
import matplotlib
import numpy as np
import pytest
from headspan.patterns import Blocks, Blockwise, Fixed, Global, Random, Strided, Window
from headspan.plot import _pattern
from helpers import run_python

matplotlib.use("Agg")

import matplotlib.pyplot as plt

pytestmark = pytest.mark.unsanitized  # the sanitizers have nothing to find in other people's drawing

LARGE = np.clip(np.random.default_rng(0).lognormal(4, 1.5, (24, 16)), 0, 2048)


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    settings = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == settings


def normals(*shape):
    return np.random.default_rng(1).standard_normal(shape)


def lines(ax, label=None):
    return [line for line in ax.lines if label is None or line.get_label() == label]


def draw(ax):
    """Draws a picture, of which nothing may be cut off."""
    figure = getattr(ax, "figure", ax)
    figure.canvas.draw()
    box = figure.get_tightbbox(figure.canvas.get_renderer())
    width, height = figure.get_size_inches()
    assert box.x0 > -0.05, box
    assert box.y0 > -0.05, box
    assert box.x1 < width + 0.05, (box, width)
    assert box.y1 < height + 0.05, (box, height)


def fitted(needs=((100, 3), (30, 3)), **bound):
    """Spans for a model whose heads need the given numbers of tokens."""

    def loss(spans):
        return 2 + float(np.maximum(1 - spans / np.asarray(needs), 0).sum())

    layers, heads = np.shape(needs)
    return hs.fit_spans(loss, loss, tokens=256, num_layers=layers, num_heads=heads, head_dim=16, ramp=1, **bound)


SIZES = {
    "soft_mask": [(3.0,), ([0],), (np.linspace(0, 10_000, 9),), (LARGE.ravel(),)],
    "spans": [(3.0,), ([0],), ([[10_000]],), (LARGE,)],
    "span_history": [
        ([0], [[3]]),
        (np.arange(10_000), np.linspace(1, 9, 20_000).reshape(-1, 2)),
        ([0, 1], [LARGE, LARGE]),
    ],
    "distance_profile": [([[1.0]],), (np.full((2, 10_000), 1e-4),), (np.full((24, 16, 2, 9), 1 / 9),), ([[0.0]],)],
    "attention_map": [([[1.0]],), (np.full((100, 10_000), 1e-4),), (np.eye(600),), ([[0.0]],)],
    "dynamic_spans": [([3.0],), (np.linspace(0, 99, 10_000),), (np.ones((24, 16, 5)),)],
    "pattern": [
        (Window(1), 1),
        (Global([]), 1),
        (Blocks([[False]], 8), 5),
        (Window(31) | Global([0, 500]) | Random(1, 50), 10_000),
        ([Window(2), Strided(2), Window(4) & Fixed(4, 1)], 65),
        (Blockwise(8, back=1) | Random(2, 8, seed=1) | Global([0, 1]) | (Window(4, dilation=4) & Strided(16)), 64),
        (Global(range(50)) | Window(4), 64),
    ],
    "block_gates": [
        ([[1.0]], 64),
        (np.zeros((3, 2)), (5, 8)),
        (np.linspace(0, 1, 24 * 9).reshape(24, 3, 3), 1000),
        (np.ones((1, 120, 120)), 16),
    ],
    "hierarchy": [(1,), (65, 1), (512, 16), (513,), (10**6, 64)],
    "span_fit": [(fitted(tolerance=0.01),), (fitted(needs=[[9]], budget=0.9),), (fitted(budget=0.05),)],
    "kept_tokens": [
        ([1], [[0]]),
        ([1, 2], np.empty((2, 0), int)),
        (np.arange(1, 501), np.arange(500)[:, None], np.zeros((500, 1))),
        ([10**6, 10**6 + 1], np.arange(2000).reshape(2, 1000) * 500, np.ones((2, 1000))),
    ],
    "limit_sweep": [
        ({"one": {"limit": [64], "bits": [1.0]}},),
        ({str(i): {"limit": [1, 2], "bits": [1, 2], "span": [0, 2], "flops": [1e6, 2e6]} for i in range(9)},),
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(set(hs.plot.__all__) - {"mean_by_distance"}))
def test_every_size_can_be_drawn(name):
    for data in SIZES[name]:
        draw(getattr(hs.plot, name)(*data))


@pytest.mark.parametrize("name", sorted(set(SIZES) - {"limit_sweep"}))
def test_axes_given_are_used_and_labelled(name):
    assert "ax" in inspect.signature(getattr(hs.plot, name)).parameters
    figure, ax = plt.subplots()
    assert getattr(hs.plot, name)(*SIZES[name][0], ax=ax) is ax
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert plt.get_fignums() == [figure.number]


@pytest.mark.parametrize("name", ["soft_mask", "spans", "span_history", "distance_profile", "dynamic_spans"])
def test_axes_name_the_unit(name):
    ax = getattr(hs.plot, name)(*SIZES[name][0], unit="characters")
    labels = f"{ax.get_xlabel()} {ax.get_ylabel()}"
    assert "(characters)" in labels
    assert "tokens" not in labels


def test_mask_is_the_soft_mask():
    spans = [0, 8.5, 40]
    ax = hs.plot.soft_mask(spans, ramp=16)
    for span, line in zip(spans, lines(ax), strict=True):
        np.testing.assert_allclose(line.get_ydata(), hs.soft_mask(line.get_xdata(), span, 16), atol=1e-12)
        assert {span, span + 16} <= set(line.get_xdata())


def test_a_fit_is_drawn_as_what_was_measured_and_what_is_held_out():
    fit = fitted(tolerance=0.01)
    ax = hs.plot.span_fit(fit)
    for label, curve in (("fitted", fit.curve), ("one span for all heads", fit.uniform_curve)):
        (line,) = lines(ax, label)
        np.testing.assert_allclose(line.get_xdata(), [100 * point.pairs / fit.full_pairs for point in curve])
        np.testing.assert_allclose(line.get_ydata(), [100 * (point.loss / 2 - 1) for point in curve])
    chosen, uniform = (line for line in lines(ax) if line.get_markersize() == 10)
    np.testing.assert_allclose(chosen.get_xydata(), [[100 * fit.share, 100 * fit.excess]])
    np.testing.assert_allclose(
        uniform.get_xydata(), [[100 * fit.uniform.pairs / fit.full_pairs, 100 * fit.uniform_excess]]
    )
    assert f"{fit.share:.1%} of the pairs" in ax.get_title()


def test_hard_window_is_a_step():
    (line, *_) = lines(hs.plot.soft_mask(8, ramp=0))
    assert line.get_xydata()[:3].tolist() == [[0, 1], [8, 1], [8, 0]]


def test_spans_are_where_they_are():
    ax = hs.plot.spans(LARGE, max_span=2048)
    dots = [line.get_ydata() for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_array_equal(dots, LARGE)
    means = [line.get_ydata()[0] for line in lines(ax, "mean")]
    np.testing.assert_allclose(means, LARGE.mean(axis=1))
    assert lines(ax, "limit")[0].get_ydata()[0] == 2048
    low, high = ax.get_ylim()
    assert low <= 0
    assert high > 2048


def test_layers_and_heads_are_counted_from_0_as_indices_are():
    spans = np.arange(1.0, 7).reshape(2, 3)
    ax = hs.plot.spans(spans)
    assert ax.get_xticks().tolist() == [0, 1]
    places = [[round(x) for x in line.get_xdata()] for line in ax.lines if line.get_marker() == "o"]
    assert places == [[0] * 3, [1] * 3]
    for ax, names in (
        (hs.plot.span_history([0, 1], [spans, spans]), ["layer 0", "layer 1"]),
        (hs.plot.span_history([0, 1], [spans[0], spans[0]]), ["head 0", "head 1", "head 2"]),
        (hs.plot.soft_mask(spans[0]), ["head 0", "head 1", "head 2"]),
    ):
        assert [text.get_text() for text in ax.get_legend().get_texts()] == names
    bar = hs.plot.soft_mask(np.arange(8.0)).figure.axes[-1]  # a colour bar for many heads
    assert bar.get_ylim() == (-0.5, 7.5)
    assert {0, 6} <= set(bar.get_yticks())


@pytest.mark.parametrize("draws", [hs.plot.spans, lambda span, **o: hs.plot.span_history([0, 1], [span] * 2, **o)])
def test_spans_above_the_limit_have_ticks_to_be_read_by(draws):
    ax = draws([[3, 40, 900], [70, 1000, 5000]], max_span=64)
    assert ax.get_yticks().tolist() == [0, 4, 16, 64, 256, 1024, 4096]
    assert ax.get_ylim()[1] > 5000
    assert draws([[3, 40]], max_span=70).get_yticks().tolist() == [0, 4, 16, 70]  # 64 would touch it
    draw(ax)


def test_reach_of_a_head_is_drawn_beyond_its_span():
    spans = np.array([[0.0, 9.5], [40.0, 600.0]])
    ax = hs.plot.spans(spans, ramp=32, max_span=512)
    drawn = np.array([lines.get_segments() for lines in ax.collections])[..., 1]
    np.testing.assert_array_equal(drawn, np.stack([spans, spans + 32], axis=-1))
    assert ax.get_ylim()[1] > 632
    assert "reach" in ax.get_xlabel()
    for other in (hs.plot.spans(spans), hs.plot.spans(spans, ramp=0)):  # not known, and none beyond the span
        assert len(other.collections) == 0
        assert "reach" not in other.get_xlabel()
    for ax in (hs.plot.span_history([0, 1], spans, ramp=2.5), hs.plot.dynamic_spans(spans, ramp=2.5)):
        assert ax.get_ylabel() == "span (tokens; reach: 2.5 more)"
    draw(hs.plot.spans(LARGE, ramp=32, max_span=2048))


def test_history_is_a_line_a_head():
    steps, spans = np.array([0, 10, 20]), normals(3, 2, 4) ** 2
    drawn = lines(hs.plot.span_history(steps, spans))
    np.testing.assert_array_equal([line.get_ydata() for line in drawn], spans.reshape(3, 8).T)
    assert all(np.array_equal(line.get_xdata(), steps) for line in drawn)
    assert [line.get_color() for line in drawn[:4]] == [drawn[0].get_color()] * 4
    assert drawn[4].get_color() != drawn[0].get_color()


def test_dynamic_spans_and_their_tokens():
    spans = normals(2, 3) ** 2
    ax = hs.plot.dynamic_spans(spans, tokens=["$x$", " ", "a\nb"])
    np.testing.assert_array_equal([line.get_ydata() for line in ax.lines], spans)
    draw(ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["$x$", "\u2423", "a\u21b5b"]
    assert not any(label.get_parse_math() for label in ax.get_xticklabels())


@pytest.mark.parametrize("causal", [True, False])
def test_mean_by_distance(causal):
    weights = normals(2, 3, 5) ** 2
    distance = np.arange(2, 5)[:, None] - np.arange(5)
    allowed = distance >= 0 if causal else np.ones_like(distance, bool)
    means = hs.plot.mean_by_distance(weights, causal=causal)
    for x in range(5):
        pairs = weights[:, allowed & (np.abs(distance) == x)]
        np.testing.assert_allclose(means[:, x], pairs.mean(axis=1) if pairs.size else np.nan)


def test_profile_is_the_mean_weight_and_marks_the_span():
    q, k = normals(2, 3, 200, 8)
    span = np.array([4.0, 20.0, 60.5])
    weights = hs.attention_weights(q, k, span=span, ramp=8, rows=slice(-50, None))
    ax = hs.plot.distance_profile(weights, span=span)
    curves, marks = ax.lines[::2], ax.lines[1::2]
    expected = hs.plot.mean_by_distance(weights)
    for curve, mark, line, z in zip(curves, marks, expected, span, strict=True):
        np.testing.assert_array_equal(curve.get_ydata(), np.where(line > 0, line, np.nan))
        assert mark.get_xdata()[0] == z
        assert np.isnan(curve.get_ydata()[int(z) + 9 :]).all()


def test_map_shows_the_weights_and_leaves_masked_pairs_empty():
    q, k = normals(2, 40, 8)
    weights = hs.attention_weights(q, k, span=9, ramp=4)
    image = hs.plot.attention_map(weights, span=9, ramp=4).images[0]
    shown = image.get_array()
    np.testing.assert_array_equal(shown.filled(0), weights)
    np.testing.assert_array_equal(shown.mask, weights == 0)
    assert image.get_extent() == [-0.5, 39.5, 39.5, -0.5]


@pytest.mark.parametrize("ramp", [4, 2.5, 0])
@pytest.mark.parametrize("causal", [True, False])
def test_band_lies_between_the_last_pair_within_and_the_first_beyond(causal, ramp):
    span = np.arange(30.0) / 2
    ax = hs.plot.attention_map(np.ones((30, 50)), span=span, ramp=ramp, causal=causal)
    position, distance = 20 + np.arange(30), np.arange(90)
    masks = hs.soft_mask(distance, span[:, None], ramp)
    for label, within in (("span", masks == 1), ("span + ramp", masks > 0)):
        edges = lines(ax, label)
        assert len(edges) == (0 if ramp == 0 and label != "span" else 1 if causal else 2)
        last = within.sum(axis=1) - 1
        for edge, side in zip(edges, (-1, 1), strict=False):
            np.testing.assert_array_equal(edge.get_xdata(), np.repeat(position + side * (last + 0.5), 2))
            np.testing.assert_array_equal(edge.get_ydata(), np.arange(30).repeat(2) + np.tile([-0.5, 0.5], 30))


def test_band_is_left_out_if_it_would_cover_all_pairs():
    weights = np.eye(300)
    assert lines(hs.plot.attention_map(weights, span=0, ramp=0)) == []
    assert [line.get_label() for line in lines(hs.plot.attention_map(weights, span=0, ramp=32))] == ["span + ramp"]
    assert len(lines(hs.plot.attention_map(np.eye(30), span=0, ramp=0))) == 1
    (line,) = lines(hs.plot.attention_map(np.tri(300), span=20, ramp=0))
    assert line.get_linewidth() < 1


@pytest.mark.parametrize("tokens", [1000, 1001])  # whole blocks, and a last one of fewer
def test_large_map_is_pooled_as_attention_weights_pools(tokens):
    q, k = normals(2, tokens, 8)
    weights = hs.attention_weights(q, k, span=90)
    image = hs.plot.attention_map(weights).images[0]
    np.testing.assert_allclose(image.get_array().filled(0), hs.attention_weights(q, k, span=90, pool=4), atol=1e-12)
    end = -(-tokens // 4) * 4 - 0.5
    assert image.get_extent() == [-0.5, end, end, -0.5]


@pytest.mark.parametrize(
    ("flops", "text"), [(999.4, "999 FLOP"), (999.7, "1 kFLOP"), (5380, "5.38 kFLOP"), (3e15, "3 PFLOP")]
)
def test_flops_in_words(flops, text):
    assert _pattern._scaled(flops) == text


def test_the_mark_of_a_span_is_on_the_curve():
    _, mark = hs.plot.distance_profile([[0.1, 0.3, 0.6]], span=0.5).lines[:2]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (0.5, pytest.approx(0.45))


def test_offset_moves_the_band():
    moved, still = (hs.plot.attention_map(np.ones((10, 50)), span=5, ramp=4, offset=n) for n in (13, 12))
    difference = lines(moved, "span")[0].get_xdata() - lines(still, "span")[0].get_xdata()
    np.testing.assert_array_equal(difference, np.ones(len(difference)))


def test_pooled_map_has_its_axes_in_tokens():
    q, k = normals(2, 1000, 8)
    ax = hs.plot.attention_map(hs.attention_weights(q, k, pool=50), pool=50, span=10)
    assert ax.images[0].get_extent() == [-0.5, 999.5, 999.5, -0.5]
    assert lines(ax, "span")[0].get_xdata()[-1] == 988.5


def test_tokens_stand_on_both_axes_up_to_64():
    texts = [f"t{i}" for i in range(64)]
    ax = hs.plot.attention_map(np.eye(64)[-3:], tokens=texts)
    assert [label.get_text() for label in ax.get_xticklabels()] == texts
    assert [label.get_text() for label in ax.get_yticklabels()] == texts[-3:]
    ax = hs.plot.attention_map(np.eye(65), tokens=[*texts, "x"])
    draw(ax)
    assert "t0" not in [label.get_text() for label in ax.get_xticklabels()]


@pytest.mark.parametrize("causal", [True, False])
def test_global_tokens_are_framed(causal):
    pattern = Window(4) | Global([4, 1, 5])
    ax = hs.plot.attention_map(np.eye(8)[2:], pattern=pattern, causal=causal)  # its queries are tokens 2 to 7
    boxes = [(*line.get_xdata()[[0, 2]], *line.get_ydata()[[0, 1]]) for line in lines(ax, "global")]
    assert boxes == [
        (0.5, 1.5, -0.5, 5.5),
        (3.5, 5.5, 1.5 if causal else -0.5, 5.5),
        (-0.5, 5.5 if causal else 7.5, 1.5, 3.5),
    ]
    assert lines(hs.plot.attention_map(np.eye(8), pattern=Window(4)), "global") == []


def test_sweep_has_a_panel_a_number_and_a_line_a_name():
    columns = {"limit": [64, 256], "bits": [1.2, 1.1], "flops": [1e6, 2e6]}
    figure = hs.plot.limit_sweep({"learned": columns, "fixed": columns})
    assert [ax.get_ylabel() for ax in figure.axes] == ["bits per character", "FLOPs per token"]
    for ax, column in zip(figure.axes, ("bits", "flops"), strict=True):
        for line in ax.lines:
            np.testing.assert_array_equal(line.get_xydata().T, [columns["limit"], columns[column]])


def test_matplotlib_is_imported_when_used():
    assert run_python("import sys, headspan; print('matplotlib' in sys.modules)").strip() == "False"


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[plot\]'"):
        hs.plot.spans([1])
