"""Random patterns: how the arguments of each kind are drawn, a row of `PRIMITIVES` a kind, and expressions of them."""

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
from pattern_oracle import Pair, before_and_after, leaf, per_axis, union
from scipy import sparse

# The sizes for a random pattern; `grid` is the only shape of its neighbourhoods, `extra` the tokens outside it.
Room = namedtuple("Room", "queries keys heads grid extra items", defaults=[0, 1])
Row = namedtuple("Row", "kind draw")


def small(rng, most):
    """A whole number of 0..most, the small ones as likely as the large ones."""
    return int((most + 1) ** rng.random() - 1e-9)


def draw_window(rng, room):
    before, ahead = small(rng, room.keys), small(rng, room.keys) if rng.random() < 0.4 else 0
    return leaf("Window", before + 1, ahead, int(rng.choice([1, 1, 2, 3, 7, 65])))


def draw_strided(rng, room):
    return leaf("Strided", 1 + small(rng, room.keys))


def draw_columns(rng, room):
    stride = 1 + small(rng, room.keys)
    return leaf("Strided", stride, offset=int(rng.integers(stride)))


def draw_fixed(rng, room):
    block = 1 + small(rng, room.keys + 3)
    return leaf("Fixed", block, int(rng.integers(1, min(block, 5) + 1)))


def draw_blockwise(rng, room):
    return leaf("Blockwise", 1 + small(rng, room.keys), back=int(rng.integers(4)), ahead=int(rng.integers(3)))


def draw_global(rng, room):
    tokens = rng.integers(room.keys, size=1 + small(rng, 4)).tolist()
    return leaf("Global", tokens[0] if rng.random() < 0.3 else sorted(set(tokens)))


def draw_item_tokens(rng, room):
    rows = [rng.integers(room.keys, size=small(rng, 4)).tolist() for _ in range(room.items)]
    return leaf("Global", rows)


