"""Bad patterns and masks: each gives one sentence that names it."""

import headspan as hs
import numpy as np
import pytest
import scipy.sparse as sparse
from bad_values import SMALL, check_names, check_sentence, ones

BOTH = (TypeError, ValueError)
EYE = np.eye(3, dtype=bool)


# what is wrong: the error, names of which its message has at least one, and the function that makes the pattern
PATTERNS = {
    "a string": (TypeError, ["pattern"], lambda p: "local"),
    "a number": (TypeError, ["pattern"], lambda p: 3),
    "a class": (TypeError, ["pattern"], lambda p: p.Full),
    "a mask": (TypeError, ["pattern"], lambda p: np.ones((5, 6), dtype=bool)),
    "a list of strings": (TypeError, ["pattern"], lambda p: ["local"] * 4),
    "a list with None": (TypeError, ["pattern"], lambda p: [p.Full(), None, p.Full(), p.Full()]),
    "lists of other items": (ValueError, ["pattern", "item"], lambda p: [[p.Full()] * 4] * 3),
    "lists of other heads": (ValueError, ["pattern"], lambda p: [[p.Full()] * 3] * 2),
    "lists of none": (ValueError, ["pattern"], lambda p: [[], []]),
    "lists in lists": (TypeError, ["pattern"], lambda p: [[[p.Full()]]] * 2),
    "a list and a pattern": (TypeError, ["pattern"], lambda p: [p.Full(), [p.Full()]]),
    "global tokens of other items": (ValueError, ["pattern", "item"], lambda p: p.Global([[0], [1], [2]])),
    "other items, inside": (ValueError, ["pattern", "item"], lambda p: [p.Full()] * 3 + [p.Global([[0], [1], [2]])]),
    "items of two numbers": (ValueError, ["item"], lambda p: p.Global([[0], [1]]) | p.Global([[0], [1], [2]])),
    "blocks of other items": (ValueError, ["pattern", "item"], lambda p: p.Blocks(np.stack([EYE] * 3), 2)),
    "blocks of too many axes": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(np.ones((2, 4, 3, 3), bool), 2)),
    "items of other heads": (
        ValueError, ["mask", "Blocks"], lambda p: p.Blocks([[EYE], [EYE, EYE]], 2, per_head=True),
    ),
    "a list too short": (ValueError, ["pattern"], lambda p: [p.Full()] * 3),
    "a list too long": (ValueError, ["pattern"], lambda p: [p.Full()] * 5),
    "a list of one": (ValueError, ["pattern"], lambda p: [p.Full()]),
    "an empty list": (ValueError, ["pattern"], lambda p: []),
    "union with a number": (TypeError, ["pattern", "Window"], lambda p: p.Window(4) | 3),
    "intersection with a mask": (TypeError, ["pattern", "Window"], lambda p: p.Window(4) & [True]),
    "size zero": (ValueError, ["size"], lambda p: p.Window(0)),
    "size not whole": (TypeError, ["size"], lambda p: p.Window(1.5)),
    "size a string": (TypeError, ["size"], lambda p: p.Window("3")),
    "size None": (TypeError, ["size"], lambda p: p.Window(None)),
    "ahead negative": (ValueError, ["ahead"], lambda p: p.Window(4, -1)),
    "ahead not whole": (TypeError, ["ahead"], lambda p: p.Window(4, 0.5)),
    "dilation zero": (ValueError, ["dilation"], lambda p: p.Window(4, dilation=0)),
    "dilation negative": (ValueError, ["dilation"], lambda p: p.Window(4, dilation=-2)),
    "dilation not whole": (TypeError, ["dilation"], lambda p: p.Window(4, dilation=2.0)),
    "stride zero": (ValueError, ["stride"], lambda p: p.Strided(0)),
    "stride negative": (ValueError, ["stride"], lambda p: p.Strided(-3)),
    "stride not whole": (TypeError, ["stride"], lambda p: p.Strided(2.5)),
    "offset negative": (ValueError, ["offset"], lambda p: p.Strided(3, offset=-1)),
    "offset of the stride": (ValueError, ["offset"], lambda p: p.Strided(3, offset=3)),
    "offset not whole": (TypeError, ["offset"], lambda p: p.Strided(3, offset=0.5)),
    "fixed block zero": (ValueError, ["block_size"], lambda p: p.Fixed(0, 1)),
    "fixed block not whole": (TypeError, ["block_size"], lambda p: p.Fixed(2.5, 1)),
    "columns zero": (ValueError, ["columns"], lambda p: p.Fixed(3, 0)),
    "columns beyond the block": (ValueError, ["columns"], lambda p: p.Fixed(3, 4)),
    "columns not whole": (TypeError, ["columns"], lambda p: p.Fixed(3, 1.5)),
    "blockwise block zero": (ValueError, ["block_size"], lambda p: p.Blockwise(0)),
    "blockwise block a string": (TypeError, ["block_size"], lambda p: p.Blockwise("2")),
    "back negative": (ValueError, ["back"], lambda p: p.Blockwise(2, back=-1)),
    "blocks ahead negative": (ValueError, ["ahead"], lambda p: p.Blockwise(2, ahead=-1)),
    "blocks ahead not whole": (TypeError, ["ahead"], lambda p: p.Blockwise(2, ahead=1.5)),
    "token negative": (ValueError, ["token"], lambda p: p.Global(-1)),
    "one token negative": (ValueError, ["token"], lambda p: p.Global([0, -2])),
    "token out of range": (ValueError, ["token", "Global"], lambda p: p.Global(6)),
    "one token out of range": (ValueError, ["token", "Global"], lambda p: p.Window(3) | p.Global([0, 17])),
    "tokens not whole": (TypeError, ["token"], lambda p: p.Global([0.5])),
    "tokens a string": (TypeError, ["token"], lambda p: p.Global("all")),
    "tokens an array of no axis, not whole": (TypeError, ["tokens of Global"], lambda p: p.Global(np.array(0.5))),
    "tokens of three axes": (BOTH, ["token"], lambda p: p.Global([[[0, 1]], [[2, 3]]])),
    "a token and a list": (TypeError, ["token"], lambda p: p.Global([0, [2, 3]])),
    "blocks of integers": (TypeError, ["mask", "Blocks"], lambda p: p.Blocks(EYE.astype(int), 2)),
    "blocks of floats": (TypeError, ["mask", "Blocks"], lambda p: p.Blocks(EYE.astype(float), 2)),
    "blocks not square": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[:2], 2)),
    "sparse blocks not square": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(sparse.csr_array(EYE[:2]), 2)),
    "blocks of one axis": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[0], 2)),
    "blocks for fewer tokens": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[:2, :2], 2)),
    "blocks for more tokens": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(np.eye(4, dtype=bool), 2)),
    "blocks for other tokens, inside": (ValueError, ["mask", "Blocks"], lambda p: p.Full() & p.Blocks(EYE, 1)),
    "block size zero": (ValueError, ["block_size"], lambda p: p.Blocks(EYE, 0)),
    "block size not whole": (TypeError, ["block_size"], lambda p: p.Blocks(EYE, 2.0)),
    "a block of no keys": (ValueError, ["block_size"], lambda p: p.Blocks(EYE, (2, 0))),
    "a block of three sides": (ValueError, ["block_size"], lambda p: p.Blocks(EYE, (2, 2, 2))),
    "a block of a letter": (TypeError, ["block_size"], lambda p: p.Blocks(EYE, "2")),
    "a block of half a key": (TypeError, ["block_size"], lambda p: p.Blocks(EYE, (2, 1.5))),
    "rectangles for no number of tokens": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE, (2, 1))),
    "rectangles for fewer keys": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[:2, :1], (4, 5))),
    "rectangles turned round": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[:2], (2, 3))),
    "heads of other blocks": (ValueError, ["mask of Blocks"], lambda p: p.Blocks([EYE, EYE[:2, :2]], 2, per_head=True)),
    "no blocks": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[:0, :0], 2)),
    "blocks of other heads": (ValueError, ["head", "Blocks"], lambda p: p.Blocks(np.stack([EYE] * 3), 2, True)),
    "blocks of heads without heads": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE, 2, per_head=True)),
    "blocks of heads without per_head": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(np.stack([EYE] * 4), 2)),
    "blocks a number": (TypeError, ["mask", "Blocks"], lambda p: p.Blocks(3, 2)),
    "blocks of heads None": (TypeError, ["mask of Blocks"], lambda p: p.Blocks(None, 2, per_head=True)),
    "blocks of heads of no axis": (TypeError, ["mask of Blocks"], lambda p: p.Blocks(EYE[0, 0], 2, per_head=True)),
    "rows too few": (ValueError, ["indptr", "Blocks"], lambda p: p.Blocks(([0, 1, 2], [0, 1]), 2)),
    "rows that decrease": (ValueError, ["indptr", "Blocks"], lambda p: p.Blocks(([0, 2, 1, 2], [0, 1]), 2)),
    "rows that start late": (ValueError, ["indptr", "Blocks"], lambda p: p.Blocks(([1, 1, 2, 2], [0, 1]), 2)),
    "rows beyond the indices": (ValueError, ["ind", "Blocks"], lambda p: p.Blocks(([0, 1, 2, 9], [0, 1]), 2)),
    "rows of floats": (TypeError, ["indptr", "Blocks"], lambda p: p.Blocks(([0.0, 1.5, 2, 2], [0, 1]), 2)),
    "columns out of range": (ValueError, ["indices", "Blocks"], lambda p: p.Blocks(([0, 1, 2, 2], [0, 3]), 2)),
    "negative columns": (ValueError, ["indices", "Blocks"], lambda p: p.Blocks(([0, 1, 2, 2], [0, -1]), 2)),
    "random none": (ValueError, ["blocks"], lambda p: p.Random(0, 2)),
    "random negative": (ValueError, ["blocks"], lambda p: p.Random(-1, 2)),
    "random not whole": (TypeError, ["blocks"], lambda p: p.Random(1.5, 2)),
    "random block zero": (ValueError, ["block_size"], lambda p: p.Random(1, 0)),
    "random seed not whole": (TypeError, ["seed"], lambda p: p.Random(1, 2, seed=0.5)),
    "random seed None": (TypeError, ["seed"], lambda p: p.Random(1, 2, seed=None)),
    "random per head a number": (TypeError, ["per_head"], lambda p: p.Random(1, 2, per_head=4)),
    "random that avoids a mask": (TypeError, ["avoid"], lambda p: p.Random(1, 2, avoid=EYE)),
    "random that avoids other tokens": (ValueError, ["token", "Global"], lambda p: p.Random(1, 2, avoid=p.Global(6))),
    "random that avoids other heads": (
        ValueError, ["head", "Blocks"], lambda p: p.Random(1, 2, avoid=p.Blocks(np.stack([EYE] * 3), 2, True)),
    ),
    "a grid of other size": (ValueError, ["shape", "Neighborhood"], lambda p: p.Neighborhood((2, 4), 1)),
    "a line of other length": (ValueError, ["shape", "Neighborhood"], lambda p: p.Neighborhood(5, 1)),
    "a grid of four axes": (ValueError, ["shape"], lambda p: p.Neighborhood((1, 2, 3, 1), 1)),
    "a grid of no axes": (ValueError, ["shape"], lambda p: p.Neighborhood((), 1)),
    "a grid with zero": (ValueError, ["shape"], lambda p: p.Neighborhood((0, 6), 1)),
    "a grid not whole": (TypeError, ["shape"], lambda p: p.Neighborhood((2.0, 3), 1)),
    "window zero": (ValueError, ["window"], lambda p: p.Neighborhood((2, 3), 0)),
    "window negative": (ValueError, ["window"], lambda p: p.Neighborhood((2, 3), (1, -1))),
    "window not whole": (TypeError, ["window"], lambda p: p.Neighborhood((2, 3), 1.5)),
    "window too wide": (ValueError, ["window"], lambda p: p.Neighborhood((2, 3), 3)),
    "window too wide, dilated": (ValueError, ["window", "dilation"], lambda p: p.Neighborhood((2, 3), (1, 2), (1, 2))),
    "window of other axes": (ValueError, ["window"], lambda p: p.Neighborhood((2, 3), (1, 1, 1))),
    "grid dilation zero": (ValueError, ["dilation"], lambda p: p.Neighborhood((2, 3), 1, 0)),
    "grid dilation of other axes": (ValueError, ["dilation"], lambda p: p.Neighborhood((2, 3), 1, (1, 1, 1))),
    "grid stride zero": (ValueError, ["stride"], lambda p: p.Neighborhood((2, 3), 1, stride=0)),
    "grid stride not whole": (TypeError, ["stride"], lambda p: p.Neighborhood((2, 3), 2, stride=1.5)),
    "grid stride of other axes": (ValueError, ["stride"], lambda p: p.Neighborhood((2, 3), 2, stride=(1, 1, 1))),
    "grid stride beyond the window": (ValueError, ["stride", "window"], lambda p: p.Neighborhood(6, 2, stride=3)),
    "two grids": (ValueError, ["Neighborhood"], lambda p: p.Neighborhood((2, 3), 1) | p.Neighborhood((3, 2), 1)),
    "two grids, deep": (
        ValueError, ["Neighborhood"],
        lambda p: (p.Window(2) | p.Neighborhood((2, 3), 1)) & (p.Full() | p.Neighborhood(6, 2)),
    ),
    "a mask of other heads": (ValueError, ["head", "Mask"], lambda p: p.Mask(np.ones((3, 5, 6), bool), per_head=True)),
    "a mask of other items": (ValueError, ["item", "batch"], lambda p: p.Mask(np.ones((3, 5, 6), bool))),
    "masks of other shapes": (ValueError, ["shape", "Mask"], lambda p: p.Mask([EYE, EYE[:2]], per_head=True)),
    "masks of other numbers of heads": (
        ValueError, ["shape", "Mask"], lambda p: p.Mask([[EYE], [EYE, EYE]], per_head=True),
    ),
    "a mask without per_head": (ValueError, ["shape"], lambda p: p.Mask(np.ones((2, 4, 5, 6), bool))),
    "a mask of heads without heads": (ValueError, ["shape"], lambda p: p.Mask(np.ones((5, 6), bool), per_head=True)),
    "a mask of no keys": (ValueError, ["Mask"], lambda p: p.Mask(np.ones((5, 0), bool))),
    "a mask of a number": (ValueError, ["Mask"], lambda p: p.Mask(3)),
    "a mask of None": (ValueError, ["Mask"], lambda p: p.Mask(None)),
    "a mask of integers": (TypeError, ["Mask"], lambda p: p.Mask(np.ones((5, 6), int))),
    "a mask of bits without keys": (TypeError, ["Mask"], lambda p: p.Mask(np.ones((5, 1), np.uint8))),
    "a mask with tokens": (TypeError, ["tokens"], lambda p: p.Mask(EYE, tokens=3)),
    "a mask with key_tokens": (TypeError, ["key_tokens"], lambda p: p.Mask(EYE, key_tokens=3)),
    "a mask with blocks": (TypeError, ["blocks"], lambda p: p.Mask(EYE, blocks=p.Blocks(EYE, 2))),
    "a function of a mask for each head": (
        ValueError, ["head"], lambda p: p.Mask(np.less, tokens=5, key_tokens=6, per_head=True),
    ),
    "a function of no tokens": (ValueError, ["tokens"], lambda p: p.Mask(np.less, tokens=0)),
    "a function in a window": (TypeError, ["blocks"], lambda p: p.Mask(np.less, tokens=5, blocks=p.Window(3))),
    "a function in blocks of other sizes": (
        ValueError, ["mask", "Blocks"], lambda p: p.Mask(np.less, tokens=5, key_tokens=6, blocks=p.Blocks(EYE, 1)),
    ),
    "a function in blocks of fewer keys": (
        ValueError, ["blocks"], lambda p: p.Mask(np.less, tokens=7, key_tokens=6, blocks=p.Blocks(EYE, 2)),
    ),
    "a mask of a text": (ValueError, ["to_spec"], lambda p: p.Mask("abc")),
    "a mask of a text of another kind": (ValueError, ["to_spec"], lambda p: p.Mask("\u00e9")),
}  # fmt: skip


