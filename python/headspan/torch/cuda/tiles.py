"""Parts of the kernels: the arguments, what a block of queries sees, and the scores and masks of a tile of pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
FURTHEST = tl.constexpr(2**30)  # exceeds every distance, and sums of two are 32-bit integers


class View(NamedTuple):
    """A tensor with its strides along batch items, heads and tokens; its last axis, if any, is contiguous.

    Its data is None if an option was not passed or a result is not needed.
    """

    data: Any
    batch: int
    head: int
    token: int


ABSENT = View(None, 0, 0, 0)


class Inputs(NamedTuple):
    """The options of an attention that are tensors, shared along axes with a stride of 0.

    Spans, temperatures and slopes are for queries, `ranges` holds the first key and the key after the last for each
    query, `positions` the positions of queries, `segments` the segment of each key, and `seed` a 64-bit integer.
    """

    span: View
    temperature: View
    slopes: View
    sinks: View
    ranges: View
    positions: View
    segments: View
    seed: View


class Rows(NamedTuple):
    """Tensors of shape (batch, heads, queries) from the backward pass of queries; None if they are not needed.

    `lse` is the log-sum-exp to base 2, `delta` is sum(grad_out * out) - grad_lse, the others are gradients.
    """

    lse: Any
    delta: Any
    span: Any
    temperature: Any
    slopes: Any
    sinks: Any


@dataclass(frozen=True)
class Settings:
    """The numbers that kernels are compiled for."""

    head_dim: int
    value_dim: int
    dims: int  # the two dimensions, rounded up to a power of 2
    value_dims: int
    group: int  # query heads for each key head
    causal: bool
    include_self: int
    ramp: float
    scale: float
    softcap: float  # 0 without a cap
    threshold: int  # the hash from which on a weight is kept; 0 without dropout
    kept: float  # the factor of weights that are kept
    floor: float  # the smallest value of the soft mask of a pair in reach
    precision: str  # of products of float32


@triton.jit
def load_rows(view, item, head, rows, valid, OFFSET: tl.constexpr = 0):
    """Return a number for each row, 0 for rows that are not valid."""
    at = item.to(tl.int64) * view.batch + head.to(tl.int64) * view.head + OFFSET
    return tl.load(view.data + at + rows.to(tl.int64) * view.token, mask=valid, other=0)


@triton.jit
def tile_pointers(view, item, head, start, SIZE: tl.constexpr, DIMS: tl.constexpr):
    """Return pointers to the numbers of the rows from `start` on."""
    at = item.to(tl.int64) * view.batch + head.to(tl.int64) * view.head + tl.cast(start, tl.int64) * view.token
    return view.data + at + tl.arange(0, SIZE)[:, None] * view.token + tl.arange(0, DIMS)[None, :]


@triton.jit
def load_tile(view, item, head, start, valid, SIZE: tl.constexpr, DIM: tl.constexpr, DIMS: tl.constexpr,
              CHECK: tl.constexpr):  # fmt: skip
    """Return the rows from `start` on; if they are checked, rows that are not valid are 0 and are not read."""
    pointers = tile_pointers(view, item, head, start, SIZE, DIMS)
    if CHECK or DIM != DIMS:
        tile = tl.load(pointers, mask=valid[:, None] & (tl.arange(0, DIMS) < DIM)[None, :], other=0.0)
    else:
        tile = tl.load(pointers)
    return tile


@triton.jit
def store_tile(view, item, head, start, valid, tile, SIZE: tl.constexpr, DIM: tl.constexpr, DIMS: tl.constexpr):
    """Store the valid rows of a tile in the type of the tensor."""
    pointers = tile_pointers(view, item, head, start, SIZE, DIMS)
    within = valid[:, None] & (tl.arange(0, DIMS) < DIM)[None, :]
    tl.store(pointers, tile.to(view.data.dtype.element_ty), mask=within)


@triton.jit
def limits_of(rows, valid, item, head, inputs, queries, keys, SETTINGS: tl.constexpr):
    """Return the positions of queries, their first key and the key after the last, and both for masks of 1.

    The ranges of queries that see no key end at 0.
    """
    position = rows + (keys - queries)
    if inputs.positions.data is not None:
        position = load_rows(inputs.positions, item, item, rows, valid).to(tl.int32)
    first = tl.zeros_like(position)
    last = first + keys
    if SETTINGS.causal:
        last = tl.minimum(last, position + SETTINGS.include_self)
    if inputs.ranges.data is not None:
        first = tl.maximum(first, load_rows(inputs.ranges, item, head, rows, valid))
        last = tl.minimum(last, load_rows(inputs.ranges, item, head, rows, valid, 1))
    full_first = first
    full_last = last
    if inputs.span.data is not None:
        span = load_rows(inputs.span, item, head, rows, valid).to(tl.float64)
        near = tl.floor(span)
        reach = tl.minimum(tl.maximum(near, tl.ceil(span + SETTINGS.ramp) - 1), FURTHEST).to(tl.int32)
        near = tl.minimum(near, FURTHEST).to(tl.int32)
        first = tl.maximum(first, position - reach)
        full_first = tl.maximum(first, position - near)
        if not SETTINGS.causal:
            last = tl.minimum(last, position + reach + 1)
            full_last = tl.minimum(last, position + near + 1)
    seen = valid & (first < last)
    return position, first, tl.where(seen, last, 0), full_first, tl.where(seen, full_last, 0)


@triton.jit
def block_of(inputs, queries, keys, heads, SETTINGS: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr):
    """Return the block of queries of a program, and the keys of the block.

    These are the first key that any query sees and the key after the last, the whole tiles between that all queries
    see with a mask of 1, and the bounds of such keys. Blocks that may see many keys come first.
    """
    blocks = tl.cdiv(queries, ROWS)
    block = blocks - 1 - tl.program_id(0) % blocks
    item = tl.program_id(0) // blocks // heads
    head = tl.program_id(0) // blocks % heads
    rows = block * ROWS + tl.arange(0, ROWS)
    valid = rows < queries
    _, first, last, full_first, full_last = limits_of(rows, valid, item, head, inputs, queries, keys, SETTINGS)
    begin = tl.min(tl.where(last > 0, first, keys))
    end = tl.max(last)
    full_begin = tl.max(tl.where(valid, full_first, 0))
    full_end = tl.min(tl.where(valid, full_last, keys))
    # Other pairs may be excluded within the ranges, so that every tile needs its mask.
    if inputs.segments.data is not None or not (SETTINGS.causal or SETTINGS.include_self):
        full_end = 0
    start = tl.cdiv(full_begin, TILE) * TILE
    stop = full_end // TILE * TILE
    if start >= stop:
        start = end
        stop = end
    return block, item, head, rows, valid, last > 0, begin, end, start, stop, full_begin, full_end


@triton.jit
def read_rows(rows, valid, item, head, inputs, queries, keys, SETTINGS: tl.constexpr, NUMBER: tl.constexpr):
    """Return what `scores_of`, `soft_mask` and `drop` need of each query; numbers without a use are positions."""
    position, first, last, _, _ = limits_of(rows, valid, item, head, inputs, queries, keys, SETTINGS)
    scale: tl.constexpr = SETTINGS.scale * (1.0 if SETTINGS.softcap > 0 else LOG2_E)
    factor = tl.full(rows.shape, scale, NUMBER)
    if inputs.temperature.data is not None:
        factor = factor / tl.where(valid, load_rows(inputs.temperature, item, head, rows, valid).to(NUMBER), 1.0)
    slope = position
    if inputs.slopes.data is not None:
        slope = load_rows(inputs.slopes, item, head, rows, valid).to(NUMBER) * LOG2_E
    span = position
    if inputs.span.data is not None:
        span = load_rows(inputs.span, item, head, rows, valid).to(NUMBER)
    segment = position
    if inputs.segments.data is not None:
        segment = load_rows(inputs.segments, item, item, rows + (keys - queries), valid)
    first_word = position
    second_word = position
    if SETTINGS.threshold > 0:
        first_word, second_word = query_words(rows, item, head, inputs, queries, keys)
    return position, first, last, factor, slope, span, segment, first_word, second_word


@triton.jit
def along(x, AXIS: tl.constexpr):
    """Return numbers along an axis of a tile of two axes."""
    return x[:, None] if AXIS == 0 else x[None, :]


@triton.jit
def tanh(x):
    """Return the hyperbolic tangent."""
    square = x * x
    near = x * (1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315 - square * (62 / 2835)))))
    return tl.where(square < 0.01, near, 1 - 2 / (tl.exp2(x * (2 * LOG2_E)) + 1))


@triton.jit
def scores_of(products, columns, inside, item, state, inputs, SETTINGS: tl.constexpr, AXIS: tl.constexpr,
              MASKED: tl.constexpr):  # fmt: skip
    """Return scores times log2(e), the distances of pairs, and the derivative of the soft cap.

    AXIS is the axis of the queries. If pairs are masked, the scores of those that are not visible are -inf.
    """
    position, first, last, factor, slope, _, segment, _, _ = state
    key = along(columns, 1 - AXIS)
    distance = tl.abs(along(position, AXIS) - key).to(products.dtype)
    scores = products * along(factor, AXIS)
    cap_slope = scores
    if SETTINGS.softcap > 0:
        capped = tanh(scores / SETTINGS.softcap)
        cap_slope = 1 - capped * capped
        scores = capped * (SETTINGS.softcap * LOG2_E)
    if inputs.slopes.data is not None:
        scores -= along(slope, AXIS) * distance
    if MASKED:
        visible = (key >= along(first, AXIS)) & (key < along(last, AXIS))
        if not (SETTINGS.causal or SETTINGS.include_self):
            visible = visible & (key != along(position, AXIS))
        if inputs.segments.data is not None:
            of_keys = load_rows(inputs.segments, item, item, columns, inside)
            visible = visible & (along(of_keys, 1 - AXIS) == along(segment, AXIS))
        scores = tl.where(visible, scores, float("-inf"))
    return scores, distance, cap_slope


@triton.jit
def soft_mask(distance, state, SETTINGS: tl.constexpr, AXIS: tl.constexpr):
    """Return the soft mask of pairs that are in reach."""
    mask = ((along(state[5], AXIS) - distance) + SETTINGS.ramp) * (1 / SETTINGS.ramp)
    return tl.minimum(tl.maximum(mask, SETTINGS.floor), 1.0)


@triton.jit
def drop(numbers, columns, state, SETTINGS: tl.constexpr, AXIS: tl.constexpr):
    """Return the numbers of pairs after dropout, which drops the same pairs on every device."""
    if SETTINGS.threshold > 0:
        x = along(columns, 1 - AXIS).to(tl.uint32) + along(state[7], AXIS)
        x = (x ^ (x >> 16)) * 0x85EBCA6B
        x = ((x ^ (x >> 13)) + along(state[8], AXIS)) * 0xC2B2AE35
        numbers = tl.where((x ^ (x >> 16)) >= SETTINGS.threshold, numbers * SETTINGS.kept, 0.0)
    return numbers


@triton.jit
def mix_bits(x):
    """Mix the bits of 64-bit words, as MurmurHash3 does."""
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCD
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53
    return x ^ (x >> 33)


@triton.jit
def query_words(rows, item, head, inputs, queries, keys):
    """Return the two words of each query that the hash of its pairs begins with."""
    word = tl.load(inputs.seed.data).to(tl.uint64, bitcast=True)
    word = mix_bits(word + 0x9E3779B97F4A7C15) ^ item.to(tl.uint64)
    word = mix_bits(word + 0x9E3779B97F4A7C15) ^ head.to(tl.uint64)
    index = (rows + (keys - queries)).to(tl.int64).to(tl.uint64, bitcast=True)
    words = mix_bits(mix_bits(word + 0x9E3779B97F4A7C15) ^ index)
    return words.to(tl.uint32), (words >> 32).to(tl.uint32)
