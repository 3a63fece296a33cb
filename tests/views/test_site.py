"""The pages that `nox -s docs` builds, in a browser: nothing is asked of a network, and a phone shows them."""

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_asks_the_network_or_scrolls_sideways(browser, scheme):
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    page, asked, complaints, wide = context.new_page(), [], [], {}
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: complaints.append((page.url, str(error))))
    for path in PAGES:
        page.goto(path.as_uri())
        if width := page.evaluate(TOO_WIDE):
            wide[str(path.relative_to(SITE))] = width
    context.close()
    assert len(asked) > len(PAGES)
    assert [url for url in asked if not url.startswith(("file://", "data:"))] == []
    assert complaints == []
    assert wide == {}


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