@pytest.mark.parametrize(("error", "names", "make"), PATTERNS.values(), ids=PATTERNS)
def test_bad_pattern(error, names, make):
    """The error comes when the pattern is made, or at the latest when it meets the sizes."""
    with pytest.raises(error) as caught:
        hs.attention(**SMALL, pattern=make(hs.patterns))
    check_names(caught.value, names)
    with pytest.raises(error) as caught:
        hs.cost(tokens=5, key_tokens=6, num_heads=4, head_dim=3, pattern=make(hs.patterns))
    check_names(caught.value, names)


MASKS = {
    "too large": (ValueError, ["tokens", "mask"], lambda p: p.Full().mask(2**13 + 1, 2**13)),
    "negative": (ValueError, ["tokens"], lambda p: p.Window(4).mask(-1)),
    "not whole": (TypeError, ["tokens"], lambda p: p.Window(4).mask(2.5)),
    "a token beyond": (ValueError, ["token", "Global"], lambda p: p.Global(7).mask(9, 7)),
    "another grid": (ValueError, ["shape", "Neighborhood"], lambda p: p.Neighborhood((2, 3), 1).mask(7)),
    "blocks of another size": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE, 2).mask(9)),
}


@pytest.mark.parametrize(("error", "names", "make"), MASKS.values(), ids=MASKS)
def test_bad_mask(error, names, make):
    with pytest.raises(error) as caught:
        make(hs.patterns)
    check_names(caught.value, names)


