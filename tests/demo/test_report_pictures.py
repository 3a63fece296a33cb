"""The pictures of a report."""

import io
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest
from headspan.lab.report import maps, pictures
from headspan.plot import style as plot_style


def test_spans_are_bars_with_their_numbers():
    values = np.array([[0.0, 3.0], [40.0, 512.0]])
    ax = pictures.spans(values, 32).axes[0]
    spans, ramps = ax.containers
    assert [bar.get_width() for bar in spans] == values.ravel().tolist()
    assert [(bar.get_x(), bar.get_width()) for bar in ramps] == [(z, 32) for z in values.ravel()]
    texts = ["0.0, reach 31", "3.0, reach 34", "40.0, reach 71", "512.0, reach 543"]
    assert [text.get_text().strip() for text in ax.texts] == texts
    assert [text.get_position()[0] for text in ax.texts] == (values + 32).ravel().tolist()
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["layer 0, head 0", "layer 0, head 1", "layer 1, head 0", "layer 1, head 1"]
    low, high = ax.get_xlim()
    assert low == 0
    assert high > 544
    assert ax.get_xlabel() == "span, and its ramp of 32 in a lighter shade (characters)"
    assert pictures.spans(values, 0).axes[0].get_xlabel() == "span (characters)"


@pytest.mark.parametrize("seed", range(10))
def test_labels_move_apart_as_little_as_possible(seed):
    places = np.random.default_rng(seed).uniform(0, 1, 7)
    moved = pictures.spread(places, 0.08)
    assert np.diff(np.sort(moved)).min() >= 0.08 - 1e-12
    np.testing.assert_array_equal(np.argsort(moved), np.argsort(places))
    far = 0.1 * np.arange(7)
    np.testing.assert_allclose(pictures.spread(far, 0.08), far)
    np.testing.assert_allclose(pictures.spread(np.array([0.5, 0.5, 0.9]), 0.2), [0.4, 0.6, 0.9])


def test_the_last_value_of_every_line_is_written_next_to_it():
    history = np.array([[[16.0, 16], [16, 16]], [[1.25, 40], [3, 200]]])
    ax = pictures.span_history(np.array([0, 8]), history, 512, 32).axes[0]
    assert [text.get_text() for text in ax.texts if text.get_text() != "limit"] == ["1.2", "40.0", "3.0", "200.0"]
    many = np.linspace(1, 20, 20).reshape(1, 2, 10)
    ax = pictures.span_history(np.array([8]), many, 512, 32).axes[0]
    assert [text.get_text() for text in ax.texts if text.get_text() != "limit"] == ["1.0", "20.0"]
    steps = np.array([4, 8])
    ax = pictures.learning(steps, np.array([5, 2.5]), steps, np.array([5, np.nan])).axes[0]
    assert [text.get_text() for text in ax.texts] == ["2.50"]
    assert [text.get_text() for text in pictures.bits_bars(["a", "b"], [2, np.inf]).axes[0].texts] == [
        " 2.000", " not a number",
    ]  # fmt: skip


def test_maps_are_grey_in_the_files_too_and_other_pictures_let_the_page_through():
    ones = np.eye(2)
    grey = f"fill: {plot_style.NOTHING}"
    for figure, count in ((maps.maps_by_distance(ones[None, None], np.ones((1, 1)), 0), 1),
                         (maps.close_map(ones, ["a", "b"], ""), 1),
                         (pictures.spans(ones, 1), 0)):  # fmt: skip
        svg = pictures.to_svg(figure, "p")
        assert svg.count(grey) == count
        assert "fill: #ffffff" not in svg
        assert f"var(--nothing, {plot_style.NOTHING})" in pictures.for_page(svg) or not count
        corner = matplotlib.image.imread(io.BytesIO(pictures.to_png(figure)))[0, 0]
        assert corner.tolist() == [1, 1, 1, 1]


def test_one_layer_one_head_one_block_can_be_drawn():
    ones = np.ones((1, 1))
    figures = [
        pictures.spans(ones, 0),
        pictures.span_history(np.array([0]), ones[None], 1, 0),
        maps.maps_by_distance(ones[None, None], ones, 0),
        maps.distance_profiles(ones[None], ones, 0),
        maps.close_map(ones, ["$"], "$x_{$ <&>"[:1]),
        pictures.bits_bars(["a"], [np.nan]),
    ]
    for number, picture in enumerate(figures):
        ET.fromstring(pictures.to_svg(picture, f"p{number}"))


def test_bytes_become_characters_one_can_see():
    data = np.frombuffer(b"A \n\t$\x00\xff", np.uint8)
    assert pictures.glyphs(data) == ["A", "\u2423", "\u21b5", "\u2192", "$", "\u00b7", "\u00b7"]
