"""Longformer and BigBird, whose layers compute in chunks and blocks what headspan computes with patterns."""

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Blocks, Blockwise, Global, Random, Window
from peers import array, assert_close, make_loud, torch, transformers

WIDTH, HEADS = 24, 3


def heads_of(projection, hidden):
    """The projected tokens, (batch, heads, tokens, head_dim)."""
    batch, tokens, _ = hidden.shape
    return array(projection(hidden).view(batch, tokens, HEADS, WIDTH // HEADS).transpose(1, 2))


def rows_of(out):
    """What a layer gives, (batch, tokens, heads * head_dim), by heads."""
    batch, tokens, _ = out.shape
    return array(out.view(batch, tokens, HEADS, WIDTH // HEADS).transpose(1, 2))


def hidden_of(tokens):
    return torch.randn(2, tokens, WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("global_tokens", [(), (0,), (0, 7, 19)])
def test_longformer(global_tokens):
    """A window of w is w // 2 keys on both sides. The rows of global tokens have other projections."""
    window, count = 6, 24
    config = transformers.LongformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_window=[window], attention_probs_dropout_prob=0.0
    )
    layer = transformers.models.longformer.modeling_longformer.LongformerSelfAttention(config, 0)
    torch.manual_seed(0)
    make_loud(layer)
    hidden = hidden_of(count)
    mask = torch.zeros(2, count)
    mask[:, list(global_tokens)] = 10000.0
    (out,) = layer(
        hidden.clone(),
        attention_mask=mask,
        is_index_masked=mask < 0,
        is_index_global_attn=mask > 0,
        is_global_attn=bool(global_tokens),
    )
    theirs = rows_of(out)

    q, k, v = (heads_of(projection, hidden) for projection in (layer.query, layer.key, layer.value))
    pattern = Window(window // 2 + 1, ahead=window // 2) | Global(global_tokens)
    ours = hs.attention(q, k, v, pattern=pattern, causal=False)
    global_qkv = (heads_of(each, hidden) for each in (layer.query_global, layer.key_global, layer.value_global))
    ours[:, :, global_tokens] = hs.attention(*global_qkv, causal=False)[:, :, global_tokens]
    assert_close(ours, theirs, "out")


def bigbird(monkeypatch, training):
    """Query, key, value, the layer's result, and the random blocks of each head by block of queries."""
    block_size, blocks = 4, 12
    config = transformers.BigBirdConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        block_size=block_size,
        num_random_blocks=2,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=64,
    )
    module = transformers.models.big_bird.modeling_big_bird
    layer = module.BigBirdBlockSparseAttention(config, seed=3).train(training)
    torch.manual_seed(0)
    make_loud(layer)
    drawn = []
    original = layer._bigbird_block_rand_mask_with_head
    monkeypatch.setattr(
        layer, "_bigbird_block_rand_mask_with_head", lambda **sizes: drawn.append(original(**sizes)) or drawn[-1]
    )
    hidden = hidden_of(block_size * blocks)
    blocked, band, from_mask, to_mask = module.BigBirdModel.create_masks_for_block_sparse_attn(
        torch.ones(hidden.shape[:2]), block_size
    )
    out, _ = layer(hidden, band, from_mask, to_mask, blocked, blocked)
    inputs = [heads_of(projection, hidden) for projection in (layer.query, layer.key, layer.value)]
    return inputs, rows_of(out), np.stack(drawn[0]), block_size


def bigbird_pattern(tokens, block_size):
    """Three blocks of a window, and the first and the last block global."""
    edges = (*range(block_size), *range(tokens - block_size, tokens))
    return Blockwise(block_size, back=1, ahead=1) | Global(edges)


def test_bigbird(monkeypatch):
    inputs, theirs, drawn, block_size = bigbird(monkeypatch, training=True)
    tokens = theirs.shape[2]
    chosen = np.zeros((HEADS, tokens // block_size, tokens // block_size), bool)
    rows = np.arange(1, tokens // block_size - 1)[:, None]
    for head in range(HEADS):
        chosen[head, rows, drawn[head]] = True
    assert chosen.sum() == drawn.size  # none twice
    seen = bigbird_pattern(tokens, block_size)
    pattern = seen | Blocks(chosen, block_size, per_head=True)
    assert_close(hs.attention(*inputs, pattern=pattern, causal=False), theirs, "out")

    redrawn = seen | Random(drawn.shape[-1], block_size, per_head=True, avoid=seen)  # other blocks, by the same rule
    assert np.array_equal(
        redrawn.mask(tokens, num_heads=HEADS).sum(axis=-1), pattern.mask(tokens, num_heads=HEADS).sum(axis=-1)
    )


def test_bigbird_eval(monkeypatch):
    """In eval mode nothing is drawn: every random block is the first one, which counts once more for each draw."""
    inputs, theirs, drawn, block_size = bigbird(monkeypatch, training=False)
    assert drawn.shape[-1] == 2
    assert not drawn.any()
    tokens = theirs.shape[2]
    again = np.zeros((tokens, tokens), theirs.dtype)
    again[block_size:-block_size, :block_size] = np.log(1 + drawn.shape[-1])
    pattern = bigbird_pattern(tokens, block_size)
    assert_close(hs.attention(*inputs, pattern=pattern, causal=False, pair_bias=again), theirs, "out")
