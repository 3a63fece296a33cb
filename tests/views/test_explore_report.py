"""The report of a run in a real Chromium: its view, its pictures and what a phone shows of them."""

import headspan as hs
import numpy as np
import pytest
from screen.browser import TEXTS, check_drawn, overlapping, spilling

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
pytestmark = [pytest.mark.browser, pytest.mark.unsanitized]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    pytest.importorskip("autograd", reason="needs the demo: pip install '.[demo]'")
    from headspan.lab import train, write_report
    from lm_helpers import small_run, small_text

    text = small_text()
    run = small_run(tmp_path_factory.mktemp("report") / "run", text)
    train(run, text)
    write_report(run, text)
    return run, text


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_report_shows_where_characters_look(opened, report, width):
    from headspan.lab import lm
    from headspan.lab.report import measure as _measure
    from lm_helpers import TRAINING

    run, text = report
    page = opened(run.path / "report.html", width=width)
    parameters, tokens = run.load().parameters, _measure.sequences(text.encode(text.part("test")), TRAINING.context, 1)
    layers = lm.trace(parameters, lm.ModelConfig(**run.config["model"]), tokens)
    for i, (layer, head) in enumerate(np.ndindex(2, 2)):
        page.locator(".heads label").nth(i).click()
        assert page.locator(".headspan-view h2").text_content() == f"Where layer {layer}, head {head} looks"
        assert page.locator(".subtitle").text_content() == "4\u00a0heads, 32\u00a0characters, causal"
        query, key, _ = layers[layer]
        check_drawn(page, hs.attention_weights(query[0], key[0], span=parameters["span"][layer], ramp=4)[head])
    page.mouse.move(2, 2)
    before = page.evaluate("document.documentElement.scrollHeight")
    page.locator(".text span", has_text="t").first.hover()
    assert page.locator(".text span.query").text_content() == "t"
    assert page.evaluate("document.documentElement.scrollHeight") == before  # nothing jumps
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert spilling(page) == []
    assert overlapping(page, TEXTS) == []


def test_on_a_phone_the_report_shows_its_numbers_whole_and_says_what_scrolls(opened, report):
    page = opened(report[0].path / "report.html", width=360)
    scrolls = page.locator("figure").evaluate_all("figures => figures.map((f) => f.scrollWidth > f.clientWidth)")
    said = page.locator("figure").evaluate_all("figures => figures.map((f) => getComputedStyle(f, '::before').content)")
    assert scrolls == [text != "none" for text in said]
    assert scrolls == [False] * 4 + [True] * 3  # the maps


@pytest.mark.parametrize("width", [360, 390, 1280])
def test_text_of_the_pictures_is_legible(opened, report, width):
    page = opened(report[0].path / "report.html", width=width)
    sizes = page.locator("figure svg").evaluate_all(
        r"""pictures => pictures.flatMap((svg) => {
          const pixels = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
          const text = [...svg.querySelectorAll("g[transform*=scale]")].map((g) => g.getAttribute("transform"));
          return text.map((transform) => 100 * pixels * Number(transform.match(/scale\(([\d.]+) -/)[1]));
        })"""
    )
    assert len(sizes) > 100
    assert min(sizes) >= 10
    assert max(sizes) < 17
    assert page.locator("figure use[transform*=scale]").count() == 0  # no exponents, which would be smaller


@pytest.mark.parametrize(("scheme", "grey"), [("light", "rgb(217, 220, 225)"), ("dark", "rgb(42, 48, 56)")])
def test_pairs_that_are_not_computed_are_grey_in_the_maps_of_the_page(opened, report, scheme, grey):
    page = opened(report[0].path / "report.html", color_scheme=scheme)
    fills = page.locator("figure svg path[style*=nothing]").evaluate_all(
        "paths => paths.map((path) => getComputedStyle(path).fill)"
    )
    assert fills == [grey] * 5  # four heads, and one of them closer


def test_report_without_javascript_has_its_numbers_and_pictures(opened, report):
    page = opened(report[0].path / "report.html", java_script_enabled=False)
    assert page.locator("figure svg").count() == 7
    assert page.locator("table.numbers").count() == 1  # of what the spans save; the pictures have all other numbers
    for numbers in ("layer 1, head 1: ", "this model: ", "validation: "):
        assert page.get_by_role("img", name=numbers).count() == 1
    assert "needs JavaScript" in page.locator("noscript").text_content()
