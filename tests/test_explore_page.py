"""The saved view in a real Chromium: the numbers behind the picture are Python's, and hands can reach everything."""

import headspan as hs
import numpy as np
import pytest
from browser import TEXTS, check_drawn, drawn, overlapping, place_of, readout, set_slider, spilling
from headspan.patterns import Global, Local

import benchmarks.view

pytest.importorskip("anywidget", reason="needs anywidget: pip install 'headspan[widget]'")
pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", HOSTILE, " ", "\n", "dog"]


def normals(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def small_view(**options):
    q, k = normals(2, 3, 10, 8)
    return hs.explore(q, k, **{"span": [2, 4, 8], "ramp": 3, "tokens": WORDS, **options})


def state(page, name):
    """What a control says."""
    return page.locator(f"input[data-name={name}]").get_attribute("aria-valuetext")


CASES = {
    "plain": ((3, 50, 8), (3, 50, 8), {"span": [1.5, 20, 50], "ramp": 7}),
    "no limit": ((2, 33, 16), (2, 33, 16), {}),
    "hard window": ((2, 40, 8), (2, 40, 8), {"span": [0, 9], "ramp": 0}),
    "shared keys": ((4, 30, 8), (2, 30, 8), {"span": 5.25, "ramp": 2.5}),
    "more keys": ((2, 20, 8), (2, 45, 8), {"span": [3, 30], "ramp": 4}),
    "more queries": ((2, 20, 8), (2, 12, 8), {"span": [3, 30], "ramp": 4}),
    "one token": ((1, 1, 4), (1, 1, 4), {"span": 0, "ramp": 1}),
    "256 tokens": ((2, 256, 64), (2, 256, 64), {"span": [10, 100], "ramp": 32}),
    "512 tokens": ((1, 512, 64), (1, 512, 64), {"span": 300.5}),
}


@pytest.mark.parametrize("factor", [1, 6], ids=["usual scores", "large scores"])
@pytest.mark.parametrize("name", CASES)
def test_values_drawn_are_those_of_python(opened, name, factor):
    q_shape, k_shape, options = CASES[name]
    q, k = factor * normals(*q_shape), normals(*k_shape, seed=1)
    page = opened(hs.explore(q, k, **options))
    expected = hs.attention_weights(q, k, **options)
    for head in range(q_shape[0]):
        page.locator(".heads label").nth(head).click()
        assert drawn(page)[0] == head
        check_drawn(page, expected[head])


def test_float64_arrays_are_shown_too(opened):
    q, k = normals(2, 2, 30, 8, dtype=np.float64)
    check_drawn(opened(hs.explore(q, k, span=9)), hs.attention_weights(q, k, span=9)[0])


def test_heads_chosen_keep_their_numbers(opened):
    q, k = normals(2, 4, 30, 8)
    page = opened(hs.explore(q, k, span=[1, 2, 3, 4], heads=[3, 1]))
    assert page.locator(".heads span").all_text_contents() == ["head 4", "head 2"]
    check_drawn(page, hs.attention_weights(q, k, span=[1, 2, 3, 4])[3])


def test_sliders_recompute_what_python_computes(opened):
    q, k = normals(2, 3, 40, 8)
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
    assert page.locator(".heads small:not(.peak)").all_text_contents() == ["span 2", "span 0", "span 8"]
    page.get_by_role("button", name="Reset").click()
    check_drawn(page, hs.attention_weights(q, k, span=[2, 4, 8], ramp=3)[1])


@pytest.mark.parametrize("pattern", [None, Local(100) | Global([0])], ids=["spans", "a pattern"])
def test_the_picture_follows_a_slider_within_a_frame(opened, pattern):
    """The quickest moves: others may have met another process. `python -m benchmarks.view` tells the median."""
    page = opened(benchmarks.view.example(256, 8, 64, pattern=pattern), width=1200)
    for took in benchmarks.view.measure(page, rounds=20).values():
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
    q, k = normals(2, 1, length, 8)
    distance = np.subtract.outer(np.arange(length), np.arange(length))
    within = np.argwhere((distance >= 0) & (distance <= options["span"])).tolist()
    anything, over = drawn_over(opened(hs.explore(q, k, **options)), within)
    assert max(over) == 0
    assert anything == (length < 300 or options["span"] > 0)  # beside so thin a band the line would be all one sees


def test_colours_are_the_weights_on_a_logarithmic_scale(opened):
    matplotlib = pytest.importorskip("matplotlib")
    page = opened(small_view())
    q, k = normals(2, 3, 10, 8)
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
    q, k, v = normals(3, 3, 10, 8)
    page = opened(hs.explore(q, k, value=v, span=span, ramp=3))
    sizes = {"tokens": 10, "heads": 3, "head_dim": 8}
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
    kept = 10 if span is None else 6  # distances 0 .. 5 have a mask above 0
    assert cells[8] == f"{kept * 2 * 8 * 4}\u00a0B" or cells[8] == f"{kept * 2 * 8 * 4 / 1024:.2f}\u00a0KiB"


def test_pointing_reads_out_the_pair(opened):
    q, k, v = normals(3, 3, 10, 8)
    page = opened(small_view(value=v))
    page.mouse.move(*place_of(page, 7, 4))
    weight = hs.attention_weights(q, k, span=[2, 4, 8], ramp=3)[0, 7, 4]
    shown = {name: text.replace("\u2212", "-") for name, text in readout(page).items()}
    assert shown.pop("distance") == "3"
    expected = {
        "score": q[0, 7] @ k[0, 4] / 8**0.5,
        "mask": hs.soft_mask(3, 2, 3),
        "weight": weight,
        "weight \u00d7 |value|": weight * np.linalg.norm(v[0, 4]),
    }
    assert shown.keys() == expected.keys()
    for name, value in expected.items():
        assert float(shown[name]) == pytest.approx(float(value), rel=6e-3), name
    assert page.locator(".pair").text_content() == "\u2423 query\u00a07 \u2192 jumps key\u00a04"
    page.mouse.move(*place_of(page, 2, 8))
    assert "later, not computed" in page.locator(".pair").text_content()
    assert readout(page)["distance"] == "\u22126"
    page.mouse.move(2, 2)
    assert set(readout(page).values()) == {"\u2013"}


def test_a_tap_leaves_its_pair_readable(opened):
    q, k = normals(2, 3, 10, 8)
    page = opened(small_view(), width=390, has_touch=True)
    page.touchscreen.tap(*place_of(page, 7, 4))
    assert readout(page)["distance"] == "3"
    weight = hs.attention_weights(q, k, span=[2, 4, 8], ramp=3)[0, 7, 4]
    assert float(readout(page)["weight"]) == pytest.approx(float(weight), rel=6e-3)
    page.get_by_role("button", name="Unpin").tap()
    assert set(readout(page).values()) == {"\u2013"}


@pytest.mark.parametrize("unit", ["tokens", "characters"])
def test_the_view_speaks_of_its_unit(opened, unit):
    page = opened(small_view(unit=unit, ramp=1, span=[1, 4, 10]))
    assert (state(page, "span"), state(page, "ramp")) == (f"1 {unit[:-1]}", f"1 {unit[:-1]}")
    assert page.locator(".subtitle").text_content() == f"3\u00a0heads, 10\u00a0{unit}"
    assert f"distance in {unit}" in page.locator(".curve").text_content()
    assert f"generating the next {unit[:-1]} has to keep" in page.locator(".meanings").text_content()
    assert f"1 up to 1 {unit[:-1]}, 0 from 2 {unit} on" in page.get_by_role("img").get_attribute("aria-label")
    assert ("token" in page.locator(".headspan-view").inner_text()) == (unit == "tokens")


def test_without_a_span_there_is_no_limit(opened):
    page = opened(small_view(span=None))
    assert state(page, "span") == "no limit"
    assert page.locator(".heads small:not(.peak)").all_text_contents() == ["no limit"] * 3
    set_slider(page, "span", 9)
    assert state(page, "span") == "9 tokens"
    assert page.locator(".heads small:not(.peak)").all_text_contents() == ["span 9", "no limit", "no limit"]


def test_a_click_pins_a_query_and_lights_its_text(opened):
    page = opened(small_view())
    unpin = page.get_by_role("button", name="Unpin")
    assert not unpin.is_visible()
    page.mouse.click(*place_of(page, 5, 2))
    page.mouse.move(2, 2)
    assert "Pinned: jumps query" not in page.locator(".pair").text_content()
    assert page.locator(".pair").text_content() == "Pinned: over query\u00a05"
    classes = page.locator(".text span").evaluate_all("spans => spans.map((span) => span.className)")
    assert classes == ["", "edge", "edge", "inside", "inside", "query", "", "", "", ""]
    unpin.click()
    assert set(page.locator(".text span").evaluate_all("spans => spans.map((span) => span.className)")) == {""}
    page.locator(".text span").nth(3).click()
    page.mouse.move(2, 2)
    assert page.locator(".pair").text_content() == "Pinned: fox query\u00a03"


def test_keyboard_reaches_every_control(opened):
    page = opened(small_view())
    page.mouse.click(*place_of(page, 5, 2))
    page.mouse.move(2, 2)
    page.locator("h2").click()  # the next Tab goes on from here
    reached = []
    for _ in range(7):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "() => { const e = document.activeElement; return e.dataset.name ?? e.type ?? e.getAttribute('role'); }"
            )
        )
    # Firefox and Chromium stop once at a group of radio buttons; arrows move inside.
    assert reached == ["button", "application", "button", "span", "ramp", "temperature", "radio"]
    page.keyboard.press("ArrowRight")
    assert drawn(page)[0] == 1
    span = page.locator("input[data-name=span]")
    span.focus()
    page.keyboard.press("ArrowRight")
    assert state(page, "span") == "5 tokens"
    q, k = normals(2, 3, 10, 8)
    check_drawn(page, hs.attention_weights(q, k, span=[2, 5, 8], ramp=3)[1])


