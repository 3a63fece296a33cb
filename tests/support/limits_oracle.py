"""Which pairs padding, ranges and segments leave, and the positions that segments give queries: a part of `oracle`."""

import numpy as np


def placed(options, keys):
    """The options, with positions of the queries if their segments determine them.

    From the last query back, each takes the position of the last key of its segment that is left, then one less each.
    """
    if options.get("query_segments") is None or options.get("query_positions") is not None:
        return options
    key_positions = np.arange(keys) if options.get("key_positions") is None else options["key_positions"]
    rows = [np.atleast_2d(row) for row in (options["query_segments"], options["key_segments"], key_positions)]
    places = []
    for item in range(max(len(row) for row in rows)):
        ids, key_ids, at = (row[min(item, len(row) - 1)] for row in rows)
        left = {name: [p for p, segment in zip(at, key_ids, strict=True) if segment == name] for name in set(key_ids)}
        last, row = {}, []
        for name in reversed(ids):
            last[name] = left[name].pop() if left.get(name) else last.get(name, 0) - 1
            row.append(last[name])
        places.append(row[::-1])
    return {**options, "query_positions": np.array(places, dtype=np.float64)}


def in_reach(
    queries,
    keys,
    key_start=None,
    key_stop=None,
    key_ranges=None,
    segment_ids=None,
    query_segments=None,
    key_segments=None,
):
    """The pairs that lengths, ranges and segments leave, on four axes."""
    left = np.ones((1, 1, queries, keys), dtype=bool)
    if key_start is not None:
        left = left & (np.arange(keys) >= np.reshape(key_start, (-1, 1, 1, 1)))
    if key_stop is not None:
        left = left & (np.arange(keys) < np.reshape(key_stop, (-1, 1, 1, 1)))
    if key_ranges is not None:
        first, end = np.moveaxis(np.reshape(key_ranges, (-1, 1, queries, 1, 2)), -1, 0)
        left = left & (np.arange(keys) >= first) & (np.arange(keys) < end)
    if segment_ids is not None:
        key_segments = np.reshape(segment_ids, (-1, 1, 1, keys))
        query_segments = key_segments[..., keys - queries :].swapaxes(-1, -2)
        left = left & (query_segments == key_segments)
    elif query_segments is not None:
        left = left & (np.reshape(query_segments, (-1, 1, queries, 1)) == np.reshape(key_segments, (-1, 1, 1, keys)))
    return left
