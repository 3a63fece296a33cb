"""Patterns as dense boolean matrices: a definition of each kind, and what expressions of them mean.

A pattern is a tree of `Leaf` and `Pair`. `build` turns it into a pattern of the package; `mask`,
`free_pairs` and `distance` compute the matrices of the definition. Everything here compares
grids of indices; only the names of classes come from the package.
"""

from collections import namedtuple
from functools import reduce
from itertools import pairwise

import numpy as np

Leaf = namedtuple("Leaf", "kind arguments options")
Pair = namedtuple("Pair", "symbol left right")
Place = namedtuple("Place", "item head")  # where a pattern is asked for

WORD = 2**64


def leaf(kind, *arguments, **options):
    return Leaf(kind, arguments, options)


def union(*trees):
    return reduce(lambda left, right: Pair("|", left, right), trees)


def both(*trees):
    return reduce(lambda left, right: Pair("&", left, right), trees)


# The definitions: p and j are a column of query indices and a row of key indices.


def window(p, j, keys, size, ahead=0, dilation=1):
    steps, rest = np.divmod(p - j, dilation)
    return (rest == 0) & (-ahead <= steps) & (steps < size)


def strided(p, j, keys, stride, offset=None):
    if offset is None:
        return (p - j) % stride == 0
    return (j % stride == offset) & (p == p)


def fixed(p, j, keys, block_size, columns):
    return (j % block_size >= block_size - columns) & (p == p)


def blockwise(p, j, keys, block_size, back=0, ahead=0):
    apart = j // block_size - p // block_size
    return (-back <= apart) & (apart <= ahead)


def global_(p, j, keys, tokens, place=None):
    tokens = of_item(tokens, place)
    return np.isin(p, tokens) | np.isin(j, tokens)


def of_item(tokens, place):
    """Global tokens of a batch item, where they are given as a list of lists."""
    return tokens[place.item] if isinstance(tokens, list) and tokens and isinstance(tokens[0], list) else tokens


def as_mask(blocks):
    """A boolean matrix of blocks from any form that is accepted."""
    if isinstance(blocks, np.ndarray):
        return blocks
    indptr, indices = blocks if isinstance(blocks, tuple) else (blocks.indptr, blocks.indices)
    dense = np.zeros((len(indptr) - 1, max([*indices, 0]) + 1), dtype=bool)
    for row, (first, last) in enumerate(pairwise(indptr)):
        dense[row, list(indices[first:last])] = True
    return dense


def blocks(p, j, keys, form, block_size, per_head=False, place=None):
    dense = as_mask(form[place.item] if isinstance(form, list) else form)
    if dense.ndim == 3 + per_head:
        dense = dense[place.item]
    if per_head:
        dense = dense[place.head]
    assert dense.ndim == 2
    of_queries, of_keys = per_axis(block_size, 2)
    rows, columns = np.maximum(p, 0) // of_queries, j // of_keys
    inside = columns < dense.shape[-1]  # the lists of a sparse form end with the last block
    return dense[rows, np.where(inside, columns, 0)] & inside & (p >= 0)


def as_pairs(form, key_tokens=None):
    """A boolean matrix of pairs from any form that is accepted; a function has it as its attribute `dense`."""
    if key_tokens is not None and not callable(form):
        return np.unpackbits(form, axis=-1, count=key_tokens).astype(bool)
    return form.toarray() != 0 if hasattr(form, "toarray") else form.dense if callable(form) else form


def mask_of_pairs(p, j, keys, form, tokens=None, key_tokens=None, blocks=None, per_head=False, place=None):
    dense = as_pairs(form, key_tokens)
    if dense.ndim == 3 + per_head:
        dense = dense[place.item]
    if per_head:
        dense = dense[place.head]
    assert dense.shape[1] == keys
    allowed = dense[p - keys + len(dense), j]
    return allowed if blocks is None else allowed & mask_of(blocks, p, j, keys, place)


def mix(seed, row, draw):
    z = seed * 0x9E3779B97F4A7C15 + (row % WORD) * 0xBF58476D1CE4E5B9
    z = (z + draw * 0x94D049BB133111EB + 0x9E3779B97F4A7C15) % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def drawn_blocks(seed, row, count, blocks):
    """The key blocks of a row of query blocks: the first `count` distinct draws of `blocks`."""
    if count >= len(blocks):
        return set(blocks)
    seen, draw = set(), 0
    while len(seen) < count:
        seen.add(blocks[mix(seed, row, draw) % len(blocks)])
        draw += 1
    return seen


def seed_of_head(seed, head):
    """The number of SplitMix64, which begins at the seed, without the last bit."""
    z = (seed + (head + 1) * 0x9E3779B97F4A7C15) % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return (z ^ (z >> 31)) // 2


