"""The pictures of a report."""

import io
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
from headspan.lab.report import pictures
from headspan.plot import style as plot_style


def test_spans_are_drawn_where_they_are():
    values = np.array([[0.0, 3.0], [40.0, 512.0]])
    ax = pictures.spans(values, 512, 32).axes[0]
    dots = [line.get_ydata() for line in ax.lines if line.get_marker() not in ("None", None)]
    assert np.array_equal(np.stack(dots), values)
    assert [line.tolist() for line in ax.collections[1].get_segments()] == [
        [[x, z], [x, z + 32]] for x, z in zip((0.75, 1.25), values[1], strict=True)
    ]
    low, high = ax.get_ylim()
    assert low <= 0
    assert high > 544
    assert ax.get_ylabel() == "span (characters)"


def test_maps_are_grey_in_the_files_too_and_other_pictures_let_the_page_through():
    ones = np.eye(2)
    grey = f"fill: {plot_style.NOTHING}"
    for figure, maps in ((pictures.attention_maps(ones[None, None], 1, np.ones((1, 1)), 0), 1),
                         (pictures.close_map(ones, ["a", "b"], ""), 1),
                         (pictures.spans(ones, 4, 1), 0)):  # fmt: skip
        svg = pictures.to_svg(figure, "p")
        assert svg.count(grey) == maps
        assert "fill: #ffffff" not in svg
        assert f"var(--nothing, {plot_style.NOTHING})" in pictures.for_page(svg) or not maps
        corner = matplotlib.image.imread(io.BytesIO(pictures.to_png(figure)))[0, 0]
        assert corner.tolist() == [1, 1, 1, 1]


def test_one_layer_one_head_one_block_can_be_drawn():
    ones = np.ones((1, 1))
    figures = [
        pictures.spans(ones, 1, 0),
        pictures.span_history(np.array([0]), ones[None], 1, 0),
        pictures.attention_maps(ones[None, None], 1, ones, 0),
        pictures.distance_profiles(ones[None], ones, 0),
        pictures.close_map(ones, ["$"], "$x_{$ <&>"[:1]),
        pictures.bits_bars(["a"], [np.nan]),
    ]
    for number, picture in enumerate(figures):
        ET.fromstring(pictures.to_svg(picture, f"p{number}"))


def test_bytes_become_characters_one_can_see():
    data = np.frombuffer(b"A \n\t$\x00\xff", np.uint8)
    assert pictures.glyphs(data) == ["A", "\u2423", "\u21b5", "\u2192", "$", "\u00b7", "\u00b7"]
