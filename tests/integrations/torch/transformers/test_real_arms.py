"""The arms of the comparison on a real model, in `experiments/real`."""

import headspan as hs
import numpy as np
import pytest
from helpers import ROOT
from peers import torch, transformers

import headspan.torch  # isort: skip

FITTED = np.array([[40.0, 100.0], [np.inf, 7.0]])
TOKENS = 300


@pytest.fixture
def modules(monkeypatch):
    """The modules `arms` and `received`."""
    monkeypatch.syspath_prepend(str(ROOT / "experiments" / "real"))
    import arms
    import received

    return arms, received


@pytest.mark.parametrize(("rows", "newest", "decay"), [(60, 16, 1.0), (48, 24, 0.97)])
def test_received_weight_is_the_rule_of_the_stream(modules, rows, newest, decay):
    _, received = modules
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal((heads, TOKENS, 8)).astype(np.float32) for heads in (6, 2, 2))
    rule = received.Rule(np.full((1, 2), rows), newest, decay)
    out = received.attend(*(torch.from_numpy(array) for array in (query, key, value)), rule, 0)
    stream = hs.memory.StreamingAttention(1, 2, 8, slots=rows, window=newest, decay=decay)
    for first in range(0, TOKENS, received.PIECE):
        piece = np.s_[:, first : first + received.PIECE]
        expected = stream.attend(query[piece][None], key[piece][None], value[piece][None])
        np.testing.assert_allclose(out[piece].numpy(), expected[0], atol=2e-6)


def test_received_weight_inside_spans_that_keeps_all_is_the_model_with_the_spans(modules):
    arms, received = modules
    headspan.torch.register()
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=50, **sizes, num_key_value_heads=2, attn_implementation="headspan", initializer_range=0.5
    )
    model = transformers.LlamaForCausalLM(config).eval()
    windows = torch.randint(50, (2, TOKENS))
    rule = received.Rule(received.rows_of(FITTED, TOKENS), 16, 1.0, FITTED)
    expected = arms.losses(model, FITTED, windows)
    np.testing.assert_allclose(received.losses(model, rule, windows), expected, rtol=1e-5)
    assert abs(expected[0] - arms.losses(model, None, windows)[0]) > 1e-3


def test_arms_keep_at_most_the_bytes_of_the_fitted_spans(modules):
    arms, received = modules
    bytes_of_fit = arms.cache_bytes(FITTED, TOKENS)
    scores = np.array([[1.0, 3.0], [2.0, 0.0]])
    tables = {
        "one span": arms.equal_span(FITTED, TOKENS),
        "one span a layer": arms.equal_span_per_layer(FITTED, TOKENS),
        "dealt": arms.dealt(FITTED, 0),
        "full or window": arms.full_or_window(scores, np.full((2, 2), 150.0), TOKENS),
    }
    limits = dict.fromkeys(tables, bytes_of_fit) | {"full or window": arms.cache_bytes(np.full((2, 2), 150.0), TOKENS)}
    for name, table in tables.items():
        assert arms.cache_bytes(table, TOKENS) <= limits[name], name
    assert np.isinf(tables["full or window"]).tolist() == [[False, True], [False, False]]
    rows = received.rows_of(FITTED, TOKENS).sum()
    assert 2 * rows == bytes_of_fit // 4
    for kept in (received.equal_rows(FITTED, TOKENS), received.fitted_rows(FITTED, TOKENS)):
        assert kept.sum() <= rows
