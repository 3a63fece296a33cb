"""Differences of versions of transformers since 4.57 from the one that the other tests run with."""

import pytest
from families import DECODERS, model_of
from peers import torch, transformers

import headspan.torch  # isort: skip

SPANS = [[2, 5.5, 0, 40], [30, 1, 7.25, 3]]


def cache_of(family, **options):
    model = model_of(family)
    model.set_attn_implementation("headspan")
    return headspan.torch.head_cache(model, SPANS, **options)


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("rule", ["causal", "sliding"])
def test_masks_of_queries_by_their_positions(rule, padding):
    """Versions 4.57 and 5.0 pass the positions of queries, later ones their number and the first position."""
    masks = transformers.masking_utils
    rules = {"causal": masks.causal_mask_function, "sliding": masks.sliding_window_causal_mask_function(5)}
    attended = torch.ones(2, 12, dtype=torch.int64)
    attended[0, :padding] = 0
    function = transformers.AttentionMaskInterface()["headspan"]
    arguments = {"batch_size": 2, "kv_length": 12, "mask_function": rules[rule], "attention_mask": attended}
    older = function(cache_position=torch.arange(8, 12), **arguments)
    newer = function(q_length=4, q_offset=8, **arguments)
    assert (newer is None) == (rule == "causal" and not padding)
    assert older is newer if newer is None else torch.equal(older, newer)


@torch.no_grad()
def test_a_cache_accepts_calls_of_older_versions():
    cache = cache_of("llama", slack=10)
    layer = cache.layers[0]
    for _ in range(2):
        layer.update(*torch.randn(2, 1, 2, 20, 8))
        layer.attend(torch.randn(1, 4, 20, 8))
    assert layer.get_mask_sizes(torch.arange(40, 43)) == layer.get_mask_sizes(3) == (43, 0)
    assert layer.get_max_cache_shape() == layer.get_max_length()
    for count, left in ((45, 40), (38, 38), (-2, 36), (0, 36)):  # up to 5.10 the number of tokens to keep
        layer.crop(count)
        assert layer.get_seq_length() == left


@pytest.mark.parametrize("family", DECODERS)
def test_windows_without_the_function_for_layer_types(monkeypatch, family):
    windows = [layer.window for layer in cache_of(family).layers]
    assert any(windows) == ("sliding_window" in DECODERS[family][1])
    monkeypatch.delattr(transformers.cache_utils, "get_layer_types_and_kwargs")
    assert [layer.window for layer in cache_of(family).layers] == windows


@pytest.mark.parametrize("family", DECODERS)
def test_windows_by_one_dictionary_for_all_layers(monkeypatch, family):
    """Up to 5.17 the function returns one dictionary instead of one for each layer."""
    windows = [layer.window for layer in cache_of(family).layers]
    function = transformers.cache_utils.get_layer_types_and_kwargs

    def older(config):
        kinds, arguments = function(config)
        return kinds, {name: value for layer in arguments for name, value in layer.items()}

    monkeypatch.setattr(transformers.cache_utils, "get_layer_types_and_kwargs", older)
    assert [layer.window for layer in cache_of(family).layers] == windows


def test_layers_that_share_keys_are_refused_in_older_versions(monkeypatch):
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    model.config.num_kv_shared_layers = 1
    monkeypatch.delattr(transformers.cache_utils, "get_layer_types_and_kwargs")
    with pytest.raises(ValueError, match="dummy"):
        headspan.torch.head_cache(model, SPANS)
