"""Who sees whom in the view: later keys, documents, padding and importance, as Python has them."""

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Global, Neighborhood, Window
from screen.browser import check_drawn, drawn, overlapping, place_of, readout, set_slider, spilling
from screen.views import float32_normals, small_view

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
pytestmark = [pytest.mark.browser, pytest.mark.unsanitized]

DOCUMENTS = np.repeat([4, 7, 9], [12, 20, 8])
RANGES = np.sort(np.random.default_rng(4).integers(0, 41, (12, 2)), axis=1)
BIAS = np.random.default_rng(3).standard_normal((2, 40))
BIAS[0, 5], BIAS[1, 9:12] = -np.inf, -np.inf

CASES = {
    "both ways": (40, 40, {"causal": False, "span": [3, 20], "ramp": 5}),
    "both ways, without a span": (40, 40, {"causal": False}),
    "both ways, more queries": (20, 12, {"causal": False, "span": [2, 9], "ramp": 3}),
    "both ways, more keys": (12, 30, {"causal": False, "span": [2, 9], "ramp": 0}),
    "both ways, a pattern": (
        40,
        40,
        {"causal": False, "pattern": Window(7, ahead=9) | Global([3, 30]), "span": [2, 20]},
    ),
    "both ways, a grid": (48, 48, {"causal": False, "pattern": Neighborhood((6, 8), 3), "span": [0, 1.5], "ramp": 1}),
    "documents": (40, 40, {"segment_ids": DOCUMENTS, "span": [3, 20], "ramp": 5}),
    "documents, both ways": (40, 40, {"segment_ids": DOCUMENTS, "causal": False, "span": [3, 20], "ramp": 5}),
    "documents, a pattern": (30, 40, {"segment_ids": DOCUMENTS, "pattern": [Window(5), Window(10) | Global([13])]}),
    "ranges": (12, 40, {"key_ranges": RANGES, "causal": False, "span": [3, 20], "ramp": 5}),
    "ranges, a pattern": (12, 40, {"key_ranges": RANGES, "pattern": Window(7) | Global([3]), "span": [3, 20]}),
    "a prefix": (40, 40, {"prefix_lengths": 17, "span": [3, 20], "ramp": 5}),
    "a prefix after padding, a pattern": (
        30,
        40,
        {"prefix_lengths": [9], "key_start": 8, "pattern": Window(6, ahead=5), "causal": True},
    ),
    "clusters": (40, 40, {"segment_ids": np.arange(40) * 7 % 5, "key_stop": 33, "span": [3, 20], "ramp": 5}),
    "padding": (40, 40, {"key_start": 6, "key_stop": [33], "span": [3, 20], "ramp": 5}),
    "importance": (40, 40, {"key_bias": np.linspace(-3, 3, 40), "span": [3, 20], "ramp": 5}),
    "importance of each head": (40, 40, {"key_bias": BIAS, "causal": False, "span": [3, 20], "ramp": 5}),
}


def arrays(queries, keys):
    return float32_normals(2, queries, 8), float32_normals(2, keys, 8, seed=1)


def pairs_of(page):
    return [int(text.replace(",", "")) for text in page.locator("table tbody td").all_text_contents()[:3:2]]


@pytest.mark.parametrize("name", CASES)
def test_values_drawn_and_pairs_are_those_of_python(opened, name):
    queries, keys, options = CASES[name]
    q, k = arrays(queries, keys)
    page = opened(hs.explore(q, k, **options))
    expected = hs.attention_weights(q, k, **options)
    for head in range(2):
        page.locator(".heads label").nth(head).click()
        check_drawn(page, expected[head])
        assert pairs_of(page) == [(expected[head] > 0).sum(), (expected > 0).sum()]
    if "pattern" not in options:
        set_slider(page, "span", 7)
        expected = hs.attention_weights(q, k, **{**options, "span": 7})[1]
        check_drawn(page, expected)
        assert pairs_of(page)[0] == (expected > 0).sum()


@pytest.mark.parametrize("name", CASES)
def test_blocks_and_their_pairs_are_those_of_python(name):
    queries, keys, options = CASES[name]
    q, k = arrays(queries, keys)
    view = hs.explore(q, k, max_tokens=10, **options)
    weights = hs.attention_weights(q, k, **options)
    shown = np.frombuffer(view.maps, "f4").reshape(weights.shape)  # in blocks of one pair, so few they are
    np.testing.assert_allclose(shown, weights, rtol=1e-6)
    limits = {"segment_ids", "key_ranges", "prefix_lengths", "key_start"}
    if options.keys() & {"pattern"} and options.keys() & limits:
        assert view.counts == []  # these are not counted
    elif view.counts:
        assert view.counts == [[(w > 0).sum(), (w[-1] > 0).sum()] for w in weights]
    else:
        assert not options.keys() & {"pattern", *limits}


