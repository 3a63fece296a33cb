"""Sparse attentions of the literature: the set of keys that each paper defines, in plain loops.

The mask of the pattern for a paper must be this set, and attention with the pattern must be
softmax attention over the set.
"""

import headspan as hs
import numpy as np
import pattern_oracle
import pytest
from cases import DTYPES
from pattern_oracle import both, leaf, union
from tolerances import check_close


def longformer(i, tokens, window, global_tokens):
    """Beltagy et al. 2020, section 3.1: window / 2 keys on each side; global tokens see and are seen by all."""
    if i in global_tokens:
        return set(range(tokens))
    return {j for j in range(i - window // 2, i + window // 2 + 1) if 0 <= j < tokens} | set(global_tokens)


def dilated_longformer(i, tokens, window, dilation):
    """Beltagy et al. 2020, section 3.1: the window has gaps of size dilation."""
    steps = range(-(window // 2), window // 2 + 1)
    return {i + dilation * step for step in steps if 0 <= i + dilation * step < tokens}


def sinks(i, tokens, window, count):
    """Xiao et al. 2024, section 3.2: the first tokens and the most recent ones."""
    recent = {j for j in range(tokens) if i - window < j <= i}
    return recent | {j for j in range(count) if j <= i}


def strided(i, tokens, stride):
    """Child et al. 2019, section 4.3: A1 = {t, ..., i}, t = max(0, i - stride); A2 = {j: (i - j) mod stride = 0}."""
    first = set(range(max(0, i - stride), i + 1))
    second = {j for j in range(i + 1) if (i - j) % stride == 0}
    return first | second


def strided_last(i, tokens, stride):
    """The same with A1 the last `stride` positions."""
    return {j for j in range(i + 1) if i - j < stride or (i - j) % stride == 0}


def fixed(i, tokens, stride, columns):
    """Child et al. 2019, section 4.3: A1 = {j: j div l = i div l}; A2 = {j: j mod l in {t, ..., l}} with t = l - c."""
    first = {j for j in range(i + 1) if j // stride == i // stride}
    second = {j for j in range(i + 1) if j % stride in range(stride - columns, stride + 1)}
    return first | second


def bigbird(i, tokens, block, chosen, global_tokens):
    """Zaheer et al. 2020, section 2 and appendix D: blocks see their neighbours, random blocks and global tokens.

    `chosen` is the set of random key blocks of each block of queries.
    """
    if i in global_tokens:
        return set(range(tokens))
    row = i // block
    blocks = {row - 1, row, row + 1} | chosen[row]
    return {j for j in range(tokens) if j // block in blocks} | set(global_tokens)


def window_start(index, length, kernel, dilation):
    """Hassani et al., NATTEN: get_window_start, where a window that would leave the axis is shifted."""
    half = kernel // 2
    if dilation <= 1:
        return max(index - half, 0) + (index + half >= length) * (length - index - half - 1)
    first = index - half * dilation
    if first < 0:
        return index % dilation
    if index + half * dilation >= length:
        place = index % dilation
        multiple = (length // dilation) * dilation
        rest = length - multiple
        if place < rest:
            return length - rest + place - 2 * half * dilation
        return multiple + place - kernel * dilation
    return first


def neighborhood(i, tokens, shape, kernel, dilation):
    """Hassani et al. 2023, and Hassani and Shi 2022 for the dilation: odd kernels on each axis."""
    row, column = divmod(i, shape[1])
    axes = []
    for index, length, size, step in zip((row, column), shape, kernel, dilation, strict=True):
        start = window_start(index, length, size, step)
        axes.append([start + step * count for count in range(size)])
    return {r * shape[1] + c for r in axes[0] for c in axes[1]}


def swin(i, tokens, shape, side):
    """Liu et al. 2021, section 3.2: windows of side x side tokens that do not overlap."""
    row, column = divmod(i, shape[1])
    return {
        j for j in range(tokens) if j // shape[1] // side == row // side and j % shape[1] // side == column // side
    }  # fmt: skip


def windows(shape, side):
    """The pattern of `swin`: blocks of one token, as a matrix."""
    tokens = shape[0] * shape[1]
    return np.array([[j in swin(i, tokens, shape, side) for j in range(tokens)] for i in range(tokens)])


CHOSEN = {row: pattern_oracle.drawn_blocks(11, row, 2, range(8)) for row in range(8)}
# name: tokens, causal, the pattern, the paper's set, its arguments
PAPERS = {
    "Longformer": (
        150, False, union(leaf("Window", 9, 8), leaf("Global", [0, 71, 72])), longformer, (16, [0, 71, 72]),
    ),
    "Longformer, dilated": (150, False, leaf("Window", 9, 8, dilation=3), dilated_longformer, (16, 3)),
    "StreamingLLM": (150, True, union(leaf("Window", 16), leaf("Global", range(4))), sinks, (16, 4)),
    "Sparse Transformer, strided": (150, True, union(leaf("Window", 13), leaf("Strided", 12)), strided, (12,)),
    "Sparse Transformer, last positions": (
        150, True, union(leaf("Window", 12), leaf("Strided", 12)), strided_last, (12,),
    ),
    "Sparse Transformer, fixed": (150, True, union(leaf("Blockwise", 16), leaf("Fixed", 16, 3)), fixed, (16, 3)),
    "BigBird": (
        125, False, union(leaf("Blockwise", 16, 1, 1), leaf("Random", 2, 16, seed=11), leaf("Global", [0, 124])),
        bigbird, (16, CHOSEN, [0, 124]),
    ),
    "NATTEN": (9 * 13, False, leaf("Neighborhood", (9, 13), 5), neighborhood, ((9, 13), (5, 5), (1, 1))),
    "NATTEN, one kernel an axis": (
        9 * 13, False, leaf("Neighborhood", (9, 13), (3, 7)), neighborhood, ((9, 13), (3, 7), (1, 1)),
    ),
    "NATTEN, dilated": (
        10 * 13, False, leaf("Neighborhood", (10, 13), 3, 2), neighborhood, ((10, 13), (3, 3), (2, 2)),
    ),
    "NATTEN, one dilation an axis": (
        11 * 14, False, leaf("Neighborhood", (11, 14), (3, 5), (3, 2)), neighborhood, ((11, 14), (3, 5), (3, 2)),
    ),
    "Swin": (8 * 12, False, leaf("Blocks", windows((8, 12), 4), 1), swin, ((8, 12), 4)),
    "a window of both strides": (
        150, True, both(leaf("Window", 61), leaf("Strided", 12)),
        lambda i, tokens: {*range(i, max(i - 61, -1), -12)}, (),
    ),
}  # fmt: skip


def paper_mask(tokens, keys_of, arguments):
    mask = np.zeros((tokens, tokens), dtype=bool)
    for i in range(tokens):
        mask[i, sorted(keys_of(i, tokens, *arguments))] = True
    return mask


@pytest.mark.parametrize(("tokens", "causal", "tree", "keys_of", "arguments"), PAPERS.values(), ids=PAPERS)
def test_pattern_is_the_set_of_the_paper(tokens, causal, tree, keys_of, arguments):
    expected = paper_mask(tokens, keys_of, arguments)
    meant, actual = pattern_oracle.mask(tree, tokens, tokens), pattern_oracle.build(tree).mask(tokens)
    np.testing.assert_array_equal(np.tril(meant) if causal else meant, expected)
    np.testing.assert_array_equal(np.tril(actual) if causal else actual, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "causal", "tree", "keys_of", "arguments"), PAPERS.values(), ids=PAPERS)
def test_attention_is_softmax_over_the_set(tokens, causal, tree, keys_of, arguments, dtype):
    query, key, value = np.random.default_rng(tokens).standard_normal((3, 2, tokens, 16)).astype(dtype)
    out, lse = hs.attention(query, key, value, causal=causal, pattern=pattern_oracle.build(tree), return_lse=True)
    expected, expected_lse = np.zeros((2, tokens, 16)), np.zeros((2, tokens))
    for h, i in np.ndindex(2, tokens):
        keys = sorted(keys_of(i, tokens, *arguments))
        scores = key[h, keys].astype(np.float64) @ query[h, i].astype(np.float64) / 4
        weights = np.exp(scores - scores.max())
        expected[h, i] = weights @ value[h, keys].astype(np.float64) / weights.sum()
        expected_lse[h, i] = scores.max() + np.log(weights.sum())
    check_close("out", out, expected, dtype)
    check_close("lse", lse, expected_lse, dtype)


def test_random_blocks_are_spread_evenly():
    """Every row has the number of blocks asked for, and all blocks of keys are drawn about equally often."""
    mask = hs.patterns.Random(8, 1, seed=5).mask(1024)
    assert np.all(mask.sum(axis=1) == 8)
    drawn = mask.sum(axis=0)  # 8 on average, with a standard deviation of 2.8
    assert drawn.max() < 25
    assert np.mean(drawn > 0) > 0.98
    # Consecutive rows have hardly a block in common: 1/16 on average.
    assert np.mean((mask[1:] & mask[:-1]).sum(axis=1)) < 0.2


def test_random_blocks_of_different_seeds_differ():
    masks = [hs.patterns.Random(3, 8, seed=seed).mask(512) for seed in range(4)]
    assert all(not np.array_equal(masks[i], masks[j]) for i in range(4) for j in range(i))
