"""The kernel of the forward pass."""

from __future__ import annotations

import triton
import triton.language as tl

from headspan.torch.cuda import tiles
from headspan.torch.cuda.tiles import LOG2_E


@triton.jit
def forward(
    query, key, value, out, statistics, lse, inputs, queries, keys, heads,
    SETTINGS: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """Compute the output of a block of queries of one head."""
    block, item, head, rows, valid, seen, begin, end, start, stop, _, _ = tiles.block_of(
        inputs, queries, keys, heads, SETTINGS, ROWS, TILE
    )
    state = tiles.read_rows(rows, valid, item, head, inputs, queries, keys, SETTINGS, NUMBER)
    tile = tiles.load_tile(query, item, head, block * ROWS, seen, ROWS, SETTINGS.head_dim, SETTINGS.dims, True)
    maximum = tl.full([ROWS], float("-inf"), NUMBER)
    total = tl.zeros([ROWS], NUMBER)
    if inputs.sinks.data is not None:
        maximum = tiles.load_rows(inputs.sinks, item, head, rows, valid).to(NUMBER) * LOG2_E
        total += tl.where(maximum == float("-inf"), 0.0, 1.0)
    WIDTH: tl.constexpr = SETTINGS.value_dims
    sums = tl.zeros([ROWS, WIDTH], NUMBER), total, maximum
    limits = item, head // SETTINGS.group, begin, end
    sums = visit(tile, key, value, inputs, limits, state, sums, begin // TILE * TILE, start, SETTINGS, TILE, True)
    sums = visit(tile, key, value, inputs, limits, state, sums, start, stop, SETTINGS, TILE, False)
    out_sums, total, maximum = visit(tile, key, value, inputs, limits, state, sums, stop, end, SETTINGS, TILE, True)

    inverse = tl.where(total == 0, 0.0, 1 / tl.where(total == 0, 1.0, total))
    out_sums *= inverse[:, None]
    tiles.store_tile(out, item, head, block * ROWS, valid, out_sums, ROWS, SETTINGS.value_dim, SETTINGS.value_dims)
    at = (item * heads + head).to(tl.int64) * queries + rows
    if statistics is not None:
        tl.store(statistics + at * 2, maximum, mask=valid)
        tl.store(statistics + at * 2 + 1, inverse, mask=valid)
    if lse is not None:
        tl.store(lse + at, (maximum + tl.log2(tl.where(total == 0, 1.0, total))) / LOG2_E, mask=valid)


@triton.jit
def visit(
    query_tile, key, value, inputs, limits, state, sums, start, stop,
    SETTINGS: tl.constexpr, TILE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add the keys from `start` to before `stop` to the sums of a block of queries."""
    item, key_head, begin, end = limits
    out, total, maximum = sums
    NUMBER: tl.constexpr = out.dtype
    for at in range(start, stop, TILE):
        columns = at + tl.arange(0, TILE)
        inside = (columns >= begin) & (columns < end)
        key_tile = tiles.load_tile(key, item, key_head, at, inside, TILE, SETTINGS.head_dim, SETTINGS.dims, MASKED)
        products = tl.dot(query_tile, tl.trans(key_tile), input_precision=SETTINGS.precision, out_dtype=NUMBER)
        scores, distance, _ = tiles.scores_of(products, columns, inside, item, state, inputs, SETTINGS, 0, MASKED)
        if MASKED or SETTINGS.softcap > 0 or SETTINGS.scale <= 0 or inputs.slopes.data is not None:
            highest = tl.maximum(maximum, tl.max(scores, 1))
        else:  # a multiplication for each row instead of one for each pair
            highest = tl.maximum(maximum, tl.max(products, 1) * state[3])
        shift = tl.where(highest == float("-inf"), 0.0, highest)
        weights = tl.exp2(scores - shift[:, None])
        if MASKED and inputs.span.data is not None and SETTINGS.ramp > 0:
            weights *= tiles.soft_mask(distance, state, SETTINGS, 0)
        past = tl.exp2(maximum - shift)
        total = total * past + tl.sum(weights, 1)
        maximum = highest
        weights = tiles.drop(weights, columns, state, SETTINGS, 0)
        value_tile = tiles.load_tile(
            value, item, key_head, at, inside, TILE, SETTINGS.value_dim, SETTINGS.value_dims, MASKED
        )
        out = tl.dot(weights.to(value_tile.dtype), value_tile, out * past[:, None],
                     input_precision=SETTINGS.precision, out_dtype=NUMBER)  # fmt: skip
    return out, total, maximum