def test_the_map_can_be_walked_over_with_the_keyboard(opened):
    page = opened(small_view())
    page.locator("[role=application]").focus()
    page.keyboard.press("ArrowLeft")  # the first step lands on the last query and its own key
    assert "query\u00a09 \u2192 dog key\u00a09" in page.locator(".pair").text_content()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    assert "query\u00a08 \u2192 \u2423 key\u00a07" in page.locator(".pair").text_content()
    page.keyboard.press("Enter")
    assert page.get_by_role("button", name="Unpin").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("button", name="Unpin").is_visible()


def test_controls_have_roles_and_names(opened):
    page = opened(small_view())
    for name in ("Span of this head", "Ramp", "Temperature"):
        assert page.get_by_role("slider", name=name).count() == 1
    assert page.get_by_role("radio", name="head 2 span 4").count() == 1
    assert page.get_by_role("group", name="Heads").count() == 1
    assert page.get_by_role("application", name="Attention map of head 1").count() == 1
    assert "1 up to 2 tokens, 0 from 5" in page.get_by_role("img").get_attribute("aria-label")
    assert page.get_by_role("status").get_attribute("aria-live") == "polite"


def luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_light_and_dark(opened, scheme):
    page = opened(small_view(), color_scheme=scheme)
    assert page.locator(".headspan-view.dark").count() == (scheme == "dark")
    colours = page.evaluate(
        """() => {
          const style = getComputedStyle(document.querySelector(".headspan-view"));
          const hex = (name) => style.getPropertyValue(name).trim();
          return ["--ink", "--quiet", "--accent", "--panel"].map(hex);
        }"""
    )
    page_colour = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    rgb = [[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours]
    for paper in (rgb.pop(), [c / 255 for c in page_colour]):
        for ink in rgb:
            low, high = sorted([luminance(ink), luminance(paper)])
            assert (high + 0.05) / (low + 0.05) >= 4.5


def test_theme_is_followed_while_the_page_is_open(opened):
    page = opened(small_view(), color_scheme="light")
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector(".headspan-view.dark")
    page.emulate_media(color_scheme="light")
    page.wait_for_selector(".headspan-view:not(.dark)")


@pytest.mark.parametrize("width", [360, 768, 1600])
@pytest.mark.parametrize("length", [10, 300])
def test_nothing_is_cut_off_or_overlaps(opened, width, length):
    q, k = normals(2, 16, length, 8)
    tokens = (WORDS * length)[:length]
    page = opened(hs.explore(q, k, value=k, span=1234.5, tokens=tokens), width=width)
    before = page.evaluate("document.documentElement.scrollHeight")
    page.mouse.click(*place_of(page, length - 2, 1, length, length))
    assert page.evaluate("document.documentElement.scrollHeight") == before  # nothing jumps
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert spilling(page) == []
    assert overlapping(page, TEXTS) == []


def test_markup_in_a_token_stays_text(opened):
    page = opened(small_view())
    assert page.locator(".text span").nth(6).text_content() == HOSTILE
    page.mouse.click(*place_of(page, 6, 6))
    assert HOSTILE in page.locator(".pair").text_content()
    assert page.locator(".headspan-view script, .headspan-view img").count() == 0
    assert page.locator("script").count() == 2  # the data and the module


def test_pooled_maps_are_shown_as_they_are(opened):
    q, k = normals(2, 2, 1000, 8)
    page = opened(hs.explore(q, k, span=[100, 400]))
    check_drawn(page, hs.attention_weights(q, k, span=[100, 400], pool=8)[0])
    page.locator(".heads label").nth(1).click()
    check_drawn(page, hs.attention_weights(q, k, span=[100, 400], pool=8)[1])
    assert page.locator("input[type=range]:disabled").count() == 3
    assert "need Python" in page.locator(".note").text_content()
    page.mouse.move(*place_of(page, 50, 45, 125, 125))
    assert page.locator(".pair").text_content() == "queries 400\u2013407 \u2192 keys 360\u2013367, mean of the queries"
    assert readout(page).keys() == {"distance", "weight"}


def test_few_queries_of_many_keys_keep_their_rows(opened):
    q, k = normals(2, 2, 1000, 8)
    page = opened(hs.explore(q[:, -3:], k, span=[100, 400]))
    check_drawn(page, hs.attention_weights(q[:, -3:], k, span=[100, 400], pool=(1, 8))[0])
    page.mouse.click(*place_of(page, 1, 110, 3, 125))
    assert page.locator(".pair").text_content() == "queries 1\u20131 \u2192 keys 880\u2013887, mean of the queries"
    assert readout(page)["distance"] == "\u2248 118"


def test_the_state_is_saved_with_the_page(opened):
    view = small_view()
    view.head, view.ramp, view.temperature, view.selected, view.span = 2, 1, 2.0, 4, [1, 2, 6.5]
    page = opened(view)
    q, k = normals(2, 3, 10, 8)
    check_drawn(page, hs.attention_weights(q, k, span=[1, 2, 6.5], ramp=1, temperature=2)[2])
    assert page.locator(".pair").text_content() == "Pinned: jumps query\u00a04"
    assert (state(page, "span"), state(page, "ramp"), state(page, "temperature")) == ("6.5 tokens", "1 token", "2")


def test_numbers_that_are_not_finite_draw_something(opened):
    q, k = normals(2, 1, 10, 8)
    k[0, 2] = np.nan
    _, weights = drawn(opened(hs.explore(q, k, span=1, ramp=1)))
    assert weights[0].tolist()[:2] == [1, 0]


def test_every_head_shows_where_it_looks_from_a_query(opened):
    page = opened(small_view(span=[0, 4, 8], ramp=1))
    page.locator(".text span").nth(5).click()
    q, k = normals(2, 3, 10, 8)
    weights = hs.attention_weights(q, k, span=[0, 4, 8], ramp=1)[:, 5]
    shown = page.locator(".peak").all_text_contents()
    for head, text in enumerate(shown):
        most = int(weights[head].argmax())
        assert text == ("at itself" if most == 5 else f"at {WORDS[most]}, {5 - most} back")
    strips = page.locator(".strip").evaluate_all(
        """(strips) => strips.map((strip) => {
             const { data } = strip.getContext("2d").getImageData(0, 0, strip.width, 1);
             return [...data].filter((_, i) => i % 4 === 3);
           })"""
    )
    np.testing.assert_array_equal(np.array(strips) > 0, weights > 0)
    assert page.locator(".strip").first.is_visible()
    page.get_by_role("button", name="Unpin").click()
    page.mouse.move(2, 2)
    assert not page.locator(".strip").first.is_visible()
