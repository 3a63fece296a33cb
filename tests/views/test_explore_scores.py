"""Soft caps, sinks and ALiBi in the view: the numbers are Python's, and the page names what a head has."""

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Global, Neighborhood, Window
from screen.browser import check_drawn, place_of, readout, set_slider
from screen.views import float32_normals

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
pytestmark = [pytest.mark.browser, pytest.mark.unsanitized]

CASES = {
    "soft cap": ({"softcap": 1.5}, ["soft cap 1.5"] * 2),
    "sinks": ({"sinks": [0.5, -3.25]}, ["sink 0.5", "sink \u22123.25"]),
    "large sinks": ({"sinks": 800.0}, ["sink 800"] * 2),
    "ALiBi": ({"alibi_slopes": [0.5, 0.0625]}, ["ALiBi slope 0.5", "ALiBi slope 0.0625"]),
    "ALiBi, both ways": ({"alibi_slopes": 0.3, "causal": False}, ["bidirectional, ALiBi slope 0.3"] * 2),
    "ALiBi, global tokens": ({"alibi_slopes": 0.3, "pattern": Window(6) | Global([2])}, ["ALiBi slope 0.3"] * 2),
    "ALiBi, a grid": (
        {"alibi_slopes": 0.3, "pattern": Neighborhood((5, 8), 3), "causal": False}, ["ALiBi slope 0.3"] * 2,
    ),
    "all": (
        {
            "softcap": 2, "sinks": [0, 1], "alibi_slopes": [0.1, 1], "key_bias": np.linspace(-1, 1, 40),
            "span": [3, 20], "ramp": 5, "key_start": 4, "segment_ids": np.repeat([0, 1], [25, 15]),
        },
        ["soft cap 2, sink 0, ALiBi slope 0.1, bias on keys", "soft cap 2, sink 1, ALiBi slope 1, bias on keys"],
    ),
}  # fmt: skip


def arrays():
    return 3 * float32_normals(2, 40, 8), float32_normals(2, 40, 8, seed=1)


@pytest.mark.parametrize("name", CASES)
def test_values_drawn_are_those_of_python_and_named(opened, name):
    options, words = CASES[name]
    page = opened(hs.explore(*arrays(), **options))
    for head in range(2):
        page.locator(".heads label").nth(head).click()
        check_drawn(page, hs.attention_weights(*arrays(), **options)[head])
        assert words[head] in page.locator(".subtitle").text_content()
    set_slider(page, "temperature", 0.5)
    check_drawn(page, hs.attention_weights(*arrays(), **options, temperature=10**0.5)[1])


@pytest.mark.parametrize("name", CASES)
def test_blocks_are_those_of_python(name):
    options, _ = CASES[name]
    shown = np.frombuffer(hs.explore(*arrays(), max_tokens=10, **options).maps, "f4").reshape(2, 40, 40)
    np.testing.assert_allclose(shown, hs.attention_weights(*arrays(), **options), rtol=1e-6)


def test_the_score_of_a_pair_and_the_share_of_the_sink_are_shown(opened):
    q, k = arrays()
    options = {"softcap": 2, "sinks": [1, 0], "alibi_slopes": 0.1, "span": [9, 9], "ramp": 4}
    page = opened(hs.explore(q, k, value=k, **options))
    page.mouse.move(*place_of(page, 30, 25, 40, 40))
    product = float(q[0, 30] @ k[0, 25]) / 8**0.5
    weights = hs.attention_weights(q, k, **options)[0, 30]
    expected = {
        "distance": 5, "score": 2 * np.tanh(product / 2) - 0.5, "mask": 1, "weight": weights[25],
        "weight \u00d7 |value|": weights[25] * np.linalg.norm(k[0, 25]), "sink": 1 - weights.sum(),
    }  # fmt: skip
    numbers = readout(page)
    assert list(numbers) == list(expected)
    for name, value in expected.items():
        assert float(numbers[name].replace("\u2212", "-")) == pytest.approx(float(value), rel=6e-3)
    assert "sink" not in readout(opened(hs.explore(q, k, softcap=2)))
