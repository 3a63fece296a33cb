"""The pages that `nox -s docs` builds, in a browser: nothing is asked of a network, and a phone shows them.

All pages are opened from files, as readers of a built site do.
"""

import pytest
from helpers import ROOT

SITE = ROOT / "build" / "docs"
# The first one only leads to that of the start.
PAGES = sorted(page for page in SITE.glob("*/**/*.html") if "_static" not in page.parts)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not PAGES, reason="needs the pages: nox -s docs"),
]
# Elements that overflow to the right, except for those that scroll.
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  return document.documentElement.scrollWidth > width ? document.documentElement.scrollWidth : 0;
}"""
# Pictures that are so small that their text, of 10 pixels in full size, is hardly legible.
TOO_SMALL = """async () => {
  const pictures = [...document.querySelectorAll("article img")];
  await Promise.all(pictures.map(picture => picture.decode()));
  await new Promise(requestAnimationFrame);
  return pictures.filter(picture => picture.width < 0.4 * picture.naturalWidth).map(picture => picture.src);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_every_page_without_a_network(browser, scheme):
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    page, asked, complaints, wide, small = context.new_page(), [], [], {}, []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: complaints.append((page.url, str(error))))
    for path in PAGES:
        page.goto(path.as_uri())
        if width := page.evaluate(TOO_WIDE):
            wide[str(path.relative_to(SITE))] = width
        small += page.evaluate(TOO_SMALL)
    context.close()
    assert len(asked) > len(PAGES)
    assert [url for url in asked if not url.startswith(("file://", "data:"))] == []
    assert complaints == []
    assert wide == {}
    assert small == []


def test_the_view_of_the_start_moves_without_a_server(browser):
    context = browser.new_context()
    page = context.new_page()
    page.goto((SITE / "index.html").as_uri())
    page.wait_for_selector(".headspan-view .map canvas")
    words = "input[data-name=span]"
    before = page.locator(words).get_attribute("aria-valuetext")
    page.locator(words).first.evaluate(
        "input => { input.value = input.min; input.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    assert page.locator(words).get_attribute("aria-valuetext") != before
    context.close()


def search(browser, words):
    """Search for words; return the address, the title and the excerpt of every result, and the marked words in it."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{(SITE / 'search.html').as_uri()}?q={words}")
    page.get_by_text("Search finished").wait_for()
    results = page.locator("ul.search > li").evaluate_all(
        """items => items.map(item => [
          item.querySelector("a").getAttribute("href"),
          item.querySelector("a").textContent,
          item.querySelector(".context")?.textContent,
          [...item.querySelectorAll("mark")].map(mark => mark.textContent.toLowerCase()),
        ])"""
    )
    context.close()
    return results


def test_search_shows_the_text_around_the_words(browser):
    results = {address: rest for address, *rest in search(browser, "soft+cap")}
    title, excerpt, marked = results["docs/explain/definition.html#other-options"]
    assert title == "The definition > Other options"
    assert "a soft cap of the scores" in excerpt
    assert marked == ["soft", "cap"]
    assert all(marked for _, _, marked in results.values())


def test_search_finds_names_and_other_forms_of_words(browser):
    results = {address: rest for address, *rest in search(browser, "soft_mask")}
    title, excerpt, marked = results["docs/reference/spans.html#headspan.soft_mask"]
    assert title == "headspan.soft_mask"
    assert "soft_mask" in excerpt
    assert set(marked) == {"soft_mask"}
    assert any("overflow" in marked for *_, marked in search(browser, "overflowing"))


def test_search_lists_each_section_once(browser):
    addresses = [address for address, *_ in search(browser, "explore")]
    assert len(addresses) == len(set(addresses)) > 10


def test_formulas_have_the_font_of_the_site(browser):
    context = browser.new_context()
    page = context.new_page()
    page.goto((SITE / "docs" / "explain" / "definition.html").as_uri())
    assert page.evaluate("document.fonts.ready.then(() => document.fonts.check('1em \"STIX Two Math\"'))")
    assert page.evaluate("[...document.fonts].map(font => font.status)") == ["loaded"]
    context.close()


def test_page_down_goes_from_slide_to_slide(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto((SITE / "docs" / "teach" / "slides.html").as_uri())
    tops = "[...document.querySelectorAll('#slides > section')].map((slide) => slide.getBoundingClientRect().top)"
    count = len(page.evaluate(tops))
    assert count > 9
    for slide in range(count):
        page.keyboard.press("PageDown")
        page.wait_for_function(f"Math.abs(({tops})[{slide}]) < 1")
    hidden = (
        "[...document.querySelectorAll('#slides > section')].map((slide) => slide.scrollHeight - slide.clientHeight)"
    )
    assert page.evaluate(hidden) == [0] * count
    page.close()
