"""Patterns in the view: the browser's weights and bill are Python's, and what is not computed is said so."""

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Blocks, Blockwise, Fixed, Full, Global, Neighborhood, Random, Strided, Window
from screen.browser import check_drawn, drawn, place_of, readout, set_slider

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
pytestmark = [pytest.mark.browser, pytest.mark.unsanitized]

HALF = np.array([[[1, 0, 0], [1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0], [1, 0, 1]]], bool)

CASES = {
    "window and global": ((2, 40), (2, 40), Window(7) | Global([0, 30]), {"span": [3, 20], "ramp": 4}),
    "without a span": ((2, 40), (2, 40), Window(7) | Global([0, 30]), {}),
    "hard window": ((1, 40), (1, 40), Strided(3) | Global([2]), {"span": 7, "ramp": 0}),
    "a list": ((3, 33), (3, 33), [Strided(4), Window(4) | Global(5), Full()], {"span": [9, 2.5, 30], "ramp": 3}),
    "blocks of heads": ((2, 23), (2, 23), Blocks(HALF, 8, per_head=True), {"span": 9}),
    "queries without keys": ((1, 20), (1, 20), Blocks([[False, True], [False, True]], 10), {"span": 5}),
    "intersection": ((2, 50), (1, 50), Window(21) & (Strided(2) | Global(7)), {"span": 11, "ramp": 1}),
    "random": ((2, 37), (2, 37), Random(2, 5, seed=3) | Fixed(8, 1), {"span": 12}),
    "more keys": ((2, 20), (2, 45), Blockwise(8) | Global(3), {"span": [3, 30], "ramp": 4}),
    "more queries": ((2, 20), (2, 12), Window(3) | Global(3), {"span": [3, 30], "ramp": 4, "causal": True}),
    "a grid": (
        (2, 48),
        (2, 48),
        Neighborhood((6, 8), 3) | Global(13),
        {"span": [0, 1.5], "ramp": 1, "causal": True},
    ),
    "a grid beside a token": (
        (2, 50),
        (2, 50),
        Neighborhood((6, 8), 3, extra=(1, 1)),
        {"span": [0, 1.5], "ramp": 1, "causal": False},
    ),
    "three axes": ((1, 60), (1, 60), Neighborhood((3, 4, 5), (3, 3, 2)), {"span": 1, "ramp": 0.5, "causal": True}),
    "one token": ((1, 1), (1, 1), Window(1), {"span": 0, "ramp": 1}),
    "512 tokens": ((2, 512), (2, 512), Window(101, dilation=2) | Global(range(4)), {"span": 60.5}),
}


def arrays(queries, keys):
    rng = np.random.default_rng(0)
    return rng.standard_normal((*queries, 8)).astype(np.float32), rng.standard_normal((*keys, 8)).astype(np.float32)


def cells(page):
    return [text.split("\u00a0")[0] for text in page.locator("table tbody td").all_text_contents()]


def check_bill(page, head, queries, keys, pattern, options):
    sizes = {"key_tokens": keys[1], "num_heads": queries[0], "head_dim": 8, "pattern": pattern, **options}
    cost, last = hs.cost(tokens=queries[1], **sizes), hs.cost(tokens=1, **sizes)
    shown = cells(page)
    assert (int(shown[0].replace(",", "")), int(shown[2].replace(",", ""))) == (cost.head_pairs[head], cost.pairs)
    read = last.head_pairs[head] * 2 * 8 * 4
    assert float(shown[8]) == pytest.approx(read if read < 1024 else read / 1024, rel=5e-3)


@pytest.mark.parametrize("factor", [1, 6], ids=["usual scores", "large scores"])
@pytest.mark.parametrize("name", CASES)
def test_values_drawn_and_bill_are_those_of_python(opened, name, factor):
    queries, keys, pattern, options = CASES[name]
    q, k = arrays(queries, keys)
    page = opened(hs.explore(factor * q, k, pattern=pattern, **options))
    expected = hs.attention_weights(factor * q, k, pattern=pattern, **options)
    for head in range(queries[0]):
        page.locator(".heads label").nth(head).click()
        assert drawn(page)[0] == head
        check_drawn(page, expected[head])
        check_bill(page, head, queries, keys, pattern, options)


def test_sliders_work_inside_the_pattern(opened):
    queries, keys, pattern, options = CASES["a grid"]
    q, k = arrays(queries, keys)
    page = opened(hs.explore(q, k, pattern=pattern, **options))
    for name, place, value in (("span", 2, [2, 1.5]), ("ramp", 3, 3.0), ("span", 0, [0, 1.5]), ("ramp", 0, 0.0)):
        set_slider(page, name, place)
        options = {**options, name: value}
        check_drawn(page, hs.attention_weights(q, k, pattern=pattern, **options)[0])
        check_bill(page, 0, queries, keys, pattern, options)


def test_heads_chosen_keep_their_patterns(opened):
    q, k = arrays((3, 30), (3, 30))
    pattern = [Window(3), Strided(3), Global([0]) | Window(2)]
    page = opened(hs.explore(q, k, pattern=pattern, heads=[2, 1]))
    expected = hs.attention_weights(q, k, pattern=pattern)
    check_drawn(page, expected[2])
    assert "within Global(0) | Window(2)" in page.locator(".subtitle").text_content()
    page.locator(".heads label").nth(1).click()
    check_drawn(page, expected[1])
    assert "within Strided(3)" in page.locator(".subtitle").text_content()


