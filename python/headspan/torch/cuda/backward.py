"""The kernels of the backward pass: one for the gradients of queries, and one for those of keys and values.

The first kernel sums over the keys of a block of queries, the second over the queries of a block of keys. Both compute
the weights again. No two programs add to one sum, so that results are the same in every run.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headspan.torch.cuda import tiles
from headspan.torch.cuda.tiles import LOG2_E


@triton.jit
def backward_query(
    query, key, value, out, grad_out, grad_lse, statistics, inputs, gradient, results, bounds, queries, keys, heads,
    SETTINGS: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of queries and of its options.

    Also store what `backward_key` needs: the log-sum-exp and sum(grad_out * out) - grad_lse of each query, and the
    bounds of the keys of the block.
    """
    block, item, head, rows, valid, seen, begin, end, start, stop, full_begin, full_end = tiles.block_of(
        inputs, queries, keys, heads, SETTINGS, ROWS, TILE
    )
    state = tiles.read_rows(rows, valid, item, head, inputs, queries, keys, SETTINGS, NUMBER)
    top = block * ROWS
    query_tile = tiles.load_tile(query, item, head, top, seen, ROWS, SETTINGS.head_dim, SETTINGS.dims, True)
    grad_tile = tiles.load_tile(grad_out, item, head, top, seen, ROWS, SETTINGS.value_dim, SETTINGS.value_dims, True)
    out_tile = tiles.load_tile(out, item, head, top, seen, ROWS, SETTINGS.value_dim, SETTINGS.value_dims, True)
    delta = tl.sum(grad_tile.to(NUMBER) * out_tile.to(NUMBER), 1)
    if grad_lse.data is not None:
        delta -= tiles.load_rows(grad_lse, item, head, rows, valid).to(NUMBER)
    number = (item * heads + head).to(tl.int64)
    at = number * queries + rows
    maximum = tl.load(statistics + at * 2, mask=valid, other=0.0)
    inverse = tl.load(statistics + at * 2 + 1, mask=valid, other=0.0)
    if inputs.sinks.data is not None:
        sink = tiles.load_rows(inputs.sinks, item, head, rows, valid).to(NUMBER) * LOG2_E
        weight = tl.where(sink == float("-inf"), 0.0, tl.exp2(sink - maximum) * inverse)
        tl.store(results.sinks + at, -weight * delta, mask=valid)
    # Queries without keys must not reach the sums of others, whatever their gradients are.
    delta = tl.where(seen, delta, 0.0)
    lse = tl.where(seen & (inverse > 0), maximum - tl.log2(tl.where(inverse > 0, inverse, 1.0)), 0.0)
    tl.store(results.lse + at, lse, mask=valid)
    tl.store(results.delta + at, delta, mask=valid)
    bounds += (number * tl.cdiv(queries, ROWS) + block) * 4
    tl.store(bounds, begin)
    tl.store(bounds + 1, end)
    tl.store(bounds + 2, full_begin)
    tl.store(bounds + 3, tl.where(top + ROWS <= queries, full_end, 0))

    WIDTH: tl.constexpr = SETTINGS.dims
    sums = tl.zeros([ROWS, WIDTH], NUMBER), tl.zeros([ROWS], NUMBER), tl.zeros([ROWS], NUMBER)
    block_state = query_tile, grad_tile, lse, delta
    limits = item, head // SETTINGS.group, begin, end
    sums = visit_keys(
        block_state, key, value, inputs, limits, state, sums, begin // TILE * TILE, start, SETTINGS, TILE, True
    )
    sums = visit_keys(block_state, key, value, inputs, limits, state, sums, start, stop, SETTINGS, TILE, False)
    of_query, of_span, of_slope = visit_keys(
        block_state, key, value, inputs, limits, state, sums, stop, end, SETTINGS, TILE, True
    )

    if inputs.temperature.data is not None:
        temperature = tl.where(valid, tiles.load_rows(inputs.temperature, item, head, rows, valid).to(NUMBER), 1.0)
        of_query /= temperature[:, None]
        product = tl.sum(of_query * query_tile.to(NUMBER), 1) * SETTINGS.scale
        tl.store(results.temperature + at, -product / temperature, mask=valid)
    if gradient.data is not None:
        of_query *= SETTINGS.scale
        tiles.store_tile(gradient, item, head, top, valid, of_query, ROWS, SETTINGS.head_dim, SETTINGS.dims)
    if inputs.span.data is not None:
        tl.store(results.span + at, of_span / (SETTINGS.ramp if SETTINGS.ramp > 0 else 1.0), mask=valid)
    if inputs.slopes.data is not None:
        tl.store(results.slopes + at, -of_slope, mask=valid)


