"""Texts that are continued: the caches of transformers, and headspan with the same keys or with its cache."""

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Window
from peers import DECODER, agree, array, assert_close, attentions, decoder, model_of, tokens, torch, transformers


@pytest.mark.parametrize("window", [None, 4])
def test_cache(monkeypatch, window):
    """A prompt in chunks: the last query stands at the last key, also where old keys were dropped."""
    model, ids = decoder(window), tokens(12)
    cache = transformers.DynamicCache(config=model.config)
    for first, end in ((0, 5), (5, 9), (9, 12)):
        for attended in attentions(model, monkeypatch, input_ids=ids[:, first:end], cache=cache):
            assert attended.key.shape[2] == (end if window is None else min(first, window - 1) + end - first)
            agree(attended, pattern=window and Window(window))


@pytest.mark.parametrize(("past", "new"), [(0, 5), (6, 3), (9, 1)])
def test_static_cache(monkeypatch, past, new):
    """The cache has room for 16 keys. Queries have given positions, and room after the last key is not read."""
    model, ids = decoder(), tokens(past + new)
    cache = transformers.StaticCache(model.config, max_cache_len=16)
    if past:
        with torch.no_grad():
            model(input_ids=ids[:, :past], cache=cache)
    at = past + np.arange(new)
    for attended in attentions(model, monkeypatch, input_ids=ids[:, past:], cache=cache):
        assert attended.key.shape[2] == 16
        agree(attended, query_positions=at)
        ranges = np.stack([np.zeros_like(at), at + 1], axis=-1)
        agree(attended, key_ranges=ranges, causal=False)
        query, key, value = (array(each).copy() for each in attended[1:4])
        key[:, :, past + new :] = value[:, :, past + new :] = np.nan
        for options in ({"query_positions": at}, {"key_ranges": ranges, "causal": False}):
            assert_close(hs.attention(query, key, value, **options), array(attended.out), "out")


@pytest.mark.parametrize(("past", "new"), [(0, 3), (1, 2), (2, 5), (3, 1), (4, 1), (7, 1), (7, 3)])
def test_static_sliding_cache(monkeypatch, past, new):
    """The cache has room for w keys. When it is full, the last query stands at the last key."""
    window = 4
    model, ids = decoder(window), tokens(past + new)
    cache = transformers.StaticCache(model.config, max_cache_len=16)
    if past:
        with torch.no_grad():
            model(input_ids=ids[:, :past], cache=cache)
    for attended in attentions(model, monkeypatch, input_ids=ids[:, past:], cache=cache):
        if past + new < window:
            assert attended.key.shape[2] == window
            agree(attended, query_positions=past + np.arange(new))
        else:
            agree(attended, pattern=Window(window))


def test_gpt_oss_cache(monkeypatch):
    """Token by token, headspan also keeps w keys in layers with a window and all keys in the others."""
    window, count = 4, 13
    config = transformers.GptOssConfig(**DECODER, sliding_window=window, num_local_experts=2, num_experts_per_tok=1)
    model, ids, theirs = (
        model_of(transformers.GptOssModel, config),
        tokens(count),
        transformers.DynamicCache(config=config),
    )
    sizes = (2, DECODER["num_key_value_heads"], DECODER["head_dim"])
    sliding, full = hs.SpanCache(*sizes, pattern=Window(window)), hs.SpanCache(*sizes)
    for first, end in [(0, 5), *((token, token + 1) for token in range(5, count))]:  # a prompt, then one by one
        seen = attentions(model, monkeypatch, input_ids=ids[:, first:end], cache=theirs)
        for attended, ours in zip(seen, (sliding, full), strict=True):
            query, key, value = (array(each)[:, :, first - end :] for each in attended[1:4])
            out = ours.attend(query, key, value, sinks=array(attended.layer.sinks))
            assert_close(out, array(attended.out), "out")
    assert sliding.count == full.count == count
    assert sliding.nbytes == 2 * window * np.prod(sizes) * 4
