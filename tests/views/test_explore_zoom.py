"""Long inputs in the view: parts of them, from Python and in a saved page, and the keys that weigh most."""

import headspan as hs
import numpy as np
import pytest
from headspan.explorer import part as explorer_part
from headspan.patterns import Global, Window
from screen.browser import check_drawn, drawn, place_of, set_slider
from screen.views import asked, float32_normals, send

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
pytestmark = [pytest.mark.browser, pytest.mark.unsanitized]

LENGTH = 2000
PART = [[1500, 1600], [1440, 1600]]
ROWS, COLS = (slice(*ends) for ends in PART)
CASES = {
    "spans": {"span": [30, 200], "ramp": 8},
    "both ways": {"span": [30, 200], "ramp": 8, "causal": False},
    "documents": {"span": [30, 200], "ramp": 8, "segment_ids": np.repeat([0, 1], [1550, 450])},
    "a global far away": {"span": [30, 200], "ramp": 8, "pattern": Window(301) | Global([3, 700])},
    "importance": {"span": [30, 200], "ramp": 8, "key_bias": np.linspace(0, 4, LENGTH)},
}


def arrays():
    return float32_normals(2, LENGTH, 8), float32_normals(2, LENGTH, 8, seed=1)


def zoomed(region=PART, **options):
    view = hs.explore(*arrays(), **options)
    view.zoom = region
    return view


def expected(**options):
    return hs.attention_weights(*arrays(), rows=ROWS, cols=COLS, **options)


@pytest.mark.parametrize("name", CASES)
def test_a_part_shows_its_pairs_and_its_sliders_move_in_a_saved_page(opened, name):
    options = CASES[name]
    page = opened(zoomed(**options))
    check_drawn(page, expected(**options)[0])
    for slider, place in (("span", 100), ("ramp", 3), ("temperature", 0)):
        set_slider(page, slider, place)
    after = {**options, "span": [100, 200], "ramp": 3}
    check_drawn(page, expected(**after)[0])
    page.locator(".heads label").nth(1).click()
    check_drawn(page, expected(**after)[1])
    seen = hs.attention_weights(*arrays(), rows=ROWS, **after) > 0
    assert page.locator("table tbody td").first.text_content() == f"{seen[1].sum():,}"
    assert "queries 1500\u20131599, keys 1440\u20131599" in page.locator(".subtitle").text_content()


def test_sliders_of_a_saved_page_end_where_its_keys_do(opened, monkeypatch):
    monkeypatch.setattr(explorer_part, "MOST_BYTES", 25_000)
    page = opened(zoomed(span=[30, 100], ramp=8))
    reach = 107  # twice as far would be too many bytes
    assert f"for a reach of up to {reach}" in page.locator(".note").first.text_content()
    assert page.locator("input[data-name=span]").get_attribute("max") == str(reach - 8)
    set_slider(page, "span", 1900)
    check_drawn(page, expected(span=[reach - 8, 100], ramp=8)[0])
    assert page.locator("input[data-name=ramp]").get_attribute("max") == str(8)


def test_a_part_that_needs_too_many_keys_comes_from_python_and_says_what_it_needs(opened, monkeypatch):
    monkeypatch.setattr(explorer_part, "MOST_BYTES", 40_000)
    view = zoomed(span=[30, 1000], ramp=8)
    assert view.meta["pool"] == (1, 2)
    page = opened(view)
    pooled = hs.attention_weights(*arrays(), rows=ROWS, cols=COLS, pool=(1, 2), span=[30, 1000], ramp=8)
    check_drawn(page, pooled[0])
    needs = 4 * 2 * 8 * (100 + 1600 - 1500 + 1007)
    assert f"{needs / 1024:.1f}\u00a0KiB of queries and keys" in page.locator(".note").first.text_content()
    assert page.locator("input[type=range]:disabled").count() == 3
    view.span = [30, 100]  # these fit
    assert view.meta["pool"] is None
    check_drawn(opened(view), expected(span=[30, 100], ramp=8)[0])


def test_spans_that_reach_farther_bring_more_keys(monkeypatch):
    monkeypatch.setattr(explorer_part, "MOST_BYTES", 60_000)
    view = zoomed(span=[30, 30], ramp=8)
    before = view.meta["reach"]
    view.span = [30, before + 50]
    assert view.meta["reach"] >= before + 50 + 7
    assert len(view.key) // (2 * 8 * 4) >= before + 150


def test_a_part_larger_than_max_tokens_is_blocks_of_it(opened):
    view = zoomed([[0, 1000], [0, 1000]], span=[30, 200], ramp=8)
    page = opened(view)
    some = {"rows": slice(1000), "cols": slice(1000), "pool": 8}
    check_drawn(page, hs.attention_weights(*arrays(), span=[30, 200], ramp=8, **some)[0])
    page.mouse.move(*place_of(page, 50, 48, 125, 125))
    assert page.locator(".pair").text_content().startswith("queries 400\u2013407 \u2192 keys 384\u2013391")
    view.zoom = None
    np.testing.assert_array_equal(
        np.frombuffer(view.maps, "f4").reshape(2, 125, 125),
        hs.attention_weights(*arrays(), span=[30, 200], ramp=8, pool=16),
    )


def test_long_inputs_hint_at_max_tokens_and_at_what_it_takes(opened):
    page = opened(hs.explore(*arrays()))
    hint = page.locator(".left > .note").text_content()
    assert "2,000\u00a0tokens are more than max_tokens=512" in hint
    assert f"With max_tokens=2000 the browser would compute every pair and need {2 * 2 * 2000 * 8 * 4 // 1024}" in hint
    assert opened(hs.explore(*arrays(), max_tokens=2000)).locator(".left > .note").count() == 0


