"""Layers in the view: each with its own options, a table of all heads, and blocks of the heads that do not fit."""

import headspan as hs
import numpy as np
import pytest
from headspan.explorer import part as explorer_part
from headspan.patterns import Global, Window
from screen.browser import check_drawn, drawn, overlapping, place_of, readout, set_slider, spilling
from screen.views import asked, float32_normals, send

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
pytestmark = [pytest.mark.browser, pytest.mark.unsanitized]

LENGTH = 60
OPTIONS = {
    0: {},
    1: {"span": [2, 5, 9, 20], "ramp": 3, "softcap": 1.5},
    2: {"pattern": Window(7) | Global([3]), "sinks": [0.5, -1, 0, 2]},
    4: {"causal": False, "alibi_slopes": 0.2, "key_start": 6},
    5: {"pattern": [Window(5), Window(9), Window(9), Window(20)], "key_bias": np.linspace(-1, 1, LENGTH)},
    6: {"key_ranges": np.stack([np.arange(LENGTH) // 10 * 10, np.arange(1, LENGTH + 1)], axis=1), "span": 4, "ramp": 3},
}
HEADS = [(layer, head) for layer in OPTIONS for head in range(4)]


def layers(options=OPTIONS, heads=4, key_heads=2, length=LENGTH):
    made = {}
    for layer, others in options.items():
        q, k = float32_normals(heads, length, 8, seed=layer), float32_normals(key_heads, length, 8, seed=layer + 50)
        made[layer] = {"query": 3 * q, "key": k, "value": k, **others}
    return made


def weights(layer, **changes):
    arguments = {**layers()[layer], **changes}
    arguments.pop("value")
    return hs.attention_weights(arguments.pop("query"), arguments.pop("key"), **arguments)


def tile(page, layer, head):
    return page.locator(".overview .tiles label").nth(HEADS.index((layer, head)))


def test_each_head_has_the_options_of_its_layer(opened):
    page = opened(hs.explore(layers=layers()))
    assert page.locator(".overview .tiles label").count() == len(HEADS)
    assert page.locator(".subtitle").text_content() == "6\u00a0layers, 24\u00a0heads, 60\u00a0tokens, causal"
    for layer, head in HEADS:
        tile(page, layer, head).click()
        assert drawn(page)[0] == [layer, head]
        assert page.locator("h2").text_content() == f"Where layer {layer}, head {head} looks"
        expected = weights(layer)
        check_drawn(page, expected[head])
        assert page.locator("table tbody td").first.text_content() == f"{(expected[head] > 0).sum():,}"
    everyone = sum((weights(layer) > 0).sum() for layer in OPTIONS)
    assert page.locator("table tbody td").nth(2).text_content() == f"{everyone:,}"
    words = {1: "causal, soft cap 1.5", 2: "within", 4: "bidirectional, ALiBi slope 0.2", 5: "Window(20), bias on keys"}
    for layer, text in words.items():
        tile(page, layer, 3).click()
        assert text in page.locator(".subtitle").text_content()
    tile(page, 1, 2).click()
    set_slider(page, "span", 13)
    set_slider(page, "ramp", 0)
    check_drawn(page, weights(1, span=13, ramp=0)[2])
    tile(page, 6, 0).click()
    check_drawn(page, weights(6, ramp=0)[0])


def test_values_of_key_heads_are_shown(opened):
    page = opened(hs.explore(layers=layers()))
    tile(page, 4, 3).click()
    page.mouse.move(*place_of(page, 20, 41, LENGTH, LENGTH))
    numbers, length = readout(page), np.linalg.norm(layers()[4]["value"][1, 41])
    assert float(numbers["weight \u00d7 |value|"]) == pytest.approx(weights(4)[3, 20, 41] * length, rel=6e-3)


def some_rows(count):
    return np.arange(1, 65) * count // 64 - 1 if count > 64 else np.arange(count)


def mean_distance(layer, head):
    rows = some_rows(LENGTH)
    distance = np.abs(rows[:, None] - np.arange(LENGTH))
    shares = weights(layer)[head][rows]
    return (shares * distance).sum() / shares.sum()


@pytest.mark.parametrize("max_tokens", [512, 40], ids=["browser", "Python"])
def test_the_overview_tells_the_mean_distance(opened, max_tokens):
    page = opened(hs.explore(layers=layers(), max_tokens=max_tokens))
    for layer, head in ((0, 1), (1, 0), (2, 2), (4, 3)):
        tile(page, layer, head).hover()
        page.wait_for_selector(f".overview .note:has-text('layer {layer}, head {head}, mean')")
        told = page.locator(".overview .note").text_content().split("mean distance ")[1].split(" tokens")[0]
        assert float(told) == pytest.approx(mean_distance(layer, head), rel=6e-3)
    page.get_by_label("Mean distance").check()
    page.mouse.move(0, 0)
    assert page.locator(".overview canvas").evaluate_all("c => c.every((e) => e.width === 1 && e.height === 1)")
    near, far = (
        tile(page, *head).locator("canvas").evaluate("c => [...c.getContext('2d').getImageData(0, 0, 1, 1).data]")
        for head in ((1, 0), (0, 1))
    )
    assert (near[1] < far[1], near[3], far[3]) == (True, 255, 255)  # more green is farther
    page.get_by_label("Maps").check()
    assert page.locator(".overview canvas").first.evaluate("c => c.width") > 1


def test_arrow_keys_walk_over_the_table(opened):
    page = opened(hs.explore(layers=layers()))
    tile(page, 0, 1).click()
    names = []
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp", "ArrowUp", "ArrowUp"):
        page.keyboard.press(key)
        names.append(page.locator("h2").text_content().split("layer ")[1].removesuffix(" looks"))
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == f"layer {names[-1]}"
    assert names == ["1, head 1", "2, head 1", "2, head 2", "1, head 2", "0, head 2", "0, head 2"]
    assert page.locator("legend").all_text_contents() == ["Layers and heads", "Heads of layer 0"]
    page.locator(".heads label").nth(3).click()
    assert page.locator("h2").text_content() == "Where layer 0, head 3 looks"
    assert tile(page, 0, 3).locator("input").is_checked()


@pytest.fixture
def few_bytes(monkeypatch):
    """Let the heads of a layer fit and those of all layers not."""
    monkeypatch.setattr(explorer_part, "MOST_BYTES_OF_LAYERS", 50_000)


@pytest.mark.usefixtures("few_bytes")
def test_heads_of_the_selected_layer_have_pairs_and_others_blocks(opened, monkeypatch):
    monkeypatch.setattr(explorer_part, "BLOCKS", 20)
    view = hs.explore(layers=layers(), tokens=["a "] * LENGTH)
    view.head = (2, 1)
    assert (view.meta["loaded"], view.meta["pool"]) == ([8, 9, 10, 11], (3, 3))
    page = opened(view)
    for head in (1, 3):
        tile(page, 2, head).click()
        check_drawn(page, weights(2)[head])
        assert page.locator("input[type=range]:enabled").count() == 3
        assert page.locator(".text").count() == 1
    set_slider(page, "span", 3)
    set_slider(page, "temperature", -0.5)
    check_drawn(page, weights(2, span=[32, 32, 32, 3], ramp=3, temperature=10**-0.5)[3])
    assert "single pairs and sliders for layer 2" in page.locator(".left > .note").text_content()
    for layer, head in ((0, 2), (4, 1)):
        tile(page, layer, head).click()
        check_drawn(page, weights(layer, pool=3)[head])
        assert page.locator("input[type=range]:disabled").count() == 3
        assert "This head is in blocks of 3 by 3" in page.locator(".left > .note").text_content()
    page.keyboard.press("ArrowUp")  # the focus stays in the table
    assert drawn(page)[0] == [2, 1]
    check_drawn(page, weights(2)[1])
    page.mouse.move(*place_of(page, 30, 28, LENGTH, LENGTH))
    assert page.locator(".heads .peak").nth(1).text_content().startswith("at")


@pytest.mark.usefixtures("few_bytes")
def test_the_browser_gets_another_layer_when_it_is_selected():
    view = hs.explore(layers=layers())
    before = view.maps
    assert view.meta["loaded"] == [0, 1, 2, 3]
    view.head = [1, 2]
    assert (view.meta["loaded"], view.maps) == ([4, 5, 6, 7], before)
    view.span = [7.0 if index == 6 else span for index, span in enumerate(view.span)]
    assert view.maps == before  # the browser computes this head
    view.head = [0, 0]
    changed = np.frombuffer(view.maps, "f4").reshape(24, LENGTH, LENGTH)
    np.testing.assert_allclose(changed[6], weights(1, span=7)[2], rtol=1e-6)


@pytest.mark.usefixtures("few_bytes")
def test_pairs_of_another_layer_take_the_place_of_its_blocks(live):
    options = {"layers": layers()}
    page, later = live(hs.explore(**options)), hs.explore(**options)
    tile(page, 1, 2).click()
    assert asked(page, "head") == [1, 2]
    check_drawn(page, weights(1)[2])  # blocks of one pair, in so short a text
    assert page.locator("input[data-name=span]").is_enabled()
    later.head = [1, 2]
    send(page, later)
    check_drawn(page, weights(1)[2])
    assert page.locator(".readout dt").all_text_contents()[1] == "score"  # single pairs
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "layer 1, head 2"
    assert page.locator(".overview canvas").evaluate_all("c => c.every((e) => e.width > 1)")


@pytest.mark.usefixtures("few_bytes")
def test_one_head_fits_if_its_layer_does_not(opened, monkeypatch):
    monkeypatch.setattr(explorer_part, "MOST_BYTES", 5000)
    view = hs.explore(layers=layers())
    view.head = [1, 2]
    assert view.meta["loaded"] == [6]
    page = opened(view)
    check_drawn(page, weights(1)[2])
    assert "sliders for layer 1, head 2," in page.locator(".left > .note").text_content()


def test_a_part_of_many_layers_has_pairs_of_the_selected_one(opened, monkeypatch):
    monkeypatch.setattr(explorer_part, "MOST_BYTES", 8_000)
    view = hs.explore(layers=layers(), max_tokens=50)
    assert view.meta["loaded"] == []
    view.head = [2, 1]
    view.zoom = [[30, 50], [20, 50]]
    assert view.meta["loaded"] == [8, 9, 10, 11]
    page = opened(view)
    some = {"rows": slice(30, 50), "cols": slice(20, 50)}
    check_drawn(page, weights(2, **some)[1])
    # All queries are counted, as for the heads in blocks.
    assert page.locator("table tbody td").nth(2).text_content() in (
        "\u2013",
        f"{sum((weights(n) > 0).sum() for n in OPTIONS):,}",
    )
    tile(page, 1, 0).click()
    check_drawn(page, weights(1, **some)[0])  # in blocks of one pair


@pytest.mark.parametrize("width", [390, 800, 1280])
def test_the_table_fits_on_every_page(opened, width):
    names = dict(zip(OPTIONS, layers().values(), strict=True))
    page = opened(hs.explore(layers=names, tokens=["word "] * LENGTH), width=width)
    assert spilling(page) == []
    assert overlapping(page, ".overview .tiles label") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    above = page.locator(".overview").bounding_box()["y"] < page.locator(".map").bounding_box()["y"] - 100
    assert above == (width < 1100)


def test_a_page_with_many_heads_and_tokens_stays_small(tmp_path):
    options = {layer: {} for layer in range(30)}
    view = hs.explore(layers=layers(options, heads=9, key_heads=3, length=1536))
    assert view.save(tmp_path / "view.html").stat().st_size < 30e6
    assert view.meta["loaded"] == []


def test_heads_are_pairs_of_layer_and_head():
    view = hs.explore(layers=layers(), heads=[(4, 1), (0, 3)])
    assert (view.head, view.meta["heads"]) == ([4, 1], [(4, 1), (0, 3)])
    assert view.meta["names"] == ["layer 4, head 1", "layer 0, head 3"]
    view.head = (0, 3)
    assert view.head == [0, 3]
    for wrong in (3, [0, 2], "ab"):
        with pytest.raises(ValueError, match="head must be"):
            view.head = wrong
    assert hs.explore(layers=list(layers().values())).meta["names"][4] == "layer 1, head 0"
    assert hs.explore(layers=layers()).ramp == 3  # of the layers with spans


@pytest.mark.parametrize(
    ("error", "change", "message"),
    [
        (ValueError, {"span": 3}, "span must be in the dict of each layer, because layers is passed"),
        (ValueError, {"ramp": 3, "query": np.ones((2, 3))}, "query and ramp must be in the dict of each layer"),
        (ValueError, {"heads": [(3, 0)]}, "heads must be different pairs of a layer and a head, such as"),
        (ValueError, {"heads": [1]}, "heads must be different pairs"),
        (ValueError, {"names": ["a"]}, "names must hold 24 texts"),
        (TypeError, {"layers": 3}, "layers must be a sequence of dicts, not 3"),
        (ValueError, {"layers": {}}, "layers must have at least one layer"),
        (TypeError, {"layers": [{"query": 3}]}, "layer 0 of layers must be a dict with query and key"),
        (TypeError, {"layers": layers({0: {"windows": 3}})}, "unknown option 'windows'"),
        (ValueError, {"layers": layers({3: {"span": -1}})}, "layer 3: span must be non-negative"),
        (ValueError, {"layers": layers({0: {}}) | layers({1: {}}, length=9)}, "layer 0 has 60 and layer 1 9"),
        (ValueError, {"layers": layers({0: {"span": 3}, 1: {"span": 3, "ramp": 4}})}, "layers must have one ramp"),
    ],
)
def test_errors_say_what_is_wrong(error, change, message):
    with pytest.raises(error, match=message):
        hs.explore(**{"layers": layers(), **change})


def test_without_any_arrays_the_arguments_are_named():
    with pytest.raises(TypeError, match="explore must have query and key, or layers"):
        hs.explore()
