"""The saved view in a real Chromium: hands can reach everything, and what they point at is read out."""

import headspan as hs
import numpy as np
import pytest
from screen.browser import TEXTS, check_drawn, drawn, overlapping, place_of, readout, set_slider, spilling, state
from screen.colours import contrast, rgb
from screen.views import HOSTILE, WORDS, float32_normals, small_view

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
pytestmark = [pytest.mark.browser, pytest.mark.unsanitized]


def test_pointing_reads_out_the_pair(opened):
    q, k, v = float32_normals(3, 3, 10, 8)
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
    assert (
        page.locator(".pair").text_content()
        == "\u2423 query\u00a07 \u2192 jumps key\u00a04 \u2013 beyond the span, on the ramp"
    )
    page.mouse.move(*place_of(page, 2, 8))
    assert "later, not computed" in page.locator(".pair").text_content()
    assert readout(page)["distance"] == "\u22126"
    page.mouse.move(2, 2)
    assert set(readout(page).values()) == {"\u2013"}


def test_a_tap_leaves_its_pair_readable(opened):
    q, k = float32_normals(2, 3, 10, 8)
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
    assert (state(page, "span"), state(page, "ramp")) == (f"1 {unit[:-1]}, reach\u00a01", f"1 {unit[:-1]}")
    assert page.locator(".subtitle").text_content() == f"3\u00a0heads, 10\u00a0{unit}, causal"
    assert f"distance in {unit}" in page.locator(".curve").text_content()
    assert f"must be kept to generate the next {unit[:-1]}" in page.locator(".meanings").text_content()
    assert f"1 up to 1 {unit[:-1]}, 0 from 2 {unit} on" in page.get_by_role("img").get_attribute("aria-label")
    assert ("token" in page.locator(".headspan-view").inner_text()) == (unit == "tokens")


def test_without_a_span_there_is_no_limit(opened):
    page = opened(small_view(span=None))
    assert state(page, "span") == "no limit"
    assert page.locator(".heads small:not(.peak)").all_text_contents() == ["no limit"] * 3
    set_slider(page, "span", 9)
    assert state(page, "span") == "9 tokens, reaches all"
    assert page.locator(".heads small:not(.peak)").all_text_contents() == [
        "span 9\nreaches all",
        "no limit",
        "no limit",
    ]


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
    assert state(page, "span") == "5 tokens, reach\u00a07"
    q, k = float32_normals(2, 3, 10, 8)
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
    assert page.get_by_role("radio", name="head 1 span 4 reach 6").count() == 1
    assert page.get_by_role("group", name="Heads").count() == 1
    assert page.get_by_role("application", name="Attention map of head 0").count() == 1
    assert "1 up to 2 tokens, 0 from 5" in page.get_by_role("img").get_attribute("aria-label")
    assert page.get_by_role("status").get_attribute("aria-live") == "polite"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_light_and_dark(opened, scheme):
    page = opened(small_view(), color_scheme=scheme)
    assert page.locator(".headspan-view.dark").count() == (scheme == "dark")
    *inks, panel = page.evaluate(
        """() => {
          const style = getComputedStyle(document.querySelector(".headspan-view"));
          const hex = (name) => style.getPropertyValue(name).trim();
          return ["--ink", "--quiet", "--accent", "--panel"].map(hex);
        }"""
    )
    page_colour = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    for paper in (panel, page_colour):
        for ink in inks:
            assert contrast(rgb(ink), rgb(paper)) >= 4.5


def test_theme_is_followed_while_the_page_is_open(opened):
    page = opened(small_view(), color_scheme="light")
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector(".headspan-view.dark")
    page.emulate_media(color_scheme="light")
    page.wait_for_selector(".headspan-view:not(.dark)")


@pytest.mark.parametrize("width", [360, 768, 1600])
@pytest.mark.parametrize("length", [10, 300])
def test_nothing_is_cut_off_or_overlaps(opened, width, length):
    q, k = float32_normals(2, 16, length, 8)
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


def test_every_head_shows_where_it_looks_from_a_query(opened):
    page = opened(small_view(span=[0, 4, 8], ramp=1))
    page.locator(".text span").nth(5).click()
    q, k = float32_normals(2, 3, 10, 8)
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
