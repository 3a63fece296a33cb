"""The saved view in a real Chromium: the numbers behind the picture are Python's."""

import headspan as hs
import numpy as np
import pytest
from cases import normals
from headspan.patterns import Global, Window
from screen.browser import check_drawn, drawn, place_of, readout, set_slider, state
from screen.views import float32_normals, small_view

import benchmarks.measure.view

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
pytestmark = [pytest.mark.browser, pytest.mark.unsanitized]


CASES = {
    "plain": ((3, 50, 8), (3, 50, 8), {"span": [1.5, 20, 50], "ramp": 7}),
    "no limit": ((2, 33, 16), (2, 33, 16), {}),
    "hard window": ((2, 40, 8), (2, 40, 8), {"span": [0, 9], "ramp": 0}),
    "shared keys": ((4, 30, 8), (2, 30, 8), {"span": 5.25, "ramp": 2.5}),
    "more keys": ((2, 20, 8), (2, 45, 8), {"span": [3, 30], "ramp": 4}),
    "more queries": ((2, 20, 8), (2, 12, 8), {"span": [3, 30], "ramp": 4, "causal": True}),
    "one token": ((1, 1, 4), (1, 1, 4), {"span": 0, "ramp": 1}),
    "256 tokens": ((2, 256, 64), (2, 256, 64), {"span": [10, 100], "ramp": 32}),
    "512 tokens": ((1, 512, 64), (1, 512, 64), {"span": 300.5}),
}


@pytest.mark.parametrize("factor", [1, 6], ids=["usual scores", "large scores"])
@pytest.mark.parametrize("name", CASES)
def test_values_drawn_are_those_of_python(opened, name, factor):
    q_shape, k_shape, options = CASES[name]
    q, k = factor * float32_normals(*q_shape), float32_normals(*k_shape, seed=1)
    page = opened(hs.explore(q, k, **options))
    expected = hs.attention_weights(q, k, **options)
    for head in range(q_shape[0]):
        page.locator(".heads label").nth(head).click()
        assert drawn(page)[0] == head
        check_drawn(page, expected[head])


def test_float64_arrays_are_shown_too(opened):
    q, k = normals(0, 2, 2, 30, 8)
    check_drawn(opened(hs.explore(q, k, span=9)), hs.attention_weights(q, k, span=9)[0])


def test_heads_chosen_keep_their_numbers(opened):
    q, k = float32_normals(2, 4, 30, 8)
    page = opened(hs.explore(q, k, span=[1, 2, 3, 4], heads=[3, 1]))
    assert page.locator(".heads span").all_text_contents() == ["head 3", "head 1"]
    check_drawn(page, hs.attention_weights(q, k, span=[1, 2, 3, 4])[3])


def test_sliders_recompute_what_python_computes(opened):
    q, k = float32_normals(2, 3, 40, 8)
    page = opened(hs.explore(q, k, span=[2, 4, 8], ramp=3))
    page.locator(".heads label").nth(1).click()
    options = {"span": [2, 4, 8], "ramp": 3.0, "temperature": 1.0}
    for name, place, value in (
        ("span", 17, [2, 17, 8]),
        ("ramp", 9, 9.0),
        ("temperature", -0.5, 10**-0.5),
        ("temperature", 0.8, 10**0.8),
        ("ramp", 0, 0.0),
        ("span", 40, [2, 40, 8]),
        ("span", 0, [2, 0, 8]),
    ):
        set_slider(page, name, place)
        options[name] = value
        check_drawn(page, hs.attention_weights(q, k, **options)[1])
    assert page.locator(".heads small:not(.peak)").all_text_contents() == [
        "span 2\nreach\u00a02",  # with a ramp of 0
        "span 0\nreach\u00a00",
        "span 8\nreach\u00a08",
    ]
    page.get_by_role("button", name="Reset").click()
    check_drawn(page, hs.attention_weights(q, k, span=[2, 4, 8], ramp=3)[1])


@pytest.mark.parametrize("pattern", [None, Window(101) | Global([0])], ids=["spans", "a pattern"])
def test_the_picture_follows_a_slider_within_a_frame(opened, pattern):
    """The quickest moves: others may have met another process. `python -m benchmarks.measure.view` tells the median."""
    page = opened(benchmarks.measure.view.example(256, 8, 64, pattern=pattern), width=1200)
    for took in benchmarks.measure.view.measure(page, rounds=20).values():
        assert min(took) < 16


def drawn_over(page, pairs):
    """Whether anything lies over the map, and how much over the middle of pairs."""
    return page.evaluate(
        """(pairs) => {
          const { layout, rows, cols } = document.querySelector(".headspan-view").drawn;
          const canvas = document.querySelectorAll(".map canvas")[1];
          const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const over = pairs.map(([row, col]) => {
            const x = Math.floor(layout.left + (col + 0.5) * layout.width / cols);
            const y = Math.floor(layout.top + (row + 0.5) * layout.height / rows);
            return data[4 * (y * width + x) + 3];
          });
          return [data.some((channel) => channel > 0), over];
        }""",
        pairs,
    )