def strongest(page):
    return page.locator(".pinned li").evaluate_all("items => items.map((e) => e.textContent)")


@pytest.mark.parametrize("region", [None, PART], ids=["blocks", "a part"])
def test_the_pinned_query_and_its_strongest_keys_are_read_in_their_text(opened, region):
    q, k = arrays()
    view = hs.explore(q, k, span=[30, 200], ramp=8, tokens=[f"t{i}" for i in range(LENGTH)])
    view.head, view.selected, view.zoom = 1, 1510, region
    weights = hs.attention_weights(q, k, span=[30, 200], ramp=8, rows=[1510])[1, 0]
    page = opened(view)
    most = np.argsort(-weights)[:5]
    shown = strongest(page)
    assert len(shown) == 5
    for key, text in zip(most, shown, strict=True):
        assert float(text.split()[0]) == pytest.approx(float(weights[key]), rel=6e-3)
        assert f"key {key}, {1510 - key} back" in text.replace("\u00a0", " ")
        assert f"t{key - 1} t{key} t{key + 1}" in text
    assert "t1509 t1510 t1511" in page.locator(".pinned p").first.text_content()
    page.get_by_role("button", name="Unpin").click()
    assert strongest(page) == []
    assert "Pin a query" in page.locator(".pinned").text_content()


def test_strongest_keys_of_another_state_are_not_shown_for_this_one(opened):
    view = hs.explore(*arrays(), span=[30, 200], ramp=8)
    view.selected = 900
    page = opened(view)
    assert len(strongest(page)) == 5
    page.locator(".heads label").nth(1).click()  # Python is not there to look
    assert strongest(page) == []
    assert "need Python" in page.locator(".pinned").text_content()
    page.locator(".heads label").nth(0).click()
    assert len(strongest(page)) == 5


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "zoom must be None or two pairs of integers"),
        ([[0, 10]], "zoom must be None or two pairs of integers"),
        ([[0.5, 10], [0, 10]], "zoom must be None or two pairs of integers"),
        ([[0, 2001], [0, 10]], "zoom must be a range within the 2000 queries, not 0 to 2001"),
        ([[0, 10], [5, 5]], "zoom must be a range within the 2000 keys, not 5 to 5"),
        ([[-1, 10], [0, 5]], "zoom must be a range within the 2000 queries, not -1 to 10"),
    ],
)
def test_a_wrong_part_is_refused_and_the_one_before_stays(value, message):
    view = zoomed()
    with pytest.raises(ValueError, match=message):
        view.zoom = value
    assert view.zoom == PART


def test_buttons_and_keys_ask_for_parts(live):
    page = live(hs.explore(*arrays()))
    assert page.get_by_role("button", name="Zoom out").is_disabled()
    assert page.get_by_role("button", name="Show all").is_disabled()
    page.get_by_role("button", name="Zoom in").click()
    (first, end), cols = asked(page, "zoom")
    assert (end - first, cols) == (500, [first, end])
    page.locator("[role=application]").focus()
    for key in ("ArrowUp", "+"):  # the first step lands on the last query and its own key
        page.keyboard.press(key)
    assert asked(page, "zoom") == [[1500, 2000], [1500, 2000]]
    page = live(zoomed())
    page.get_by_role("button", name="Zoom out").click()
    assert asked(page, "zoom") == [[1350, 1750], [1230, 1870]]
    page.get_by_role("button", name="Show all").click()
    assert asked(page, "zoom") is None


def test_a_mouse_draws_the_part_and_a_finger_does_not(live):
    page = live(hs.explore(*arrays()), has_touch=True)
    page.mouse.move(*place_of(page, 60, 40, 125, 125))
    page.mouse.down()
    page.mouse.move(*place_of(page, 80, 70, 125, 125))
    page.mouse.up()
    assert asked(page, "zoom") == [[960, 1296], [640, 1136]]
    assert page.get_by_role("button", name="Unpin").count() == 0  # no query was pinned by that
    page.touchscreen.tap(*place_of(page, 60, 40, 125, 125))
    assert page.get_by_role("button", name="Unpin").is_visible()


def test_another_part_takes_the_place_of_the_view_and_keeps_the_focus(live):
    full, part = hs.explore(*arrays(), span=[30, 200], ramp=8), zoomed(span=[30, 200], ramp=8)
    page = live(full)
    page.get_by_role("button", name="Zoom in").focus()
    send(page, part)
    check_drawn(page, expected(span=[30, 200], ramp=8)[0])
    assert page.locator(".headspan-view").count() == 1
    assert page.evaluate("document.activeElement.name") == "zoom-in"
    assert drawn(page)[1].shape == (100, 160)


def test_a_span_beyond_the_keys_held_shows_no_wrong_numbers(live, monkeypatch):
    monkeypatch.setattr(explorer_part, "MOST_BYTES", 25_000)
    page = live(zoomed(span=[30, 100], ramp=8))
    set_slider(page, "span", 500)
    assert page.locator(".headspan-view.computing").count() == 1
    check_drawn(page, expected(span=[30, 100], ramp=8)[0])  # those of before, until Python has sent more keys
    set_slider(page, "span", 60)
    assert page.locator(".headspan-view.computing").count() == 0
    check_drawn(page, expected(span=[60, 100], ramp=8)[0])
