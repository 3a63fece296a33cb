"""Calls with a pattern that were wrong once or could be wrong, by what is special about them."""

import numpy as np
from pattern_oracle import both, leaf, union

GRID = leaf("Neighborhood", (6, 11), (3, 4))
BIGBIRD_SEEN = union(leaf("Blockwise", 10, 1, 1), leaf("Global", [0, 1]))
BIGBIRD = union(BIGBIRD_SEEN, leaf("Random", 3, 10, per_head=True, avoid=BIGBIRD_SEEN))
SQUARES = np.arange(49).reshape(7, 7) % 3 == 0
SHORT = {"causal": False, "span": 2.5, "ramp": 1, "alibi_slopes": 0.25}
# name: (batch, heads, key_heads, queries, keys, head_dim), pattern, options
EDGES = {
    "no limit to a global token's span": (
        (1, 4, 2, 130, 130, 8), union(leaf("Window", 21), leaf("Global", [0, 70])), {"span": [0, 2.5, 9, 40],
                                                                                     "ramp": 2},
    ),
    "a span of nothing but globals": (
        (1, 1, 1, 70, 70, 8), leaf("Global", [3, 64]), {"span": 0, "ramp": 0, "include_self": False, "causal": False},
    ),
    "free though another part allowed it": (
        (1, 2, 1, 90, 90, 4), union(leaf("Full"), both(leaf("Global", 40), leaf("Window", 1))),
        {"span": [1.5, 3], "ramp": 2, "causal": False, "alibi_slopes": [0.05, 0]},
    ),
    "free though no global allowed it": (
        (1, 1, 1, 90, 90, 4), both(leaf("Strided", 3), union(leaf("Window", 31), leaf("Global", [60]))),
        {"span": 2, "ramp": 1},
    ),
    "global tokens in many places": ((1, 2, 2, 140, 140, 8), leaf("Global", list(range(0, 140, 2))), {"span": 5.5}),
    "every token is global": ((1, 1, 1, 70, 70, 8), leaf("Global", list(range(70))), {"span": 0, "ramp": 0}),
    "global in any order, twice": ((1, 1, 1, 70, 70, 8), leaf("Global", [60, 3, 60, 5]), {"span": 7}),
    "other keys removed in each head": (
        (1, 4, 2, 1000, 1000, 4), leaf("Blockwise", 50, back=1),
        {"key_bias": np.where(np.arange(4)[:, None] == np.arange(1000) // 7 % 5, -np.inf, 0.25)},
    ),
    "global tokens, keys in shares": ((1, 4, 2, 70, 2100, 4), union(leaf("Window", 31), leaf("Global", [5, 2090])), {}),
    "global tokens of few queries": ((1, 1, 1, 5, 200, 8), leaf("Global", [0, 197]), {"span": 7, "causal": False}),
    "disjoint parts": ((1, 1, 1, 70, 70, 8), both(leaf("Strided", 2, offset=0), leaf("Strided", 2, offset=1)), {}),
    "a dilation past the context": ((1, 1, 1, 70, 70, 8), leaf("Window", 6, 5, 100), {"causal": False}),
    "a stride past the context": ((1, 1, 1, 70, 70, 8), leaf("Strided", 100), {"causal": False}),
    "an offset past the context": ((1, 1, 1, 70, 70, 8), leaf("Strided", 100, offset=99), {"causal": False}),
    "a block past the context": ((1, 1, 1, 70, 70, 8), leaf("Blockwise", 1000), {}),
    "columns of the whole block": ((1, 1, 1, 70, 70, 8), leaf("Fixed", 9, 9), {}),
    "blocks ahead, causal": ((1, 1, 1, 70, 70, 8), leaf("Blockwise", 7, ahead=3), {"causal": True}),
    "every random block": ((1, 1, 1, 70, 70, 8), leaf("Random", 99, 8), {"causal": False}),
    "random blocks of one token": ((1, 1, 1, 130, 130, 8), leaf("Random", 3, 1, seed=9), {"causal": False}),
    "random blocks of each head": (
        (2, 4, 2, 130, 130, 8), union(leaf("Window", 10), leaf("Random", 2, 10, seed=3, per_head=True)), {"span": 40.5},
    ),
    "random blocks that avoid what is seen": ((1, 4, 2, 200, 200, 8), BIGBIRD, {"causal": False}),
    "random blocks that avoid what is seen, more queries": ((1, 2, 1, 170, 65, 8), BIGBIRD, {"causal": False}),
    "random blocks, none left": (
        (1, 2, 1, 70, 70, 8), union(leaf("Full"), leaf("Random", 2, 9, avoid=leaf("Strided", 3))), {"causal": False},
    ),
    "random blocks of more than a group": (
        (1, 2, 1, 500, 500, 8), leaf("Random", 1, 100, avoid=union(leaf("Window", 91), leaf("Global", [0, 499]))), {},
    ),
    "random blocks that avoid a grid": (
        (1, 2, 2, 66, 66, 8), union(GRID, leaf("Random", 1, 8, per_head=True, avoid=GRID)), {"causal": False},
    ),
    "blocks nobody sees": ((1, 1, 1, 70, 70, 8), leaf("Blocks", np.zeros((7, 7), dtype=bool), 10), {}),
    "rectangles, wide": (
        (1, 2, 1, 130, 130, 8), leaf("Blocks", np.arange(26 * 3).reshape(26, 3) % 4 == 0, (5, 60)), {"causal": False},
    ),
    "rectangles, tall": (
        (1, 2, 1, 70, 130, 8), leaf("Blocks", np.arange(3 * 130).reshape(3, 130) % 4 == 0, (60, 1)), {"causal": False},
    ),
    "before every key: blocks": ((1, 1, 1, 170, 65, 8), leaf("Blocks", SQUARES, 10), {"causal": False}),
    "before every key: random": ((1, 1, 1, 170, 65, 8), leaf("Random", 2, 7, seed=3), {"causal": False}),
    "before every key: blockwise": ((1, 1, 1, 170, 65, 8), leaf("Blockwise", 7, 1, 9), {"causal": False}),
    "before every key: global": ((1, 1, 1, 170, 65, 8), leaf("Global", [0, 64]), {"causal": False, "span": 3}),
    "before every key: strided": ((1, 1, 1, 170, 65, 8), leaf("Strided", 9), {"causal": False, "span": 30}),
    "heads in turn": (
        (2, 6, 3, 700, 700, 8), union(leaf("Window", 41, 40), leaf("Global", [0, 300, 301])),
        {"causal": False, "key_stop": [700, 450]},
    ),
    "heads in turn, one span": (
        (1, 6, 6, 700, 700, 8), union(leaf("Window", 61), leaf("Strided", 64)), {"span": 50.25, "ramp": 4},
    ),
    "heads in turn, on a grid": (
        (1, 6, 2, 720, 720, 8), leaf("Neighborhood", (36, 20), (5, 7)), {"causal": False, "span": 2.5, "ramp": 1},
    ),
    "global tokens in parts": (
        (1, 2, 1, 1100, 4200, 4),
        [union(leaf("Window", 10), leaf("Global", [0, 3500])), leaf("Global", list(range(3400, 3500)))],
        {"span": 20.5, "causal": False, "temperature": [0.5, 2], "alibi_slopes": 0.01},
    ),
    "classes brought together": (
        (2, 4, 2, 700, 700, 8), leaf("Strided", 20),
        {"causal": False, "key_stop": [700, 450], "key_bias": np.cos(np.arange(700.0)), "temperature": 2},
    ),
    "classes, one a head": ((1, 4, 2, 420, 420, 8), [leaf("Strided", 12), *[leaf("Strided", 9)] * 2, leaf("Full")], {}),
    "classes, more keys": ((1, 2, 1, 300, 650, 12), leaf("Strided", 7), {"include_self": False}),
    "classes, fewer keys": ((1, 2, 2, 650, 300, 12), leaf("Strided", 7), {"causal": False, "alibi_slopes": 0.01}),
    "classes after neighbours": (
        (1, 2, 1, 400, 430, 8), union(leaf("Window", 21, 9), leaf("Strided", 11)), {"causal": False},
    ),
    "classes of a dilated window": ((2, 2, 2, 400, 400, 8), leaf("Window", 51, 40, 10), {"causal": False}),
    "classes of different strides": ((1, 2, 1, 400, 400, 8), union(leaf("Strided", 7), leaf("Strided", 4)), {}),
    "decode: dilated": ((1, 2, 1, 1, 3000, 8), leaf("Window", 41, 0, 64), {}),
    "decode: strided": ((1, 2, 1, 1, 3000, 8), leaf("Strided", 100), {}),
    "decode: sinks": ((1, 2, 1, 1, 3000, 8), union(leaf("Window", 101), leaf("Global", [0, 1, 2, 3])), {"span": 50.5}),
    "grid": ((1, 2, 1, 66, 66, 8), GRID, {"causal": False, "span": [1.5, 3], "ramp": 1, "alibi_slopes": 0.25}),
    "grid, raster order": (
        (1, 2, 1, 66, 66, 8), GRID, {"span": [1.5, 3], "ramp": 1, "include_self": False, "causal": True},
    ),
    "grid, the last queries": ((1, 2, 1, 30, 66, 8), GRID, {"causal": False, "span": 2.25, "ramp": 1}),
    "grid and a window by index": (
        (1, 2, 1, 66, 66, 8), union(GRID, leaf("Window", 31, 30)), SHORT | {"span": [1.5, 3]},
    ),
    "grid with a class token and registers": (
        (2, 2, 1, 69, 69, 8), leaf("Neighborhood", (6, 11), (3, 5), extra=(1, 2)),
        {"causal": False, "span": [0.5, 2.25], "ramp": 1.5, "temperature": [0.5, 2], "include_self": False},
    ),
    "grid and a global token, the last queries": (
        (1, 2, 1, 30, 67, 8), union(leaf("Neighborhood", (6, 11), 3), leaf("Global", 66)),
        {"causal": True, "span": 1.5, "ramp": 2},
    ),
    "frames of a film": (
        (1, 2, 1, 60, 60, 8), leaf("Neighborhood", (3, 4, 5), (2, 3, 3), causal=(True, False, False)), SHORT,
    ),
    "grid and global": (
        (1, 2, 1, 66, 66, 8), union(GRID, leaf("Global", [0, 40])), SHORT,
    ),
    "grid in blocks": ((1, 2, 1, 96, 96, 8), leaf("Neighborhood", (8, 12), 4, stride=4), SHORT),
    "grid in blocks of more than a group": (
        (2, 2, 1, 700, 700, 8), leaf("Neighborhood", (20, 35), (13, 17), stride=(10, 17)), {"causal": False, "span": 9},
    ),
    "grid, every two share": (
        (1, 2, 1, 30, 66, 8), union(leaf("Neighborhood", (6, 11), (3, 6), stride=(2, 5)), GRID), SHORT,
    ),
    "frames of a film, in pairs": (
        (1, 2, 1, 140, 140, 8),
        leaf("Neighborhood", (7, 4, 5), (3, 2, 4), (2, 1, 1), causal=(True, False, False), stride=(2, 2, 3)), SHORT,
    ),
    "grid of the whole window": ((1, 1, 1, 66, 66, 8), leaf("Neighborhood", (6, 11), (6, 11)), SHORT),
    "grid of one": ((1, 1, 1, 66, 66, 8), leaf("Neighborhood", (6, 11), 1), {"causal": False}),
    "grid dilated to the end": ((1, 1, 1, 66, 66, 8), leaf("Neighborhood", (6, 11), (3, 2), (2, 5)), {"causal": False}),
    "grid, one number for all axes": ((1, 1, 1, 60, 60, 8), leaf("Neighborhood", (3, 4, 5), 1, 2), {"causal": False}),
    "one a head": (
        (2, 4, 2, 97, 97, 8), [leaf("Full"), leaf("Window", 10), leaf("Global", 50), leaf("Strided", 5)],
        {"span": [3, 20, 0, 50.5], "ramp": 4},
    ),
    "one a head, of which some differ between heads": (
        (2, 2, 1, 65, 65, 8), [BIGBIRD, leaf("Blocks", np.stack([SQUARES, ~SQUARES]), 10, per_head=True)], SHORT,
    ),
    "one an item": (
        (3, 4, 2, 97, 97, 8), [[leaf("Window", 10)], [leaf("Strided", 5)], [leaf("Window", 10)]], {"span": 40.5,
                                                                                                   "ramp": 4},
    ),
    "one an item and head": (
        (2, 2, 1, 130, 130, 8),
        [[leaf("Full"), leaf("Global", [0, 99])], [union(leaf("Window", 10), leaf("Strided", 7)), leaf("Global",
                                                                                                       [50])]],
        {"span": [[3, 20], [9, 50.5]], "ramp": 4, "causal": False},
    ),
    "one an item, of one head": ((3, 1, 1, 70, 90, 8), [[leaf("Window", n)] for n in (3, 40, 80)], {"causal": False}),
    "global tokens of each item": (
        (3, 2, 1, 130, 130, 8), union(leaf("Window", 10, 9), leaf("Global", [[0], [], [7, 64, 129]])),
        {"causal": False, "span": 3.5, "ramp": 2},
    ),
    "global tokens of each item, keys in shares": (
        (2, 1, 1, 70, 4200, 4), union(leaf("Window", 31), leaf("Global", [[5, 4190], [4150]])), {},
    ),
    "global tokens of each item, in parts": (
        (2, 1, 1, 1100, 4200, 4), union(leaf("Window", 10), leaf("Global", [[0, 3500], list(range(3400, 3500))])),
        {"span": 20.5, "causal": False, "temperature": 0.5},
    ),
    "blocks of each item and head": (
        (2, 2, 1, 65, 65, 8),
        union(leaf("Window", 4), leaf("Blocks", np.stack([[SQUARES, ~SQUARES]] * 2), 10, per_head=True)), {"span": 30},
    ),
    "blocks of each item": ((2, 2, 1, 65, 65, 8), leaf("Blocks", np.stack([SQUARES, ~SQUARES]), 10), {"causal": False}),
    "classes of each item": (
        (2, 4, 2, 420, 420, 8), [[leaf("Strided", 12)], [leaf("Strided", 9)]], {"causal": False, "temperature": 2},
    ),
    "grids of each item": (
        (2, 2, 1, 66, 66, 8), [[GRID, leaf("Neighborhood", (22, 3), 3)], [leaf("Window", 10, 9)]], SHORT,
    ),
    "random blocks that avoid tokens of each item": (
        (2, 2, 1, 130, 130, 8), leaf("Random", 2, 10, per_head=True, avoid=leaf("Global", [[0], [3, 40]])),
        {"span": 60},
    ),
    "a grid for one head only": (
        (1, 2, 1, 66, 66, 8), [GRID, leaf("Window", 10, 9)], SHORT,
    ),
    "a grid for each head": (
        (1, 2, 2, 66, 66, 8), [GRID, leaf("Neighborhood", (22, 3), 3)], SHORT,
    ),
    "blocks of each head": (
        (1, 2, 1, 65, 65, 8), union(leaf("Window", 4), leaf("Blocks", np.stack([SQUARES, ~SQUARES]), 10,
                                                            per_head=True)),
        {"span": 30},
    ),
}  # fmt: skip