@triton.jit
def visit_keys(
    block_state, key, value, inputs, limits, state, sums, start, stop,
    SETTINGS: tl.constexpr, TILE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add the keys from `start` to before `stop` to the gradients of a block of queries."""
    query_tile, grad_tile, lse, delta = block_state
    item, key_head, begin, end = limits
    of_query, of_span, of_slope = sums
    NUMBER: tl.constexpr = of_query.dtype
    for at in range(start, stop, TILE):
        columns = at + tl.arange(0, TILE)
        inside = (columns >= begin) & (columns < end)
        key_tile = tiles.load_tile(key, item, key_head, at, inside, TILE, SETTINGS.head_dim, SETTINGS.dims, MASKED)
        value_tile = tiles.load_tile(
            value, item, key_head, at, inside, TILE, SETTINGS.value_dim, SETTINGS.value_dims, MASKED
        )
        products = tl.dot(query_tile, tl.trans(key_tile), input_precision=SETTINGS.precision, out_dtype=NUMBER)
        scores, distance, cap_slope = tiles.scores_of(
            products, columns, inside, item, state, inputs, SETTINGS, 0, MASKED
        )
        weights = tl.exp2(scores - lse[:, None])
        of_weights = tl.dot(grad_tile, tl.trans(value_tile), input_precision=SETTINGS.precision, out_dtype=NUMBER)
        of_scores = weights * (tiles.drop(of_weights, columns, state, SETTINGS, 0) - delta[:, None])
        if MASKED and inputs.span.data is not None and SETTINGS.ramp > 0:
            of_span += tl.sum(tl.where(distance >= state[5][:, None], of_scores, 0.0), 1)
            of_scores *= tiles.soft_mask(distance, state, SETTINGS, 0)
        if inputs.slopes.data is not None:
            of_slope += tl.sum(of_scores * distance, 1)
        if SETTINGS.softcap > 0:
            of_scores *= cap_slope
        of_query = tl.dot(of_scores.to(key_tile.dtype), key_tile, of_query,
                          input_precision=SETTINGS.precision, out_dtype=NUMBER)  # fmt: skip
    return of_query, of_span, of_slope


@triton.jit
def backward_key(
    query, key, value, grad_out, inputs, results, bounds, grad_key, grad_value, queries, keys, heads,
    BLOCKS: tl.constexpr, SPLIT: tl.constexpr,
    SETTINGS: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of keys and of its values over all query heads that share them.

    SPLIT is the number of queries in a block of `bounds`, and BLOCKS a power of 2 at least the number of blocks.
    """
    key_heads = heads // SETTINGS.group
    count = tl.cdiv(keys, TILE)
    item = tl.program_id(0) // count // key_heads
    key_head = tl.program_id(0) // count % key_heads
    at = tl.program_id(0) % count * TILE
    columns = at + tl.arange(0, TILE)
    inside = columns < keys
    key_tile = tiles.load_tile(key, item, key_head, at, inside, TILE, SETTINGS.head_dim, SETTINGS.dims, True)
    value_tile = tiles.load_tile(value, item, key_head, at, inside, TILE, SETTINGS.value_dim, SETTINGS.value_dims, True)
    WIDTH: tl.constexpr = SETTINGS.dims
    VALUE_WIDTH: tl.constexpr = SETTINGS.value_dims
    sums = tl.zeros([TILE, WIDTH], NUMBER), tl.zeros([TILE, VALUE_WIDTH], NUMBER)
    columns_state = key_tile, value_tile, columns, inside
    for member in range(SETTINGS.group):
        head = key_head * SETTINGS.group + member
        # The blocks of queries that see any of these keys, and a run of blocks that see all of them with a mask of 1.
        numbers = tl.arange(0, BLOCKS)
        exists = numbers < tl.cdiv(queries, SPLIT)
        base = bounds + ((item * heads + head).to(tl.int64) * tl.cdiv(queries, SPLIT) + numbers) * 4
        sees = (tl.load(base, mask=exists, other=0) < at + TILE) & (tl.load(base + 1, mask=exists, other=0) > at)
        begins_before = tl.load(base + 2, mask=exists, other=0) <= at
        unmasked = begins_before & (tl.load(base + 3, mask=exists, other=0) >= at + TILE)
        lowest = tl.min(tl.where(sees, numbers, BLOCKS))
        highest = tl.max(tl.where(sees, numbers + 1, 0))
        start = tl.min(tl.where(unmasked, numbers, highest))
        stop = tl.min(tl.where((numbers >= start) & (unmasked == 0), numbers, highest))
        rows = item, head, queries, keys, heads
        sums = visit_queries(columns_state, query, grad_out, inputs, results, rows, sums, lowest * SPLIT, start * SPLIT,
                             SETTINGS, ROWS, True)  # fmt: skip
        sums = visit_queries(columns_state, query, grad_out, inputs, results, rows, sums, start * SPLIT, stop * SPLIT,
                             SETTINGS, ROWS, False)  # fmt: skip
        sums = visit_queries(columns_state, query, grad_out, inputs, results, rows, sums, stop * SPLIT, highest * SPLIT,
                             SETTINGS, ROWS, True)  # fmt: skip
    of_key, of_value = sums
    if grad_key.data is not None:
        of_key *= SETTINGS.scale
        tiles.store_tile(grad_key, item, key_head, at, inside, of_key, TILE, SETTINGS.head_dim, SETTINGS.dims)
    if grad_value.data is not None:
        tiles.store_tile(
            grad_value, item, key_head, at, inside, of_value, TILE, SETTINGS.value_dim, SETTINGS.value_dims
        )


@triton.jit
def visit_queries(
    columns_state, query, grad_out, inputs, results, limits, sums, start, stop,
    SETTINGS: tl.constexpr, ROWS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add the queries from `start` to before `stop` to the gradients of a block of keys."""
    key_tile, value_tile, columns, inside = columns_state
    item, head, queries, keys, heads = limits
    of_key, of_value = sums
    NUMBER: tl.constexpr = of_key.dtype
    for at in range(start, stop, ROWS):
        rows = at + tl.arange(0, ROWS)
        valid = rows < queries
        state = tiles.read_rows(rows, valid, item, head, inputs, queries, keys, SETTINGS, NUMBER)
        seen = state[2] > 0
        query_tile = tiles.load_tile(query, item, head, at, seen, ROWS, SETTINGS.head_dim, SETTINGS.dims, MASKED)
        grad_tile = tiles.load_tile(
            grad_out, item, head, at, seen, ROWS, SETTINGS.value_dim, SETTINGS.value_dims, MASKED
        )
        number = (item * heads + head).to(tl.int64) * queries + rows
        lse = tl.load(results.lse + number, mask=valid, other=0.0)
        delta = tl.load(results.delta + number, mask=valid, other=0.0)
        products = tl.dot(key_tile, tl.trans(query_tile), input_precision=SETTINGS.precision, out_dtype=NUMBER)
        scores, distance, cap_slope = tiles.scores_of(
            products, columns, inside, item, state, inputs, SETTINGS, 1, MASKED
        )
        weights = tl.exp2(scores - lse[None, :])
        if MASKED and inputs.span.data is not None and SETTINGS.ramp > 0:
            weights *= tiles.soft_mask(distance, state, SETTINGS, 1)
        of_weights = tl.dot(value_tile, tl.trans(grad_tile), input_precision=SETTINGS.precision, out_dtype=NUMBER)
        kept = tiles.drop(weights, columns, state, SETTINGS, 1)
        of_value = tl.dot(kept.to(grad_tile.dtype), grad_tile, of_value,
                          input_precision=SETTINGS.precision, out_dtype=NUMBER)  # fmt: skip
        of_scores = weights * (tiles.drop(of_weights, columns, state, SETTINGS, 1) - delta[None, :])
        if MASKED:
            of_scores = tl.where(weights == 0, 0.0, of_scores)  # values that no query sees may be NaN
        if SETTINGS.softcap > 0:
            of_scores *= cap_slope
        if inputs.temperature.data is not None:
            temperature = tiles.load_rows(inputs.temperature, item, head, rows, valid).to(NUMBER)
            of_scores /= tl.where(valid, temperature, 1.0)[None, :]
        of_key = tl.dot(of_scores.to(query_tile.dtype), query_tile, of_key,
                        input_precision=SETTINGS.precision, out_dtype=NUMBER)  # fmt: skip
    return of_key, of_value