def test_what_is_not_counted_is_said_so(opened):
    queries, keys, options = CASES["documents, a pattern"]
    page = opened(hs.explore(*arrays(queries, keys), max_tokens=10, **options))
    assert set(page.locator("table tbody td").all_text_contents()) == {"\u2013"}
    assert "not counted" in page.locator(".meanings").text_content()


def test_pointing_says_why_a_pair_is_not_there(opened):
    q, k = arrays(40, 40)
    options = {"segment_ids": DOCUMENTS, "key_stop": 38, "key_bias": BIAS, "pattern": Window(16)}
    page = opened(hs.explore(q, k, span=9, ramp=4, **options))

    def at(row, col):
        page.mouse.move(*place_of(page, row, col, 40, 40))
        return page.locator(".pair").text_content(), readout(page)

    assert "of another document" in at(14, 10)[0]
    assert "padding" in at(39, 39)[0]
    assert "a removed key" in at(7, 5)[0]
    assert "not in the pattern" in at(30, 13)[0]
    assert "beyond the reach" in at(29, 15)[0]
    assert "on the ramp" in at(25, 14)[0]
    words, numbers = at(8, 7)
    assert "\u2013" not in words
    score = q[0, 8] @ k[0, 7] / 8**0.5 + BIAS[0, 7]
    assert float(numbers["score"].replace("\u2212", "-")) == pytest.approx(float(score), rel=6e-3)


def test_the_page_says_which_way_queries_look(opened):
    page = opened(small_view(causal=False, span=[1, 2, 3], ramp=1))
    assert page.locator(".subtitle").text_content() == "3\u00a0heads, 10\u00a0tokens, bidirectional"
    assert "KV read" in page.locator("table").text_content()
    page.mouse.move(*place_of(page, 4, 6))
    assert readout(page)["distance"] == "\u22122"
    assert "later" not in page.locator(".pair").text_content()
    page.locator(".text span").nth(4).click()
    classes = page.locator(".text span").evaluate_all("spans => spans.map((span) => span.className)")
    assert classes == ["", "", "", "inside", "query", "inside", "", "", "", ""]
    page = opened(small_view(segment_ids=[0] * 4 + [1] * 6))
    assert page.locator(".subtitle").text_content() == "3\u00a0heads, 10\u00a0tokens, causal, 2\u00a0documents"
    page = opened(small_view(prefix_lengths=4, key_ranges=[[0, 10]] * 6 + [[2, 10]] * 4))
    assert page.locator(".subtitle").text_content() == "3\u00a0heads, 10\u00a0tokens, causal after a prefix of 4"
    for (row, col), why in {(1, 3): "key\u00a03", (1, 4): "later", (8, 1): "out of its range"}.items():
        page.mouse.move(*place_of(page, row, col))
        assert why in page.locator(".pair").text_content()
    page.mouse.move(*place_of(page, 1, 3))
    assert "not computed" not in page.locator(".pair").text_content()


def test_edges_lie_on_both_sides_and_cover_no_pair_within(opened):
    q, k = float32_normals(2, 1, 30, 8)
    page = opened(hs.explore(q, k, span=4, ramp=3, causal=False))
    over = page.evaluate(
        """() => {
          const { layout } = document.querySelector(".headspan-view").drawn;
          const { data, width } = document.querySelectorAll(".map canvas")[1].getContext("2d")
            .getImageData(0, 0, 2000, 2000);
          const at = (row, col) => data[4 * (Math.floor(layout.top + (row + 0.5) * layout.height / 30) * width +
            Math.floor(layout.left + (col + 0.5) * layout.width / 30)) + 3];
          const line = (row, from, to) => {
            const y = Math.floor(layout.top + (row + 0.5) * layout.height / 30);
            let some = false;
            for (let x = layout.left + from * layout.width / 30; x < layout.left + to * layout.width / 30; x++) {
              some ||= data[4 * (y * width + Math.floor(x)) + 3] > 0;
            }
            return some;
          };
          const inside = [];
          for (let row = 0; row < 30; row++) {
            for (let col = Math.max(0, row - 4); col < Math.min(30, row + 5); col++) inside.push(at(row, col));
          }
          return [Math.max(...inside), line(15, 9, 11.3), line(15, 19.7, 22)];
        }"""
    )
    assert over == [0, True, True]


def test_numbers_that_are_not_finite_have_their_entry_in_the_legend(opened):
    q, k = float32_normals(2, 2, 10, 8)
    k[0, 2] = np.nan
    page = opened(hs.explore(q, k, span=1, ramp=1))
    entry = page.locator(".signs > span", has_text="not a number")
    assert np.isnan(drawn(page)[1]).any()
    assert entry.is_visible()
    page.locator(".heads label").nth(1).click()
    assert not entry.is_visible()