X, WEIGHT, BIAS = ones(2, 5, 3), ones(4, 3), ones(4)
HELPERS = {
    "starts late": (ValueError, "cumulative_lengths", lambda: hs.segment_ids([1, 3])),
    "decreases": (ValueError, "cumulative_lengths", lambda: hs.segment_ids([0, 3, 2])),
    "empty": (ValueError, "cumulative_lengths", lambda: hs.segment_ids([])),
    "floats": (TypeError, "cumulative_lengths", lambda: hs.segment_ids([0, 2.5])),
    "two axes": (ValueError, "cumulative_lengths", lambda: hs.segment_ids([[0, 2], [0, 3]])),
    "string": (TypeError, "cumulative_lengths", lambda: hs.segment_ids("03")),
    "x of integers": (TypeError, "x", lambda: hs.key_importance(X.astype(int), WEIGHT, BIAS)),
    "x of two axes": (ValueError, "x", lambda: hs.key_importance(X[0], WEIGHT, BIAS)),
    "weight of other width": (ValueError, "weight", lambda: hs.key_importance(X, ones(4, 2), BIAS)),
    "weight of one axis": (ValueError, "weight", lambda: hs.key_importance_vjp(X, ones(3), BIAS)),
    "bias of other heads": (ValueError, "bias", lambda: hs.key_importance(X, WEIGHT, ones(3))),
    "bias of objects": (TypeError, "bias", lambda: hs.key_importance_vjp(X, WEIGHT, np.array([None] * 4))),
    "gradient of other shape": (ValueError, "grad", lambda: hs.key_importance_vjp(X, WEIGHT, BIAS)[1](ones(2, 4, 4))),
}