def clear_blocks(avoid, row, block_size, keys, place):
    """The key blocks in which no query of a row sees a key by `avoid`, apart from queries that see every key."""
    queries = np.arange(row * block_size, max(min((row + 1) * block_size, keys), row * block_size))
    seen = mask_of(avoid, queries[:, None], np.arange(keys)[None, :], keys, place)
    met = {key // block_size for line in seen if not line.all() for key in np.flatnonzero(line)}
    return [block for block in range(-(-keys // block_size)) if block not in met]


def random(p, j, keys, count, block_size, seed=0, per_head=False, avoid=None, place=None):
    seed = seed_of_head(seed, place.head) if per_head else seed
    rows, all_blocks = p[:, 0] // block_size, list(range(-(-keys // block_size)))
    table = {}
    for row in set(rows.tolist()):
        blocks = all_blocks if avoid is None else clear_blocks(avoid, row, block_size, keys, place)
        table[row] = drawn_blocks(seed, row, count, blocks)
    allowed = np.zeros((len(rows), keys), dtype=bool)
    for i, row in enumerate(rows.tolist()):
        allowed[i] = np.isin(j[0] // block_size, list(table[row]))
    return allowed


def per_axis(value, axes):
    return (value,) * axes if np.ndim(value) == 0 else tuple(value)


def coordinates(indices, shape):
    shape = per_axis(shape, 1)
    axes = []
    for length in reversed(shape):  # the last axis is the fastest
        axes.append(indices % length)
        indices = indices // length
    return list(zip(reversed(axes), shape, strict=True))


def before_and_after(extra):
    return (0, extra) if np.ndim(extra) == 0 else tuple(extra)


def neighbors(c, length, window, dilation, causal, stride):
    """The coordinates that a coordinate sees on an axis, from the text of the papers."""
    members = list(range(c % dilation, length, dilation))  # the tokens of a dilation, as an axis
    place = members.index(c)
    team = [n for n in range(len(members)) if n // stride == place // stride]  # the tokens that share a window
    if causal:
        window_of_last = team[-1] - window + 1  # where it begins; the window of each token ends at it
        return {members[n] for n in range(len(members)) if window_of_last <= n <= place}
    # The middle token leads, or the later one of two; if the axis ends before it, the last token leads.
    leader = min(team[0] + stride // 2, len(members) - 1)
    begin = leader - window // 2
    while begin < 0:
        begin += 1
    while begin + window > len(members):
        begin -= 1
    return set(members[begin : begin + window])


def neighborhood(p, j, keys, shape, window, dilation=1, causal=False, extra=0, stride=1):
    axes = len(per_axis(shape, 1))
    rules = [per_axis(of_axes, axes) for of_axes in (window, dilation, causal, stride)]
    before, tokens = before_and_after(extra)[0], int(np.prod(shape))
    p, j = p - before, j - before
    allowed = (p >= 0) & (j >= 0) & (p < tokens) & (j < tokens)
    outside = np.isin(p, extras(before, tokens, extra)) | np.isin(j, extras(before, tokens, extra))
    for (row, length), (col, _), *rule in zip(coordinates(p, shape), coordinates(j, shape), *rules, strict=True):
        table = np.zeros((length, length), dtype=bool)
        for c in range(length):
            table[c, list(neighbors(c, length, *rule))] = True
        allowed = allowed & table[row, col]
    return allowed | outside


def extras(before, tokens, extra):
    """The tokens outside a grid, counted from its first token."""
    return [*range(-before, 0), *range(tokens, tokens + before_and_after(extra)[1])]


def full(p, j, keys):
    return (p == p) & (j == j)


# The definition of each kind of pattern, by the name of its class.
DEFINITIONS = {
    "Full": full,
    "Window": window,
    "Strided": strided,
    "Fixed": fixed,
    "Blockwise": blockwise,
    "Global": global_,
    "Blocks": blocks,
    "Mask": mask_of_pairs,
    "Random": random,
    "Neighborhood": neighborhood,
}


# What an expression means.


def leaves_of(tree):
    return [tree] if isinstance(tree, Leaf) else leaves_of(tree.left) + leaves_of(tree.right)


def flat(trees):
    """The trees of a list, or of a list of lists, or one."""
    return [tree for some in trees for tree in flat(some)] if isinstance(trees, list) else [trees]


def build(tree):
    """The pattern of the package; a list of trees gives a list."""
    from headspan import patterns

    if isinstance(tree, list):
        return [build(one) for one in tree]
    if isinstance(tree, Leaf):
        options = {name: build(value) if name in ("avoid", "blocks") else value for name, value in tree.options.items()}
        return getattr(patterns, tree.kind)(*tree.arguments, **options)
    left, right = build(tree.left), build(tree.right)
    return left | right if tree.symbol == "|" else left & right


def looks_both_ways(tree):
    """Whether it may see keys ahead, so that an attention with it must be told whether it is causal."""
    sides = {"Window": (1, "ahead"), "Blockwise": (2, "ahead")}
    for one in leaves_of(tree):
        place, name = sides.get(one.kind, (0, ""))
        beyond = one.arguments[place] if name and len(one.arguments) > place else one.options.get(name, 0)
        if one.kind in ("Neighborhood", "Mask") or (name and beyond > 0):
            return True
    return False


def indices(queries, keys):
    return np.arange(queries)[:, None] + keys - queries, np.arange(keys)[None, :]


def differs_by_head(tree):
    avoided = [one.options["avoid"] for one in leaves_of(tree) if "avoid" in one.options]
    return any(one.options.get("per_head") for one in leaves_of(tree)) or any(map(differs_by_head, avoided))


def differs_by_item(tree):
    for one in leaves_of(tree):
        form = one.arguments[0] if one.arguments else None
        if one.kind == "Global" and isinstance(form, list) and isinstance(form[0], list):
            return True
        if one.kind in ("Blocks", "Mask") and (
            isinstance(form, list) or getattr(form, "ndim", 0) == 3 + one.options.get("per_head", False)
        ):
            return True
        if "avoid" in one.options and differs_by_item(one.options["avoid"]):
            return True
    return False


def mask(tree, queries, keys, batch=1, heads=1):
    """(queries, keys), with axes of batch items and heads in front where a part differs between them."""
    items, count = batch if differs_by_item(tree) else 1, heads if differs_by_head(tree) else 1
    grid = [[mask_at(tree, queries, keys, Place(item, head)) for head in range(count)] for item in range(items)]
    array = np.array(grid)
    array = array if differs_by_head(tree) else array[:, 0]
    return array if differs_by_item(tree) else array[0]


def mask_at(tree, queries, keys, place):
    return mask_of(tree, *indices(queries, keys), keys, place)


def mask_of(tree, p, j, keys, place):
    if isinstance(tree, Leaf):
        where = {"place": place} if tree.kind in ("Random", "Blocks", "Global", "Mask") else {}
        return DEFINITIONS[tree.kind](p, j, keys, *tree.arguments, **tree.options, **where)
    left, right = (mask_of(part, p, j, keys, place) for part in (tree.left, tree.right))
    return left | right if tree.symbol == "|" else left & right


def free_pairs(tree, queries, keys, place):
    """Pairs with a global token of any part, which no span limits."""
    p, j = indices(queries, keys)
    parts = [global_(p, j, keys, *one.arguments, place) for one in leaves_of(tree) if one.kind == "Global"]
    for before, tokens, extra in {grid_of(one) for one in leaves_of(tree) if one.kind == "Neighborhood"}:
        parts.append(global_(p - before, j - before, keys, extras(before, tokens, extra)))
    return np.any([np.zeros((queries, keys), dtype=bool), *parts], axis=0)


def distance(tree, queries, keys, place):
    """The distance that spans limit: on a grid, the largest one over the axes."""
    p, j = indices(queries, keys)
    grids = {(per_axis(one.arguments[0], 1), grid_of(one)[0]) for one in leaves_of(tree) if one.kind == "Neighborhood"}
    if not grids:
        return np.abs(p - j)
    ((shape, before),) = grids
    p, j = p - before, j - before
    sides = zip(coordinates(p, shape), coordinates(j, shape), strict=True)
    return np.max([np.abs(row - col) for (row, _), (col, _) in sides], axis=0)


def grid_of(one):
    """(tokens before it, tokens on it, extra) of a Neighborhood."""
    extra = before_and_after(one.options.get("extra", 0))
    return extra[0], int(np.prod(one.arguments[0])), extra


def limits(pattern, queries, keys, batch, heads):
    """The arguments of the dense oracle for a pattern, a list of one for each head, or a list of lists."""
    rows = pattern if isinstance(pattern, list) else [pattern]
    rows = rows if isinstance(rows[0], list) else [rows]
    trees = [tree for row in rows for tree in row]
    parts = {"pattern_mask": mask_at, "free": free_pairs}
    if any(one.kind == "Neighborhood" for tree in trees for one in leaves_of(tree)):
        parts["distance"] = distance  # otherwise it follows from the positions
    items = batch if len(rows) > 1 or any(map(differs_by_item, trees)) else 1
    count = heads if any(len(row) > 1 for row in rows) or any(map(differs_by_head, trees)) else 1

    def at(part, item, head):
        row = rows[item % len(rows)]
        return part(row[head % len(row)], queries, keys, Place(item, head))

    def matrices(part):
        return np.array([[at(part, item, head) for head in range(count)] for item in range(items)])

    return {name: matrices(part) if items > 1 else matrices(part)[0] for name, part in parts.items()}