def draw_block_size(rng, room):
    # Not so small that the matrix of blocks is larger than what it is for.
    return max(1, room.keys // 40) + small(rng, room.keys)


def draw_matrix(rng, room, block_size, *heads):
    counts = [-(-room.keys // side) for side in per_axis(block_size, 2)]
    return rng.random((*heads, *counts)) < rng.choice([0.1, 0.3, 0.7])


def draw_blocks(rng, room):
    size = draw_block_size(rng, room)
    return leaf("Blocks", draw_matrix(rng, room, size), size)


def draw_rectangles(rng, room):
    sides = draw_block_size(rng, room), draw_block_size(rng, room)
    return leaf("Blocks", draw_matrix(rng, room, sides), sides)


def draw_rows(rng, room):
    size = draw_block_size(rng, room)
    if rng.random() < 0.3:
        size = (size, draw_block_size(rng, room))
    indptr, indices = draw_rows_of(draw_matrix(rng, room, size))
    if rng.random() < 0.5:
        return leaf("Blocks", (indptr, indices), size)
    return leaf("Blocks", SimpleNamespace(indptr=np.int32(indptr), indices=np.int32(indices)), size)


def draw_rows_of(matrix):
    return np.r_[0, matrix.sum(axis=1).cumsum()].tolist(), np.nonzero(matrix)[1].tolist()


def draw_head_blocks(rng, room):
    size = draw_block_size(rng, room)
    return leaf("Blocks", draw_matrix(rng, room, size, room.heads), size, per_head=True)


def draw_item_blocks(rng, room):
    size = draw_block_size(rng, room)
    if room.heads and rng.random() < 0.5:
        return leaf("Blocks", draw_matrix(rng, room, size, room.items, room.heads), size, per_head=True)
    if rng.random() < 0.5:
        return leaf("Blocks", [draw_rows_of(draw_matrix(rng, room, size)) for _ in range(room.items)], size)
    return leaf("Blocks", draw_matrix(rng, room, size, room.items), size)


def draw_random(rng, room):
    size = draw_block_size(rng, room)
    seed = int(rng.choice([0, 1, rng.integers(2**32), 2**63 - 1]))
    return leaf("Random", 1 + small(rng, -(-room.keys // size) // 2), size, seed=seed)


def draw_random_of_heads(rng, room):
    one = draw_random(rng, room)
    return leaf("Random", *one.arguments, **one.options, per_head=True)


def draw_random_avoiding(rng, room):
    """Random blocks that keep clear of another pattern, and may have a draw for each head."""
    kinds = ["Window", "Blockwise", "Global", "Strided", "Blocks", "Random"]
    parts = [PRIMITIVES[kinds[rng.integers(len(kinds))]].draw(rng, room) for _ in range(rng.integers(1, 3))]
    one, options = draw_random(rng, room), {"per_head": True} if room.heads and rng.random() < 0.5 else {}
    return leaf("Random", *one.arguments, **one.options, avoid=union(*parts), **options)


class Asked:
    """A function of query and key that is asked for its pairs."""

    def __init__(self, dense):
        self.dense = dense

    def __call__(self, query, key):
        return self.dense[query, key]


def draw_pairs(rng, room, *leading):
    """A mask of all pairs, of which some tiles of the core are empty and some are full."""
    shape = (*leading, room.queries, room.keys)
    dense = rng.random(shape) < rng.choice([0.03, 0.5, 0.97])
    first, second = (np.sort(rng.integers(n + 1, size=2)) for n in shape[-2:])
    dense[..., slice(*first), slice(*second)] = rng.random() < 0.5
    return dense


def draw_mask(rng, room):
    dense = draw_pairs(rng, room)
    match rng.integers(4):
        case 0:
            return leaf("Mask", dense)
        case 1:
            return leaf("Mask", sparse.csr_array(dense))
        case 2:
            return leaf("Mask", np.packbits(dense, axis=1), key_tokens=room.keys)
        case _:
            return leaf("Mask", Asked(dense), tokens=room.queries, key_tokens=room.keys)


def draw_mask_in_blocks(rng, room):
    if room.queries > room.keys:
        return draw_mask(rng, room)
    asked = Asked(draw_pairs(rng, room))
    return leaf("Mask", asked, tokens=room.queries, key_tokens=room.keys, blocks=draw_rectangles(rng, room))


def draw_head_mask(rng, room):
    leading = (room.items, room.heads) if rng.random() < 0.5 else (room.heads,)
    return leaf("Mask", draw_pairs(rng, room, *leading), per_head=True)


def draw_item_mask(rng, room):
    return leaf("Mask", draw_pairs(rng, room, room.items))


def draw_grid(rng, tokens, axes):
    """A shape with the given number of axes whose product is `tokens`."""
    shape = []
    for _ in range(axes - 1):
        divisors = [d for d in range(1, tokens + 1) if tokens % d == 0]
        shape.append(int(rng.choice(divisors[1:-1] or divisors)))
        tokens //= shape[-1]
    return tuple(int(length) for length in rng.permutation([*shape, tokens]))


def draw_neighborhood(axes):
    def draw(rng, room):
        shape = room.grid or draw_grid(rng, room.keys - sum(before_and_after(room.extra)), axes)
        dilation = [int(rng.integers(1, min(length, 4) + 1)) for length in shape]
        window = [1 + small(rng, length // step - 1) for length, step in zip(shape, dilation, strict=True)]
        plain = len(shape) == 1 and rng.random() < 0.5
        stride = tuple(1 + small(rng, most - 1) for most in window)
        options = {"extra": room.extra} if room.extra else {}
        if rng.random() < 0.4:
            options["causal"] = tuple(bool(rng.integers(2)) for _ in shape) if rng.random() < 0.7 else True
        if rng.random() < 0.5:
            options["stride"] = stride[0] if plain else stride
        if plain:
            options["causal"] = np.all(options.get("causal", False)).item()
            return leaf("Neighborhood", shape[0], window[0], dilation[0], **options)
        return leaf("Neighborhood", shape, tuple(window), tuple(dilation), **options)

    return draw


PRIMITIVES = {
    "Full": Row("Full", lambda rng, room: leaf("Full")),
    "Window": Row("Window", draw_window),
    "Strided": Row("Strided", draw_strided),
    "Strided, columns": Row("Strided", draw_columns),
    "Fixed": Row("Fixed", draw_fixed),
    "Blockwise": Row("Blockwise", draw_blockwise),
    "Global": Row("Global", draw_global),
    "Global, items": Row("Global", draw_item_tokens),
    "Blocks": Row("Blocks", draw_blocks),
    "Blocks, rectangles": Row("Blocks", draw_rectangles),
    "Blocks, rows": Row("Blocks", draw_rows),
    "Blocks, heads": Row("Blocks", draw_head_blocks),
    "Blocks, items": Row("Blocks", draw_item_blocks),
    "Mask": Row("Mask", draw_mask),
    "Mask, blocks": Row("Mask", draw_mask_in_blocks),
    "Mask, heads": Row("Mask", draw_head_mask),
    "Mask, items": Row("Mask", draw_item_mask),
    "Random": Row("Random", draw_random),
    "Random, heads": Row("Random", draw_random_of_heads),
    "Random, avoiding": Row("Random", draw_random_avoiding),
    "Neighborhood, line": Row("Neighborhood", draw_neighborhood(1)),
    "Neighborhood, plane": Row("Neighborhood", draw_neighborhood(2)),
    "Neighborhood, space": Row("Neighborhood", draw_neighborhood(3)),
}


def draw_tree(rng, room, leaves, depth=3):
    """An expression of the given number of primitives, at most `depth` operators deep."""
    if leaves == 1:
        names = [name for name, row in PRIMITIVES.items() if row.kind != "Neighborhood"]
        names = [name for name in names if room.heads or not name.endswith("heads")]
        names += names[1:]  # Full, the first, hides every other part of a union: half as often
        names += ["Neighborhood, line"] * 8 if room.grid else []
        return PRIMITIVES[names[rng.integers(len(names))]].draw(rng, room)
    half = 2 ** (depth - 1)
    left = int(rng.integers(max(1, leaves - half), min(leaves - 1, half) + 1))
    symbol = "|" if rng.random() < 0.6 else "&"
    return Pair(symbol, *(draw_tree(rng, room, count, depth - 1) for count in (left, leaves - left)))