@pytest.mark.parametrize("options", [{"span": 0, "ramp": 0}, {"span": 4, "ramp": 0}, {"span": 4, "ramp": 3}])
@pytest.mark.parametrize("length", [12, 60, 300])
def test_lines_cover_no_pair_within_the_span(opened, length, options):
    q, k = float32_normals(2, 1, length, 8)
    distance = np.subtract.outer(np.arange(length), np.arange(length))
    within = np.argwhere((distance >= 0) & (distance <= options["span"])).tolist()
    anything, over = drawn_over(opened(hs.explore(q, k, **options)), within)
    assert max(over) == 0
    assert anything == (length < 300 or options["span"] > 0)  # the line would cover such a thin band


def test_colours_are_the_weights_on_a_logarithmic_scale(opened):
    matplotlib = pytest.importorskip("matplotlib")
    page = opened(small_view())
    q, k = float32_normals(2, 3, 10, 8)
    weights = hs.attention_weights(q, k, span=[2, 4, 8], ramp=3)[0]
    pairs = [(0, 0), (5, 5), (5, 3), (9, 6)]
    pixels = page.evaluate(
        """(pairs) => {
          const { left, top, width, height } = document.querySelector(".headspan-view").drawn.layout;
          const image = document.querySelector(".map canvas").getContext("2d").getImageData(left, top, width, height);
          return pairs.map(([row, col]) => {
            const [x, y] = [Math.floor((col + 0.5) * width / 10), Math.floor((row + 0.5) * height / 10)];
            return [...image.data.slice(4 * (y * image.width + x), 4 * (y * image.width + x) + 4)];
          });
        }""",
        pairs,
    )
    shades = np.clip(1 + np.log10([weights[pair] for pair in pairs]) / 3, 0, 1)
    np.testing.assert_allclose(pixels, matplotlib.colormaps["viridis"](shades, bytes=True), atol=8)


@pytest.mark.parametrize("span", [None, [2.5, 4, 8]])
def test_bill_is_that_of_cost(opened, span):
    q, k, v = float32_normals(3, 3, 10, 8)
    page = opened(hs.explore(q, k, value=v, span=span, ramp=3))
    sizes = {"tokens": 10, "num_heads": 3, "head_dim": 8}
    cost, full = hs.cost(**sizes, span=span, ramp=3), hs.cost(**sizes)
    cells = page.locator("table tbody td").all_text_contents()
    share = 100 * cost.head_pairs[0] / full.head_pairs[0]
    assert cells[:4] == [
        str(cost.head_pairs[0]),
        f"{share:.0f}\u00a0%",
        str(cost.pairs),
        f"{100 * cost.pairs / full.pairs:.0f}\u00a0%",
    ]
    flops = [float(text.split("\u00a0")[0]) for text in (cells[4], cells[6])]
    np.testing.assert_allclose(flops, [4 * 8 * cost.head_pairs[0] / 1e3, cost.forward_flops / 1e3], rtol=5e-3)
    one = {"tokens": 10, "num_heads": 1, "head_dim": 8, "span": None if span is None else span[0]}
    kept = hs.cost(**one, ramp=3, decode=True).read_bytes
    assert kept == (10 if span is None else 6) * 2 * 8 * 4  # distances 0 .. 5 have a mask above 0
    assert cells[8] == f"{kept}\u00a0B" or cells[8] == f"{kept / 1024:.2f}\u00a0KiB"


def test_pooled_maps_are_shown_as_they_are(opened):
    q, k = float32_normals(2, 2, 1000, 8)
    page = opened(hs.explore(q, k, span=[100, 400]))
    check_drawn(page, hs.attention_weights(q, k, span=[100, 400], pool=8)[0])
    page.locator(".heads label").nth(1).click()
    check_drawn(page, hs.attention_weights(q, k, span=[100, 400], pool=8)[1])
    assert page.locator("input[type=range]:disabled").count() == 3
    assert "need Python" in page.locator(".left > .note").text_content()
    page.mouse.move(*place_of(page, 50, 45, 125, 125))
    assert page.locator(".pair").text_content() == "queries 400\u2013407 \u2192 keys 360\u2013367, mean of the queries"
    assert readout(page).keys() == {"distance", "weight"}


def test_few_queries_of_many_keys_keep_their_rows(opened):
    q, k = float32_normals(2, 2, 1000, 8)
    page = opened(hs.explore(q[:, -3:], k, span=[100, 400]))
    check_drawn(page, hs.attention_weights(q[:, -3:], k, span=[100, 400], pool=(1, 8))[0])
    page.mouse.click(*place_of(page, 1, 110, 3, 125))
    assert page.locator(".pair").text_content() == "queries 1 \u2192 keys 880\u2013887, mean of the queries"
    assert readout(page)["distance"] == "\u2248 118"


def test_the_state_is_saved_with_the_page(opened):
    view = small_view()
    view.head, view.ramp, view.temperature, view.selected, view.span = 2, 1, 2.0, 4, [1, 2, 6.5]
    page = opened(view)
    q, k = float32_normals(2, 3, 10, 8)
    check_drawn(page, hs.attention_weights(q, k, span=[1, 2, 6.5], ramp=1, temperature=2)[2])
    assert page.locator(".pair").text_content() == "Pinned: jumps query\u00a04"
    assert (state(page, "span"), state(page, "ramp"), state(page, "temperature")) == (
        "6.5 tokens, reach\u00a07",
        "1 token",
        "2",
    )


def test_numbers_that_are_not_finite_draw_something(opened):
    q, k = float32_normals(2, 1, 10, 8)
    k[0, 2] = np.nan
    _, weights = drawn(opened(hs.explore(q, k, span=1, ramp=1)))
    assert weights[0].tolist()[:2] == [1, 0]
