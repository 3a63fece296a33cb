"""The numbers of a report."""

import headspan as hs
import numpy as np
from headspan.lab.report import measure, sections
from headspan.lab.training.baselines import Pairs, pairs_in_window


def test_mean_weight_at_each_distance():
    weights = np.arange(2 * 3 * 3.0).reshape(2, 3, 3)
    expected = [[(0 + 4 + 8) / 3, (3 + 7) / 2, 6], [(9 + 13 + 17) / 3, (12 + 16) / 2, 15]]
    assert np.allclose(measure._mean_by_distance(weights), expected)


def test_look_shows_the_widest_head_and_weights_that_sum_to_one():
    query, key, value = np.random.default_rng(0).standard_normal((3, 2, 2, 70, 8))
    spans = np.array([[3.0, 9.0], [20.0, 1.0]])
    seen = measure.sample_maps([(query, key, value)] * 2, spans, 4)
    assert (seen.close_head, seen.close_tokens) == ((1, 0), 23 + 8)  # up to the reach of the widest head, and beyond
    assert seen.by_distance.shape == (2, 2, 31, 24)
    assert np.allclose(seen.by_distance.sum(axis=-1), 1)
    for layer in range(2):
        weights = hs.attention_weights(query[:1], key[:1], span=spans[layer], ramp=4)[0]
        for row, distance in ((0, 0), (5, 7), (30, 23)):
            expected = weights[:, 70 - 31 + row, 70 - 31 + row - distance]
            np.testing.assert_array_equal(seen.by_distance[layer, :, row, distance], expected)
    assert np.allclose(seen.close, weights[0, -31:, -31:])
    assert seen.profiles[0, 0, :7].min() > 0
    assert seen.profiles[0, 0, 7:].max() == 0


def test_maps_of_a_short_passage_end_at_its_beginning_and_those_of_a_long_reach_are_no_larger():
    layers = [tuple(np.random.default_rng(0).standard_normal((3, 1, 2, 60, 8)))]
    seen = measure.sample_maps(layers, [np.array([500.0, 2.0])], 4)
    assert seen.by_distance.shape == (1, 2, 40, 60)
    assert not seen.by_distance[0, 0, 0, 21:].any()  # the first row is character 20
    assert seen.by_distance[0, 0, 0, :21].all()
    short = [tuple(array[:, :, :9] for array in layers[0])]
    assert measure.sample_maps(short, [np.array([500.0, 2.0])], 4).by_distance.shape == (1, 2, 9, 9)
    assert measure.sample_maps(layers, [np.array([1.0, 2.0])], 0).close_tokens == 16


def test_work_and_memory_saved_are_those_of_the_spans():
    layers = [tuple(np.random.default_rng(i).standard_normal((3, 2, 2, 70, 8), np.float32)) for i in range(2)]
    spans = np.array([[3.0, 9.0], [20.0, 1.0]])
    saving = measure.measure_saving(layers, spans, ramp=4, rounds=1)
    caches = [hs.SpanCache(1, 2, 8, span=span, ramp=4) for span in spans]
    assert saving.cache == sum(cache.nbytes for cache in caches)
    assert saving.full_cache == 2 * 2 * 70 * (8 + 8) * 4
    maps = [hs.attention_weights(*layers[i][:2], span=spans[i], ramp=4) for i in range(2)]
    assert 2 * pairs_in_window(spans, 4, 70) == np.count_nonzero(maps)
    pairs = Pairs(1234, 2 * 2 * (70 * 71 // 2), 70, 0)
    text = sections.saved(saving, pairs)
    assert "1,234" in text
    assert "9,940" in text
    assert "one window of 70 characters." in text
    assert "2 windows of 70 characters" in text
    assert f"{saving.cache / 1024:,.0f} KiB" in text
    assert f"{saving.full_cache / saving.cache:.1f} times" in text
