"""Spans that are written to files and tensors of other programs come back."""

import json

import headspan as hs
import numpy as np
import pytest
from headspan import ModelSpans
from headspan.patterns import Full, Global

GATES = [[0.9, 0.1], [-1e-4, 0.6]]
SPANS = ModelSpans(np.array([[3.0, 9.5, 20, 20], [np.inf, 0, 1, 1]]), 4.0, 2, 2, {"model": "small", "tokens": 60})


def test_a_file_says_what_it_is_and_comes_back(tmp_path):
    SPANS.save(tmp_path / "spans.json")
    document = json.loads((tmp_path / "spans.json").read_text())
    assert document["format"] == "headspan.spans"
    assert document["spans"][1] == [None, 0, 1, 1]
    loaded = ModelSpans.load(tmp_path / "spans.json")
    assert np.array_equal(loaded.spans, SPANS.spans)
    assert loaded[1:] == SPANS[1:]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spans", "must be a file of ModelSpans.save, but is not JSON"),
        ("[]", "must be a file of ModelSpans.save, with the format 'headspan.spans'"),
        ('{"format": "headspan.spans", "version": 2}', "is of version 2 of the format; this headspan reads 1"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        ModelSpans.load(tmp_path / "other.json")
    with pytest.raises(TypeError, match=r"path must be a path such as 'spans\.json', not 3"):
        ModelSpans.load(3)


def test_window_sizes_hold_the_pairs_of_a_key_head():
    sizes = SPANS.window_sizes(60)
    assert sizes.dtype == np.int32
    assert sizes.tolist() == [[[2, 0, 0, 14], [2, 0, 0, 24]], [[2, 0, 0, 60], [2, 0, 0, 5]]]
    place = np.arange(60)
    distance = place[:, None] - place
    for layer, row in enumerate(sizes):
        for key_head, (sink, _, _, near) in enumerate(row):
            seen = (distance >= 0) & ((distance < near) | (place < sink))
            span = SPANS.spans[layer, 2 * key_head : 2 * key_head + 2].max()
            pattern = Full() | Global(range(2))
            assert seen.sum() == hs.cost(tokens=60, num_heads=1, head_dim=4, span=span, ramp=4, pattern=pattern).pairs


def test_window_sizes_come_back():
    back = ModelSpans.from_window_sizes(SPANS.window_sizes(60), 4, tokens=60)
    assert back.spans.tolist() == [[13, 13, 23, 23], [np.inf, np.inf, 4, 4]]
    assert (back.ramp, back.first_tokens, back.num_key_heads) == (0, 2, 2)
    assert np.array_equal(back.window_sizes(60), SPANS.window_sizes(60))


@pytest.mark.parametrize(
    ("sizes", "heads", "message"),
    [
        ([[1, 2, 3, 4]], 2, r"window_sizes must be of shape \(layers, key heads, 4\), not \(1, 4\)"),
        ([[[2, 9, 0, 5]]], 2, "window_sizes must have no distant windows"),
        ([[[2, 0, 0, 5], [3, 0, 0, 5]]], 2, r"window_sizes must have one number of first tokens .*, not \[2, 3\]"),
        ([[[2, 0, 0, 5], [2, 0, 0, 5]]], 3, "num_heads must be a multiple of the 2 key heads, not 3"),
    ],
)
def test_window_sizes_that_are_no_spans(sizes, heads, message):
    with pytest.raises(ValueError, match=message):
        ModelSpans.from_window_sizes(sizes, heads, tokens=60)


def test_a_folder_of_duo_attention(tmp_path):
    np.savetxt(tmp_path / "full_attention_heads.tsv", GATES, delimiter="\t")
    (tmp_path / "config.json").write_text('{"sink_size": 4, "recent_size": 8}')
    read = ModelSpans.load_duo_attention(tmp_path, 4)
    assert read.spans.tolist() == [[np.inf, np.inf, 7, 7], [7, 7, np.inf, np.inf]]
    assert (read.ramp, read.first_tokens, read.num_key_heads) == (0, 4, 2)
    assert ModelSpans.load_duo_attention(tmp_path, 2, threshold=0.7).spans.tolist() == [[np.inf, 7], [7, 7]]
    read.save_duo_attention(tmp_path / "again")
    again = ModelSpans.load_duo_attention(tmp_path / "again", 4)
    assert np.array_equal(again.spans, read.spans)
    assert again[1:] == read[1:]


def test_several_spans_are_no_pattern_of_duo_attention(tmp_path):
    with pytest.raises(ValueError, match="has one window for all heads with a limit, but spans have 3"):
        SPANS.save_duo_attention(tmp_path / "duo")
    assert not (tmp_path / "duo").exists()
    all_full = ModelSpans(np.full((1, 2), np.inf), 0.0, 0, 1)
    all_full.save_duo_attention(tmp_path / "duo")
    assert np.isinf(ModelSpans.load_duo_attention(tmp_path / "duo", 2).spans).all()


def test_a_fit_has_them():
    def loss(spans):
        return 2 + np.maximum(1 - spans / [[100, 3], [290, 3]], 0).sum()

    fit = hs.fit_spans(
        loss, loss, tokens=300, num_layers=2, num_heads=2, head_dim=8, tolerance=1e-6, ramp=4, first_tokens=3
    )
    spans = fit.model_spans
    assert np.array_equal(spans.spans, np.where(fit.spans == 300, np.inf, fit.spans))
    assert np.isinf(spans.spans[1, 0])
    assert spans[1:4] == (4, 3, 2)
    assert spans.about["share_of_pairs"] == fit.share
