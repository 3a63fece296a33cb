"""Terms of a pair in the oracle: numbers by distance or offset, factors of blocks, and dropout."""

import numpy as np


def entry_of(shape, offsets, buckets):
    """The index of each pair in a table of biases, along each axis of offsets key - query."""
    if len(offsets) > 1:
        ends = [n // 2 for n in shape]
        return tuple(np.clip(o, -end, end).astype(int) + end for o, end in zip(offsets, ends, strict=True))
    distance = np.trunc(offsets[0])
    if buckets is None:
        return (np.minimum(np.abs(distance), shape[0] - 1).astype(int),)
    end = (len(buckets) - 1) // 2
    return (np.asarray(buckets)[np.clip(distance, -end, end).astype(int) + end],)


def by_offset(table, offsets, buckets, dtype):
    """A bias by distance as a (1 or batch, heads or 1, queries, keys) float64 array."""
    table = np.asarray(np.asarray(table, dtype=dtype), dtype=np.float64)
    if table.ndim == len(offsets):
        table = table[None]
    index = entry_of(table.shape[1:], offsets, buckets)
    rows = [each[index] for each in table]
    return np.stack(rows)[None] if rows[0].ndim == 2 else np.concatenate(rows, axis=1)


def fold_offsets(terms, table, offsets, buckets):
    """Sums a term per pair into the table of biases by distance."""
    shape = np.shape(table)
    sums = np.zeros(shape if len(shape) > len(offsets) else (1, *shape))
    index = [np.broadcast_to(i, terms[:, :1].shape)[:, 0] for i in entry_of(sums.shape[1:], offsets, buckets)]
    for head in range(terms.shape[1]):
        np.add.at(sums[head % len(sums)], tuple(index), terms[:, head])
    return sums.reshape(shape)


def of_blocks(gates, block, queries, keys, dtype):
    """The factor of each pair as a (1, heads or 1, queries, keys) float64 array."""
    gates = np.asarray(np.asarray(gates, dtype=dtype), dtype=np.float64)
    rows, columns = np.broadcast_to(block, 2)
    places = [(i + keys - queries) // rows for i in range(queries)], [j // columns for j in range(keys)]
    return gates.reshape(1, -1, *gates.shape[-2:])[:, :, places[0]][..., places[1]]


def fold_blocks(terms, gates, block):
    """Sums a term per pair into the gates of the blocks."""
    queries, keys = terms.shape[-2:]
    sums = np.zeros((1, *np.shape(gates))[-3:])
    rows, columns = np.broadcast_to(block, 2)
    places = (np.arange(queries)[:, None] + keys - queries) // rows, np.arange(keys) // columns
    for head in range(terms.shape[1]):
        np.add.at(sums[head % len(sums)], places, terms[:, head].sum(axis=0))
    return sums.reshape(np.shape(gates))


def mixed(x, multipliers, shifts, bits):
    """Hashes of integers: every bit changes all bits above and below it."""
    for multiplier, shift in zip(multipliers, shifts, strict=True):
        x = (x ^ (x >> shift)) * multiplier % 2**bits
    return x ^ (x >> shifts[-1])


def dropout_factors(rate, seed, shape, keys):
    """What weights (batch, heads, queries, keys and memory) are multiplied by, row by row."""
    factors = np.empty(shape)
    key = np.r_[np.arange(keys), 2**31 + np.arange(shape[3] - keys)].astype(np.uint64)
    for batch, head, query in np.ndindex(shape[:3]):
        word = seed
        for number in (batch, head, query + keys - shape[2]):
            word = mixed((word + 0x9E3779B97F4A7C15) % 2**64, (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53), (33, 33), 64)
            word ^= number % 2**64
        word = mixed(word, (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53), (33, 33), 64)
        x = (key + np.uint64(word % 2**32)) % 2**32
        x = (x ^ (x >> 16)) * 0x85EBCA6B % 2**32
        x = ((x ^ (x >> 13)) + np.uint64(word >> 32)) * 0xC2B2AE35 % 2**32
        factors[batch, head, query] = np.where((x ^ (x >> 16)) < round(rate * 2**32), 0, 1 / (1 - rate))
    return factors
