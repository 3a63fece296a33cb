"""Accessibility of the view and the report: names, roles, order, focus, contrast, and colour blindness."""

import itertools
import re
from importlib.resources import files
from pathlib import Path

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Global, Window
from screen.colours import KINDS, contrast, distance, lab, rgb

pytestmark = [pytest.mark.browser, pytest.mark.unsanitized]

CHECKS = (Path(__file__).parent / "accessible.js").read_text()
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "again"]

# Where the focus is, what shows it, and how far that stands out from what is behind it.
FOCUS = """() => {
  const e = document.activeElement;
  if (e === document.body) return null;
  const shown = e.type === "radio" ? e.nextElementSibling : e;
  const { outlineStyle, outlineWidth, outlineColor } = getComputedStyle(shown);
  const box = shown.getBoundingClientRect();
  let ground = e;
  while (ground.parentElement && /, 0\\)$|transparent/.test(getComputedStyle(ground).backgroundColor)) {
    ground = ground.parentElement;
  }
  return {
    name: e.dataset.name ?? (e.type === "radio" ? "radio" : e.getAttribute("role") ?? e.textContent),
    line: outlineStyle === "none" ? 0 : parseFloat(outlineWidth), colour: outlineColor,
    ground: getComputedStyle(ground).backgroundColor,
    inside: box.top < innerHeight && box.bottom > 0 && box.left < innerWidth && box.right > 0,
  };
}"""


@pytest.fixture
def view():
    pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")

    def make(length=10, **options):
        q, k = np.random.default_rng(0).standard_normal((2, 3, length, 8), dtype=np.float32)
        tokens = (WORDS * length)[:length]
        return hs.explore(q, k, **{"span": [2, 4, 8], "ramp": 3, "tokens": tokens, **options})

    return make


def layered():
    q, k = np.random.default_rng(0).standard_normal((2, 3, 10, 8), dtype=np.float32)
    capped = {"query": q, "key": k, "value": k, "softcap": 2, "sinks": [0, 1, 2]}
    return hs.explore(layers=[{"query": q, "key": k, "span": [2, 4, 8], "ramp": 3}, capped], tokens=WORDS)


def check(page):
    report = page.evaluate(CHECKS)
    assert not report["wrong"], "\n".join(report["wrong"])
    assert report["texts"] > 20


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["plain", "long", "pattern", "pooled", "pinned", "zoomed", "layers"])
def test_nothing_is_wrong_with_the_view(opened, view, kind, scheme, width):
    options = {
        "long": {"length": 400},
        "pattern": {"pattern": Window(4) | Global([0])},
        "pooled": {"length": 600},
        "zoomed": {"length": 600, "causal": False},
    }.get(kind, {})
    made = view(**options) if kind != "layers" else layered()
    if kind == "pinned":
        made.selected, made.temperature = 8, 0.05  # the strongest shade behind a text
    if kind == "zoomed":
        made.zoom, made.selected = [[100, 150], [90, 150]], 120
    page = opened(made, width=width, color_scheme=scheme)
    check(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", ["finished", "not finite"])
def test_nothing_is_wrong_with_the_report(opened, tmp_path, scheme, state):
    pytest.importorskip("autograd", reason="needs the demo: pip install '.[demo]'")
    from headspan.lab import train, write_report
    from lm_helpers import small_run, small_text

    text = small_text()
    run = small_run(tmp_path / "run", text)
    train(run, text, steps=4 if state == "not finite" else None)
    if state == "not finite":
        broken = run.load()
        broken.parameters["span"][:] = np.nan
        run.save(broken)
    write_report(run, text)
    check(opened(run.path / "report.html", shown="main", color_scheme=scheme))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_keyboard_alone_reaches_everything_in_order_and_shows_where(opened, view, scheme):
    made = view(length=300)
    made.selected = 200
    page = opened(made, color_scheme=scheme)
    stops = []
    for _ in range(12):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUS)
        if stop is None:
            break
        stops.append(stop)
    names = ["Unpin", "application", "Reset", "span", "ramp", "temperature", "group", "radio"]
    assert [stop["name"] for stop in stops] == names  # the group is the text, which scrolls
    for stop in stops:
        assert stop["line"] >= 2, stop
        assert stop["inside"], stop
        line, ground = ([float(x) for x in re.findall(r"[\d.]+", stop[name])[:3]] for name in ("colour", "ground"))
        assert contrast(rgb(line), rgb(ground)) >= 3, stop
    for name in reversed(names):
        page.keyboard.press("Shift+Tab")
        assert page.evaluate(FOCUS)["name"] == name