def test_pointing_says_why_a_pair_is_not_computed(opened):
    q, k = arrays((1, 12), (1, 12))
    page = opened(hs.explore(q, k, pattern=Window(3) | Global([0, 5]), span=1, ramp=1))

    def at(row, col):
        page.mouse.move(*place_of(page, row, col, 12, 12))
        return page.locator(".pair").text_content(), readout(page)

    words, numbers = at(9, 6)
    assert "not in the pattern, not computed" in words
    assert (numbers["distance"], numbers["mask"], numbers["weight"]) == ("3", "0", "0")
    words, numbers = at(9, 5)
    assert "global, no span limits it" in words
    assert numbers["mask"] == "1"
    assert "later, not computed" in at(5, 9)[0]
    assert "\u2013" not in at(9, 8)[0]
    words, numbers = at(9, 7)
    assert "beyond the reach, not computed" in words
    assert (numbers["mask"], numbers["weight"]) == ("0", "0")  # in the pattern, out of the span


def test_distance_on_a_grid_is_read_out(opened):
    q, k = arrays((1, 16), (1, 16))
    page = opened(hs.explore(q, k, pattern=Neighborhood((4, 4), 3), span=0, ramp=2, causal=True))
    page.mouse.move(*place_of(page, 9, 5, 16, 16))
    assert (readout(page)["distance"], readout(page)["mask"]) == ("1", "0.5")
    assert "distance along an axis of the grid" in page.locator(".curve").text_content()
    page = opened(hs.explore(*arrays((1, 64), (1, 64)), pattern=Neighborhood((8, 8), 3), causal=True))
    ticks = page.locator(".curve text[text-anchor=middle]").all_text_contents()
    assert ticks[:-1] == ["0", "2", "4", "6"]  # up to 7, the largest distance on it


@pytest.mark.parametrize(
    ("options", "signs"),
    [
        ({"span": 3}, ["not computed", "span", "reach (span + ramp)"]),
        ({"span": 3, "ramp": 0}, ["not computed", "span"]),
        ({"pattern": Neighborhood((4, 4), 3), "causal": True}, ["not computed"]),
    ],
)
def test_the_legend_names_what_is_drawn_and_nothing_else(opened, options, signs):
    q, k = arrays((1, 16), (1, 16))
    page = opened(hs.explore(q, k, **options))
    shown = page.locator(".signs > span").evaluate_all(
        "signs => signs.filter((s) => s.checkVisibility({ visibilityProperty: true })).map((s) => s.textContent)"
    )
    assert shown == signs


def test_text_is_lit_where_the_pattern_lets_a_query_look(opened):
    q, k = arrays((1, 6), (1, 6))
    page = opened(hs.explore(q, k, pattern=Strided(2) | Global([1]), span=2, ramp=2, tokens=list("abcdef")))
    page.locator(".text span").nth(5).click()
    classes = page.locator(".text span").evaluate_all("spans => spans.map((span) => span.className)")
    assert classes == ["", "inside", "", "inside", "", "query"]


def test_pooled_maps_and_their_bill_come_from_python(opened):
    q, k = arrays((2, 1000), (2, 1000))
    pattern = [Window(91) | Global(7), Strided(9)]
    view = hs.explore(q, k, pattern=pattern, span=[30, 400])
    assert (view.allowed, view.query) == (b"", b"")
    page = opened(view)
    check_drawn(page, hs.attention_weights(q, k, pattern=pattern, span=[30, 400], pool=8)[0])
    check_bill(page, 0, (2, 1000), (2, 1000), pattern, {"span": [30, 400]})
    view.span, view.head = [5, 80], 1
    page = opened(view)
    check_drawn(page, hs.attention_weights(q, k, pattern=pattern, span=[5, 80], pool=8)[1])
    check_bill(page, 1, (2, 1000), (2, 1000), pattern, {"span": [5, 80]})


def test_a_shared_pattern_is_sent_once():
    q, k = arrays((4, 16), (4, 16))
    view = hs.explore(q, k, pattern=Window(4))
    expected = np.packbits(Window(4).mask(16), bitorder="little").tobytes()
    assert view.allowed == expected
    (rule,) = view.meta["rules"]
    assert {"name": "Window(4)", "free": [], "grid": None, "gridStart": 0, "plain": False}.items() <= rule.items()
    assert hs.explore(q, k, pattern=[Window(4)] * 4).allowed == expected
    assert len(hs.explore(q, k, pattern=[Window(4)] * 3 + [Window(3)]).allowed) == 2 * len(expected)
    plain = hs.explore(q, k)
    assert ([rule["plain"] for rule in plain.meta["rules"]], plain.allowed) == ([True], b"")


@pytest.mark.parametrize(
    ("pattern", "error", "message"),
    [
        (Global(20), ValueError, "tokens of Global must be below the number of keys, 20, not 20"),
        ([Window(2)] * 2, ValueError, "pattern must be one or a list of 3, one for each head, not of 2"),
        (Neighborhood((4, 4), 3), ValueError, "shape of Neighborhood must hold the 20 keys"),
        (Window, TypeError, r"not the class Window; write Window\(...\)"),
    ],
)
def test_errors_say_what_is_wrong(pattern, error, message):
    q, k = arrays((3, 20), (3, 20))
    with pytest.raises(error, match=message):
        hs.explore(q, k, pattern=pattern)