@pytest.mark.parametrize(("error", "argument", "make"), HELPERS.values(), ids=HELPERS)
def test_bad_helper(error, argument, make):
    with pytest.raises(error) as caught:
        make()
    check_sentence(caught.value, argument)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_whole_numbers_of_any_type_are_good(kind):
    one, two = kind(1), kind(2)
    p = hs.patterns
    for pattern, plain in (
        (p.Window(two, one, two), p.Window(2, 1, 2)),
        (p.Strided(two, offset=one), p.Strided(2, offset=1)),
        (p.Fixed(two, one), p.Fixed(2, 1)),
        (p.Blockwise(two, one, one), p.Blockwise(2, 1, 1)),
        (p.Global([one, two]), p.Global([1, 2])),
        (p.Global(np.array(two)), p.Global(2)),
        (p.Global((1, 2)), p.Global([1, 2])),
        (p.Random(one, two, seed=two), p.Random(1, 2, seed=2)),
        (p.Neighborhood((two, kind(3)), one, one), p.Neighborhood((2, 3), 1, 1)),
    ):
        assert pattern == plain
        assert repr(pattern) == repr(plain)


@pytest.mark.parametrize(
    "ask", [lambda a, b: a or b, lambda a, b: a and b, lambda a, b: not a, lambda a, b: bool(a | b)]
)
def test_a_pattern_is_neither_true_nor_false(ask):
    """`Window(4) or Global(0)` would silently be Window(4)."""
    with pytest.raises(ValueError, match=r"combine patterns with \| and &, not with or and and$"):
        ask(hs.patterns.Window(4), hs.patterns.Global(0))
