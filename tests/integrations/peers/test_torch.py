"""Torch's own attentions, in float64: both causal alignments and masks with gradients, and flex_attention without.

On a CPU flex_attention has no gradients.
"""

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Blockwise, Mask, Window
from peers import Attended, agree, array, assert_close, torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

import headspan.torch  # isort: skip

# flex_attention warns once that it is meant to be compiled, which takes a compiler and a minute.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def tensors(queries, keys):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(2, 3, count, 8, dtype=torch.float64, generator=generator, requires_grad=True)
        for count in (queries, keys, keys)
    ]


@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (4, 9), (9, 4)])
def test_torch_is_causal(queries, keys):
    """The causal mask begins at the top left: query i sees keys 0 to i, as if it stood at position i."""
    inputs = tensors(queries, keys)
    out = scaled_dot_product_attention(*inputs, is_causal=True)
    agree(Attended(None, *inputs, out), query_positions=np.arange(queries))


@pytest.mark.filterwarnings("ignore:Lower right causal bias will produce NaNs")
@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (4, 9), (1, 9), (9, 4)])
def test_torch_causal_lower_right(queries, keys):
    """The last query sees the last key, as everywhere in headspan, and if keys are too few the first queries see none.

    Torch warns of NaN for such queries, but their results are 0.
    """
    inputs = tensors(queries, keys)
    out = scaled_dot_product_attention(*inputs, causal_lower_right(queries, keys))
    agree(Attended(None, *inputs, out), causal=True)


def test_torch_attn_mask():
    """Numbers for pairs, with their gradient; -inf removes a pair, as false does in a mask of bool."""
    inputs = tensors(6, 9)
    mask = torch.randn(3, 6, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(3), requires_grad=True)
    out = scaled_dot_product_attention(*inputs, mask)
    agree(Attended(None, *inputs, out), learned={"pair_bias": mask}, causal=False)

    kept = array(mask) > -0.5
    out = scaled_dot_product_attention(*inputs, torch.tensor(kept))
    agree(Attended(None, *inputs, out), pattern=Mask(kept, per_head=True), causal=False)
    agree(Attended(None, *inputs, out), pair_bias=np.where(kept, 0, -np.inf), causal=False)


def assert_flex(queries, keys, allowed=None, score=None, **options):
    """`allowed` is a mask_mod, `score` a score_mod; the rest are headspan's options."""
    inputs = [tensor.detach() for tensor in tensors(queries, keys)]
    block_mask = allowed and create_block_mask(allowed, None, None, queries, keys, device="cpu")
    theirs = flex_attention(*inputs, score_mod=score, block_mask=block_mask)
    assert_close(hs.attention(*inputs, **options), array(theirs), "out")


def test_flex_sliding_window():
    """With `q - kv <= w` a query sees itself and w keys before it."""

    def allowed(batch, head, query, key):
        return (query >= key) & (query - key <= 4)

    assert_flex(40, 40, allowed, pattern=Window(5))


def test_flex_query_index():
    """Queries are counted from the first key, however many there are."""

    def allowed(batch, head, query, key):
        return (query >= key) & (query - key <= 4)

    assert_flex(7, 40, allowed, span=4, ramp=0, query_positions=np.arange(7))


def test_flex_document_mask():
    documents = torch.repeat_interleave(torch.arange(3), torch.tensor([5, 20, 15]))

    def allowed(batch, head, query, key):
        return (documents[query] == documents[key]) & (query >= key)

    assert_flex(40, 40, allowed, segment_ids=documents.numpy())


def test_flex_call():
    """The same call, with functions that capture tensors."""
    documents, slopes = torch.repeat_interleave(torch.arange(3), torch.tensor([5, 20, 15])), torch.tensor([0.1, 0.3, 1])

    def allowed(batch, head, query, key):
        return (documents[query] == documents[key]) & (query >= key)

    def score(score, batch, head, query, key):
        return 2 * torch.tanh(score / 2) - slopes[head] * (query - key)

    inputs = [tensor.detach() for tensor in tensors(40, 40)]
    block_mask = create_block_mask(allowed, None, None, 40, 40, device="cpu")
    theirs = flex_attention(*inputs, score_mod=score, block_mask=block_mask)
    ours = headspan.torch.flex_attention(*inputs, score_mod=score, block_mask=block_mask)
    assert_close(array(ours), array(theirs), "out")


def test_flex_blocks():
    def allowed(batch, head, query, key):
        return (query // 8 - key // 8).abs() <= 1

    assert_flex(40, 40, allowed, pattern=Blockwise(8, back=1, ahead=1), causal=False)


def test_flex_score_mod():
    """A score_mod gets scaled scores, which softcap bounds before slopes are subtracted."""
    slopes = torch.tensor([0.5, 0.25, 0.125], dtype=torch.float64)

    def allowed(batch, head, query, key):
        return query >= key

    def score(score, batch, head, query, key):
        return 0.7 * torch.tanh(score / 0.7) - slopes[head] * (query - key)

    assert_flex(20, 20, allowed, score, softcap=0.7, alibi_slopes=slopes)
