"""Sentences that say what was meant: calls that newcomers made, and what they are told."""

import headspan as hs
import numpy as np
import pytest
from bad_values import Tensor
from cases import normals
from headspan.patterns import Blocks, Mask

QUERY = normals(0, 1, 2, 20, 4)


def attend_to_cache(**options):
    return hs.SpanCache(1, 2, 4, dtype=QUERY.dtype).attend(QUERY, QUERY, QUERY, **options)


def attend_to_stream(**options):
    stream = hs.memory.StreamingAttention(1, 2, 4, slots=8, window=2, decay=0.9, dtype=QUERY.dtype)
    return stream.attend(QUERY, QUERY, QUERY, **options)


def test_rows_and_columns_as_masks():
    late = np.arange(20) > 3
    expected = hs.attention_weights(QUERY, QUERY, rows=np.flatnonzero(late), cols=np.flatnonzero(~late))
    np.testing.assert_array_equal(hs.attention_weights(QUERY, QUERY, rows=late, cols=~late), expected)


CALLS = {
    "a mask of rows that is too short": (
        lambda: hs.attention_weights(QUERY, QUERY, rows=np.ones(19, bool)),
        ValueError, "rows as a mask must have the shape (20,), not (19,)",
    ),
    "one mask of blocks for all heads": (
        lambda: Blocks(np.ones((5, 5), bool), 4, per_head=True),
        ValueError,
        "mask of Blocks per head must have the shape (heads, blocks, blocks) or (batch, heads, blocks, blocks), "
        "not (5, 5)",
    ),
    "a mask of blocks for each head, unasked": (
        lambda: hs.attention(QUERY, QUERY, QUERY, pattern=Blocks(np.ones((2, 5, 5), bool), 4)),
        ValueError,
        "pattern must be for a batch of 1, but has Blocks for one of 2; per_head=True is for a mask of each head",
    ),
    "rectangles of other sizes": (
        lambda: Blocks(np.ones((2, 3), bool), (4, 3)).mask(20),
        ValueError, "Blocks with a mask of 2 x 3 blocks of (4, 3) are for 7 to 8 keys; for 20 the mask must be 5 x 7",
    ),
    "blocks of other sizes": (
        lambda: Blocks(np.ones((2, 2), bool), 4).mask(20),
        ValueError, "Blocks with a mask of 2 x 2 blocks of 4 are for 5 to 8 keys; for 20 the mask must be 5 x 5",
    ),
    "a mask of other sizes": (
        lambda: hs.attention(QUERY, QUERY, QUERY, pattern=Mask(np.ones((10, 30), bool))),
        ValueError, "Mask of shape (10, 30) is for 30 keys and up to 10 queries, not for 20 and 20",
    ),
    "a mask that looks both ways": (
        lambda: hs.attention(QUERY, QUERY, QUERY, pattern=Mask(np.ones((20, 20), bool))),
        ValueError,
        "causal must be given with Mask(20 x 20), which looks both ways: True for keys up to the query's own, False "
        "for all of them",
    ),
    "a mask for each head, unasked": (
        lambda: hs.attention(QUERY, QUERY, QUERY, pattern=Mask(np.ones((2, 20, 20), bool))),
        ValueError,
        "pattern must be for a batch of 1, but has Mask for one of 2; per_head=True is for a mask of each head",
    ),
    "a mask of another shape": (
        lambda: Mask(np.ones(20, bool)),
        ValueError, "Mask must have the shape (tokens, key_tokens) or (batch, tokens, key_tokens), not (20,)",
    ),
    "a mask of numbers": (lambda: Mask(np.ones((3, 3))), TypeError, "Mask must be of bool, not float64"),
    "a function that returns numbers": (
        lambda: Mask(lambda query, key: query - key, tokens=20),
        TypeError, "the function of Mask must return an array of bool, not of int64",
    ),
    "a function that returns another shape": (
        lambda: Mask(lambda query, key: np.ones((3, 5), bool), tokens=20),
        ValueError,
        "the result of the function of Mask must have the shape of its arguments together, (20, 20), not (3, 5)",
    ),
    "a function of a mask without sizes": (
        lambda: Mask(lambda query, key: query > key),
        TypeError, "tokens must be given for a Mask of a function",
    ),
    "bits of other keys": (
        lambda: Mask(np.zeros((5, 2), np.uint8), key_tokens=20),
        ValueError, "packed bits of 20 keys must have 3 bytes a query, not 2",
    ),
    "a mask of pairs as a pattern": (
        lambda: hs.attention(QUERY, QUERY, QUERY, pattern=np.ones((20, 20), bool)),
        TypeError,
        "pattern must be a Pattern or a list of Patterns, not ndarray; patterns.Mask(mask) makes a pattern of a mask",
    ),
    "no path": (
        lambda: hs.explore(QUERY, QUERY).save(None),
        TypeError, "path must be a path such as 'view.html', not None",
    ),
    "steps in no order": (
        lambda: hs.plot.span_history([3, 1, 2], np.ones((3, 2))),
        ValueError, "steps must not decrease, but decrease after 3",
    ),
    "a tensor that needs a gradient": (
        lambda: hs.attention(Tensor(), QUERY, QUERY),
        TypeError,
        "query must be what NumPy can read as an array, not Tensor (Can't call numpy() on Tensor that requires grad); "
        "headspan.torch.attention takes tensors and has their gradients",
    ),
    "an option that is none": (
        lambda: hs.attention(QUERY, QUERY, QUERY, spans=3),
        TypeError, "unknown option 'spans'; did you mean 'span'?",
    ),
    "an option of another library": (
        lambda: hs.attention(QUERY, QUERY, QUERY, attn_mask=QUERY),
        TypeError,
        "unknown option 'attn_mask'; write pair_bias=, which is added to scores: "
        "where(mask, 0, -inf) for a boolean mask that is True for pairs to keep",
    ),
    "the length of texts": (
        lambda: hs.cost(seq_len=100, num_heads=2, head_dim=4),
        TypeError,
        "unknown option 'seq_len'; write tokens= in headspan.cost; attention reads lengths from the shapes",
    ),
    "a size that is misspelt": (
        lambda: hs.cost(token=100, num_heads=2, head_dim=4),
        TypeError, "unknown option 'token'; did you mean 'tokens'?",
    ),
    "an option of a cache": (
        lambda: attend_to_cache(max_span=3),
        TypeError, "unknown option 'max_span'; did you mean 'span'?",
    ),
    "an option that a cache has from the start": (
        lambda: attend_to_cache(rmap=3),
        TypeError,
        "unknown option 'rmap'; a cache accepts include_self, key_start, key_stop, scale, temperature, alibi_slopes, "
        "softcap, sinks, distance_bias, distance_buckets, persistent_key, persistent_value, dropout, seed",
    ),
    "an option of a stream": (
        lambda: attend_to_stream(softcaps=3),
        TypeError, "unknown option 'softcaps'; did you mean 'softcap'?",
    ),
    "an option that a stream does not take": (
        lambda: attend_to_stream(spans=3),
        TypeError,
        "unknown option 'spans'; a stream accepts scale, temperature, alibi_slopes, softcap, sinks",
    ),
    "a mask of bool": (
        lambda: hs.attention(QUERY, QUERY, QUERY, pair_bias=np.ones((20, 20), bool)),
        TypeError, "pair_bias must be numbers, not bool; where(mask, 0, -inf) converts a boolean mask",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "sentence"), CALLS.values(), ids=CALLS)
def test_the_sentence(call, error, sentence):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == sentence


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ValueError, match=r"^path must be a file, such as '.*view\.html', and not a folder$"):
        hs.explore(QUERY, QUERY).save(tmp_path)


@pytest.mark.unsanitized  # the sanitizer has an allocator of its own
def test_weights_of_too_many_pairs():
    query = np.zeros((1, 1, 2_000_000, 1), np.float32)
    with pytest.raises(MemoryError, match=r"14901 GiB; pool= pools them to blocks, rows= and cols= select some$"):
        hs.attention_weights(query, query)
