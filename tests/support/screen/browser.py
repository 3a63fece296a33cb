"""A real browser for the tests of the view, or a skip that says what is missing."""

import base64
import os
import shutil
from contextlib import contextmanager

import numpy as np
import pytest

# What is on the canvas of a view: its sizes, and the bytes of its numbers in base64.
DRAWN = """() => {
  const { head, rows, cols, weights } = document.querySelector(".headspan-view").drawn;
  const bytes = new Uint8Array(weights.buffer, weights.byteOffset, weights.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return { head, rows, cols, weights: btoa(text) };
}"""


@contextmanager
def chromium():
    """A running Chromium: the one of the system, else the one playwright installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    system = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_api.sync_playwright() as playwright:
        program = system or playwright.chromium.executable_path
        if not os.path.exists(program):
            pytest.skip("needs a Chromium: apt-get install chromium, or playwright install chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def drawn(page):
    """The head whose map is drawn, and its weights."""
    drawing = page.evaluate(DRAWN)
    weights = np.frombuffer(base64.b64decode(drawing["weights"]), "<f4")
    return drawing["head"], weights.reshape(drawing["rows"], drawing["cols"])


def set_slider(page, name, place):
    """Move a slider, with the event that a user's move has."""
    page.locator(f"input[data-name={name}]").evaluate(
        "(input, place) => { input.value = place; input.dispatchEvent(new Event('input', { bubbles: true })); }", place
    )


def state(page, name):
    """The value that a control announces."""
    return page.locator(f"input[data-name={name}]").get_attribute("aria-valuetext")


def check_drawn(page, expected):
    _, weights = drawn(page)
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(weights == 0, expected == 0)


def area(page):
    """The left, top, width and height of the map on the page."""
    page.locator(".map").scroll_into_view_if_needed()
    return page.evaluate(
        """() => {
          const { left, top, width, height } = document.querySelector(".headspan-view").drawn.layout;
          const box = document.querySelector(".map").getBoundingClientRect();
          return [box.left + left, box.top + top, width, height];
        }"""
    )


def place_of(page, row, col, rows=10, cols=10):
    """The middle of a pair on the page."""
    left, top, width, height = area(page)
    return left + (col + 0.5) * width / cols, top + (row + 0.5) * height / rows


def readout(page):
    names = page.locator(".readout dt").all_text_contents()
    values = page.locator(".readout dd").all_text_contents()
    return dict(zip(names, values, strict=True))


def overlapping(page, selector):
    """Pairs of elements that lie over each other."""
    return page.evaluate(
        """(selector) => {
          const elements = [...document.querySelectorAll(selector)];
          const boxes = elements.map((element) => element.getBoundingClientRect());
          const meet = (a, b) =>
            Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 &&
            Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5;
          const pairs = [];
          for (let i = 0; i < boxes.length; i++) {
            for (let j = i + 1; j < boxes.length; j++) {
              if (meet(boxes[i], boxes[j])) pairs.push([elements[i].textContent, elements[j].textContent]);
            }
          }
          return pairs;
        }""",
        selector,
    )


def spilling(page):
    """Elements that reach beyond the view, or whose content reaches beyond them."""
    return page.evaluate(
        """() => {
          const view = document.querySelector(".headspan-view");
          const [left, right] = [view.getBoundingClientRect().left - 0.5, view.getBoundingClientRect().right + 0.5];
          return [...view.querySelectorAll("*")]
            .filter((e) => !e.closest(".text") && !e.closest(".token") && !e.closest("small"))
            .filter((e) => e.getClientRects().length)
            .filter((e) => {
              const box = e.getBoundingClientRect();
              return box.left < left || box.right > right || e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0;
            })
            .map((e) => `${e.tagName}.${e.className}: ${e.textContent}`);
        }"""
    )


# The smallest boxes of a view that hold text.
TEXTS = ", ".join(
    f".headspan-view {name}"
    for name in ("h2", "h3", "legend", "td", "th", "dt", "dd", ".value", ".heads label", ".pair")
)
