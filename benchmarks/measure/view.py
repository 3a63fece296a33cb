"""Measure the delay between moving a slider of ``headspan.explore`` and the new picture in a browser.

Run as ``python -m benchmarks.measure.view``; needs anywidget, playwright and Chromium. The time is that from the event
of the slider until the map can be read back from the canvas, and includes weights, colours, numbers and text.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headspan as hs
import numpy as np

if TYPE_CHECKING:
    from headspan.explorer.widget import Explorer
    from playwright.sync_api import Page

# Reading a pixel back through a separate canvas waits until the picture has been drawn.
_MOVE = """async ([name, rounds]) => {
  const root = document.querySelector(".headspan-view");
  const slider = root.querySelector(`input[data-name=${name}]`);
  const canvas = root.querySelector(".map canvas");
  const [low, high] = [Number(slider.min), Number(slider.max)];
  const reader = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const took = [];
  for (let i = 0; i < rounds; i++) {
    await new Promise((done) => setTimeout(done, 100));
    await new Promise(requestAnimationFrame);
    slider.value = low + (high - low) * (0.2 + 0.6 * ((i * 7) % rounds) / rounds);
    const start = performance.now();
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await null;
    reader.drawImage(canvas, 60, 60, 1, 1, 0, 0, 1, 1);
    reader.getImageData(0, 0, 1, 1);
    took.push(performance.now() - start);
  }
  return took;
}"""


def example(tokens: int, heads: int, head_dim: int, **options: Any) -> Explorer:
    """Return a view with the most work per update: it shows a text and has a pinned query."""
    q, k = np.random.default_rng(0).standard_normal((2, heads, tokens, head_dim), dtype=np.float32)
    view = hs.explore(q, k, span=tokens / 2, tokens=[f"t{i}" for i in range(tokens)], **options)
    view.selected = tokens // 2
    return view


def measure(page: Page, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of all rounds for each slider on a page with a view."""
    page.wait_for_timeout(1000)  # the browser draws the small pictures after the large one
    return {name: page.evaluate(_MOVE, [name, rounds]) for name in ("span", "ramp", "temperature")}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the median and the slowest round of each slider."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure.view", description=__doc__)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright

    view = example(options.tokens, options.heads, options.head_dim)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = view.save(Path(folder) / "view.html")
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_selector(".headspan-view")
        times = measure(page, options.rounds)
        browser.close()
    for name, took in times.items():
        print(f"{name:12} median {statistics.median(took):5.1f} ms, slowest {max(took):5.1f} ms")


if __name__ == "__main__":
    main()
