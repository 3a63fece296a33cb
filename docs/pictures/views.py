"""Take the pictures of the interactive view: ``python docs/pictures/views.py [NAME ...]``.

Needs the extra ``browser``, Chromium and SmolLM2. Pages that show no scripts, such as those of GitHub, show these
pictures: of each notebook that calls `hs.explore`, of the example run in light and dark and on a phone, of a pattern,
and of a language model after a move of the spans of one layer.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headspan as hs
import matplotlib as mpl
import numpy as np
from headspan.explorer.widget import Explorer
from headspan.lab import load_run
from headspan.lab.example import TEXT, example_run
from headspan.patterns import Global, Strided, Window
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parents[1] / "notebooks"
# The middle of a pair on the page.
PLACE = """([query, key]) => {
  const { rows, cols, layout } = document.querySelector(".headspan-view").drawn;
  const box = document.querySelector(".map").getBoundingClientRect();
  return [
    box.left + layout.left + ((key + 0.5) * layout.width) / cols,
    box.top + layout.top + ((query + 0.5) * layout.height) / rows,
  ];
}"""
SENTENCE = (
    "The head that looks far sees the first word ; the head that looks near sees only the words before it , "
    "and a pattern says which pairs there are at all ."
)

STORY = (
    "Anna hid the silver key under the third flower pot by the door. Then she walked down to the harbour, bought bread "
    "and two oranges, and watched the boats until it was dark. It rained a little. On the way home she met her brother "
    'Paul, who had been away for many years, and they talked about the old house, the garden and the sea. "I have no '
    'way to get in," he said. "That is easy," she answered. "The silver key is under the third flower pot by the door."'
)


def shot(
    browser: Browser,
    view: Explorer,
    width: int,
    *,
    height: int | None = None,
    scheme: str = "light",
    key: int | None = None,
) -> Image.Image:
    """Return what a window of this width shows of a view: all of it, or the first `height` pixels.

    With `key`, the pointer is on this key of the selected query.
    """
    page = browser.new_page(viewport={"width": width, "height": height or 1000}, color_scheme=scheme)
    with tempfile.TemporaryDirectory() as folder:
        page.goto(view.save(Path(folder) / "view.html").as_uri())
        page.wait_for_selector(".headspan-view .map canvas")
        page.wait_for_selector(".overview canvas[width='1']", state="detached")  # all small maps are drawn
        if key is not None:
            page.mouse.move(*page.evaluate(PLACE, [view.selected, key]))
        picture = page.screenshot(full_page=height is None)
    page.close()
    return Image.open(io.BytesIO(picture)).convert("RGB")


def save(picture: Image.Image, path: Path) -> None:
    """Write a picture with 256 colours, which takes a third of the bytes."""
    path.parent.mkdir(exist_ok=True)
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def example(head: int, selected: int) -> Explorer:
    """Return the view of the example run on the start of its held-out text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "example"
        example_run(path)
        run = load_run(path)
        text = (path / TEXT).read_bytes()
    start = text.index(b"BAPTISTA", len(text) - 55_770)  # what the run keeps for the test
    layers, heads = run.model.layers, run.model.heads
    names = [f"layer {layer}, head {head}" for layer, head in np.ndindex(layers, heads)]
    view = hs.explore(**run.trace(text[start : start + 300]), names=names)
    view.head, view.selected = head, selected
    return view


def of_a_pattern() -> Explorer:
    """Return the view of random heads within a pattern."""
    words = SENTENCE.split()
    query, key = np.random.default_rng(0).standard_normal((2, 4, len(words), 16))
    pattern = Window(11) | Global(0) | Strided(8)
    view = hs.explore(query, key, span=[3, 8, 18, 30], ramp=4, tokens=words, pattern=pattern)
    view.head, view.selected = 2, len(words) - 3
    return view


def of_a_model() -> Explorer:
    """Return the view of SmolLM2 after all spans of layer 18 were moved to 8 tokens."""
    import headspan.torch
    from headspan.lab import load_pretrained

    loaded = load_pretrained("smollm2")
    view = headspan.torch.explore(loaded.model, STORY, loaded.tokenizer)
    layers, heads = view.model_spans.spans.shape
    view.span = [8 if layer == 18 else view.meta["keys"] for layer in range(layers) for _ in range(heads)]
    flowers = [place for place, token in enumerate(view.meta["tokens"]) if token == " flower"]
    view.head, view.selected = [18, 0], flowers[-1]
    return view


def of_a_notebook(path: Path) -> Explorer:
    """Run the cells of a notebook up to the one that calls `hs.explore`, and return its view."""
    code = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    last = next(number for number, source in enumerate(code) if "hs.explore(" in source)
    before, call = code[last].rsplit("hs.explore(", 1)
    names: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        exec("\n".join([*code[:last], before + "shown = hs.explore(" + call]), names)
    return names["shown"]


def side_by_side(*pictures: Image.Image) -> Image.Image:
    """Return pictures of the same height side by side."""
    joined = Image.new("RGB", (sum(picture.width for picture in pictures), pictures[0].height))
    left = 0
    for picture in pictures:
        joined.paste(picture, (left, 0))
        left += picture.width
    return joined


def pictures() -> dict[Path, Callable[[Browser], Image.Image]]:
    """Return how each picture is taken, by its path."""
    taken = {
        HERE / "explore.png": lambda browser: shot(browser, example(11, 150), 960, key=128),
        HERE / "explore_dark.png": lambda browser: shot(browser, of_a_pattern(), 1100, scheme="dark", key=27),
        HERE / "explore_narrow.png": lambda browser: side_by_side(
            *(shot(browser, example(8, 250), 400, height=860, scheme=s, key=222) for s in ("light", "dark"))
        ),
        HERE / "explore_model.png": lambda browser: shot(browser, of_a_model(), 1200, height=940),
        HERE / "slides" / "view.png": lambda browser: shot(browser, example(11, 150), 960, height=810, key=128),
    }
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if "hs.explore(" in path.read_text():
            taken[NOTEBOOKS / "pictures" / f"{path.stem}.png"] = lambda browser, path=path: shot(
                browser, of_a_notebook(path), 960
            )
    return taken


def main(names: list[str]) -> None:
    """Take the pictures with these names, or all of them."""
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or playwright.chromium.executable_path
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for path, take in pictures().items():
            if not names or path.stem in names:
                save(take(browser), path)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