def test_heads_are_counted_as_in_python_or_have_their_names(opened):
    q, k = float32_normals(2, 4, 12, 8)
    view = hs.explore(q, k, heads=[2, 0])
    assert (view.head, view.meta["names"]) == (2, ["head 2", "head 0"])
    names = [f"layer 3, head {i}" for i in range(4)]
    view = hs.explore(q, k, heads=[2, 0], names=names)
    page = opened(view)
    assert page.locator("h2").text_content() == "Where layer 3, head 2 looks"
    assert page.locator(".heads bdi").all_text_contents() == ["layer 3, head 2", "layer 3, head 0"]
    with pytest.raises(ValueError, match="names must hold 4 texts, one for each head of query, not 2"):
        hs.explore(q, k, names=["a", "b"])
    with pytest.raises(ValueError, match="names must hold 4 texts, one for each head of query, not 'abcd'"):
        hs.explore(q, k, names="abcd")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"causal": 1}, TypeError, "causal must be True or False, not 1"),
        ({"segment_ids": [0, 1]}, ValueError, "segment_ids must be of shape"),
        ({"key_stop": 41}, ValueError, "key_stop must be between 0 and the 40 keys"),
        ({"key_bias": np.zeros(3)}, ValueError, "key_bias must be of shape"),
    ],
)
def test_errors_are_those_of_attention(change, error, message):
    with pytest.raises(error, match=message):
        hs.explore(*arrays(40, 40), **change)


ARABIC = ["\u0643\u0644", "\u0627\u0646\u0633\u0627\u0646", "(\u0634\u05dc)", "a", "b", "x" * 90, "\u202eover", "!"]


@pytest.mark.parametrize("width", [390, 1000])
def test_texts_of_both_directions_turn_nothing_around(opened, width):
    q, k = float32_normals(2, 2, 8, 8)
    page = opened(hs.explore(q, k, tokens=ARABIC, names=[ARABIC[1] + " 1", "b"]), width=width)
    places = page.locator(".text span").evaluate_all(
        "s => s.map((e) => [e.offsetTop, e.getBoundingClientRect().right])"
    )
    assert places[0][1] > places[1][1]  # from the right, as its first letter says
    assert page.locator(".text").evaluate("e => getComputedStyle(e).direction") == "rtl"
    assert page.locator(".text span").first.evaluate("e => getComputedStyle(e).unicodeBidi") == "isolate"
    page.mouse.move(*place_of(page, 7, 6, 8, 8))
    assert page.locator(".pair").text_content() == f"! query\u00a07 \u2192 {ARABIC[6]} key\u00a06"
    parts = page.locator(".pair .token").evaluate_all("t => t.map((e) => e.getBoundingClientRect().left)")
    assert parts == sorted(parts) or width == 390
    assert page.locator(".pair b").evaluate_all("b => b.map((e) => e.dir)") == ["auto", "auto"]
    assert page.locator(".heads bdi").first.get_attribute("dir") == "auto"
    assert spilling(page) == []
    assert overlapping(page, ".headspan-view .text span") == []


def test_a_long_token_is_cut_and_whole_where_one_points_at_it(opened):
    q, k = float32_normals(2, 2, 8, 8)
    page = opened(hs.explore(q, k, tokens=ARABIC))
    long = page.locator(".text span").nth(5)
    assert long.evaluate("e => e.scrollWidth > e.clientWidth && getComputedStyle(e).textOverflow") == "ellipsis"
    assert long.get_attribute("title") == ARABIC[5]
    page.mouse.move(*place_of(page, 5, 5, 8, 8))
    assert page.locator(".pair b").first.get_attribute("title") == ARABIC[5]
    x, y = place_of(page, 5, 0, 8, 8)
    page.mouse.move(page.locator(".map").bounding_box()["x"] + 10, y)  # the name next to its row
    assert page.locator("[role=application]").get_attribute("title") == ARABIC[5]
    page.mouse.move(x, y)
    assert page.locator("[role=application]").get_attribute("title") == ""


def test_fingers_and_keys_read_the_whole_of_a_long_token(opened):
    q, k = float32_normals(2, 2, 8, 8)
    page = opened(hs.explore(q, k, tokens=ARABIC), width=390, has_touch=True)
    name = page.locator(".pair b").first
    cut = "e => e.scrollWidth > e.clientWidth && getComputedStyle(e).whiteSpace === 'pre'"
    page.touchscreen.tap(*place_of(page, 5, 5, 8, 8))
    assert name.evaluate(cut)
    name.tap()
    assert name.text_content() == ARABIC[5]
    assert not name.evaluate(cut)
    assert spilling(page) == []
    page.locator("[role=application]").focus()
    page.keyboard.press("Escape")
    for key in ("ArrowUp", "ArrowUp", "ArrowUp", "Enter", "Tab"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.textContent") == ARABIC[5]
    assert not name.evaluate(cut)