def css_colours():
    """The colours of the view by their names, light and dark."""
    css = (files("headspan.explorer") / "browser" / "view.css").read_text()
    light, dark = css.split(".headspan-view.dark {")[:2]
    both = [dict(re.findall(r"--(\w+): #(\w{6});", part.split("}")[0])) for part in (light, dark)]
    return both[0], {**both[0], **both[1]}


def shades_of_the_view():
    script = (files("headspan.explorer") / "browser" / "paint.js").read_text()
    listed = re.search(r"const VIRIDIS =\n(.*?);", script, flags=re.DOTALL)[1]
    return np.array([rgb(colour) for colour in re.findall(r"\b[0-9a-f]{6}\b", listed)])


@pytest.mark.parametrize("kind", KINDS)
def test_colours_of_lines_and_parts_stay_apart(kind):
    pytest.importorskip("matplotlib")
    from headspan.plot import style as _style

    colours = [rgb(colour) for colour in _style.COLOURS]
    for first, second in itertools.combinations(colours, 2):
        assert distance(first, second, kind) > 20
    for colour in colours:
        for ground in ("#ffffff", "#12161b", _style.NOTHING):
            assert distance(colour, rgb(ground), kind) > 20
        assert min(contrast(colour, rgb(page)) for page in ("#ffffff", "#12161b")) >= 3
    for count in (7, 12):  # neighbours of more lines than these are told by their order
        many = np.array([rgb(colour) for colour in _style.colours(count)])
        assert distance(many[1:], many[:-1], kind).min() > 6


@pytest.mark.parametrize("kind", KINDS)
def test_colours_of_weights_are_a_scale_for_every_eye(kind):
    matplotlib = pytest.importorskip("matplotlib")
    from headspan.plot import style as _style

    view_shades = shades_of_the_view()
    assert len(view_shades) == 17
    plot_shades = matplotlib.colormaps[_style.MAP](np.linspace(0, 1, 17))[:, :3]
    light, dark = css_colours()
    empty = {"view": (light["empty"], dark["empty"]), "plot": (_style.NOTHING,)}
    for name, shades in (("view", view_shades), ("plot", plot_shades)):
        assert distance(shades[1:], shades[:-1], kind).min() > 4
        assert np.diff(lab(shades, kind)[:, 0]).min() > 2  # larger weights are lighter, in grey print too
        for nothing in empty[name]:
            assert distance(shades, rgb(nothing), kind).min() > 12


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_marked_in_the_view_stands_out(kind):
    for colours in css_colours():
        for other in ("ink", "quiet", "line", "panel", "empty"):
            assert distance(rgb(colours["accent"]), rgb(colours[other]), kind) > 30


def test_distance_is_that_of_cie():
    assert distance(rgb("#ffffff"), rgb("#000000")) == pytest.approx(100, abs=0.1)
    np.testing.assert_allclose(lab(rgb("#ff0000")), [53.24, 80.09, 67.2], atol=0.1)
    for matrix in KINDS.values():  # greys are seen by all in the same way
        np.testing.assert_allclose(np.sum(matrix, axis=1), 1, atol=1e-5)
    assert distance(rgb("#b00000"), rgb("#5c5c00"), "deuteranopia") < distance(rgb("#b00000"), rgb("#5c5c00")) / 2
