"""The queries and keys of a view that are in the picture, and the data that the browser gets for them.

The browser computes weights itself if the keys for them fit, and otherwise gets maps in blocks. It needs more keys than
are in the picture, because the softmax of a row sums over all keys that its query sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan.explorer.data import ViewData
from headspan.ops.spans import farthest
from headspan.patterns.base import Pattern

Array = npt.NDArray[Any]
Range = tuple[int, int]  # first and end, without the end

BLOCKS = 128  # the largest number of blocks of a map along each side
STRONGEST = 5  # the number of keys that are listed for the pinned query
MOST_PAIRS = 3_000_000  # per head that the browser computes for a part of a long input
MOST_BYTES = 8_000_000  # of queries and keys for such a part; base64 adds a third in a saved page


@dataclass(frozen=True)
class Part:
    """A part of the queries and keys of a view.

    Attributes
    ----------
    data : ViewData
    rows, cols : (int, int)
        The ranges of queries and keys in the picture.
    kept : ndarray of int, or None
        The keys with which the browser computes, or None if it gets maps.
    reach : int, or None
        The longest reach for which these keys suffice, or None for any distance.
    needs : int
        The bytes of queries and keys that the browser would need to compute the maps itself, or 0 if it computes.
    """

    data: ViewData
    rows: Range
    cols: Range
    kept: npt.NDArray[np.int64] | None
    reach: int | None
    needs: int

    @property
    def pool(self) -> tuple[int, int] | None:
        """The numbers of queries and keys in a block of a map, or None if the browser computes."""
        if self.kept is not None:
            return None
        (first_row, end_row), (first_col, end_col) = self.rows, self.cols
        return -(-(end_row - first_row) // BLOCKS), -(-(end_col - first_col) // BLOCKS)

    @property
    def meta(self) -> dict[str, Any]:
        """The sizes and texts for the browser."""
        data, kept = self.data, self.kept
        keys = kept if kept is not None else np.arange(*self.cols)
        gapless = keys.size == 0 or keys[-1] - keys[0] == keys.size - 1
        return {
            "heads": data.heads,
            "names": data.names,
            "queries": data.query.shape[1],
            "keys": data.key.shape[1],
            "dim": data.query.shape[2],
            "valueDim": data.value_dim,
            "itemsize": data.query.itemsize,
            "scale": data.query.shape[2] ** -0.5,
            "causal": data.causal,
            "tokens": data.tokens,
            "pool": self.pool,
            "unit": data.unit,
            "patterns": [_described(data.pattern_of(rule)) for rule in range(data.rules)] or None,
            "segments": _listed(data.limits.get("segment_ids")),
            "padding": data.padding,
            "prefix": data.prefix,
            "ranged": "key_ranges" in data.limits,
            "rows": self.rows,
            "cols": self.cols,
            "firstKey": int(keys[0]) if keys.size else 0,
            "keptKeys": None if gapless else keys.tolist(),
            "reach": self.reach,
            "needs": self.needs,
            "maxTokens": data.max_tokens,
            "strongest": STRONGEST,
        }

    @property
    def arrays(self) -> dict[str, bytes]:
        """The arrays with which the browser computes, as bytes of float32, or empty bytes if it gets maps."""
        if self.kept is None:
            return dict.fromkeys(("query", "key", "norms", "bias", "allowed"), b"")
        data, kept = self.data, self.kept
        return {
            "query": _float32(data.query[:, slice(*self.rows)]),
            "key": _float32(data.key[:, kept]),
            "norms": b"" if data.norms is None else _float32(data.norms[:, kept]),
            "bias": b"" if data.bias is None else _float32(data.bias[:, kept]),
            "allowed": b"".join(map(self._bits, range(data.rules))),
        }

    def map_of(self, index: int, span: float, ramp: float, temperature: float) -> bytes:
        """Return the map of a head as bytes of float32, or no bytes if the browser computes."""
        if self.pool is None:
            return b""
        chosen = {"rows": slice(*self.rows), "cols": slice(*self.cols), "pool": self.pool}
        return _float32(self.data.weights(index, span, ramp, temperature, **chosen))

    def _bits(self, rule: int) -> bytes:
        """Return the pairs that a rule allows, without causality, as bits in little-endian order."""
        seen = self.data.seen(rule, causal=False, rows=slice(*self.rows), cols=self.kept)
        return np.packbits(seen, bitorder="little").tobytes()


def full_part(data: ViewData) -> Part:
    """Return the part with all queries and keys. Long inputs are shown as maps."""
    queries, keys = data.query.shape[1], data.key.shape[1]
    computes = max(queries, keys) <= data.max_tokens
    kept = np.arange(keys) if computes else None
    return Part(data, (0, queries), (0, keys), kept, None, 0 if computes else _bytes(data, queries, keys))


def zoomed(data: ViewData, rows: Range, cols: Range, spans: list[float], ramp: float) -> Part:
    """Return a part of the queries and keys. The browser computes if it can hold all keys in reach of the spans."""
    if max(rows[1] - rows[0], cols[1] - cols[0]) > data.max_tokens:
        return Part(data, rows, cols, None, None, _bytes(data, rows[1] - rows[0], cols[1] - cols[0]))
    least = int(farthest(max(spans), ramp))
    all_keys = data.key.shape[1] + data.query.shape[1]
    kept, reach, needs = None, None, 0
    distance = least
    while True:
        reaches = None if distance >= all_keys else distance
        keys = _seen_keys(data, rows, cols, reaches)
        size = _bytes(data, rows[1] - rows[0], keys.size)
        if size > MOST_BYTES or keys.size * (rows[1] - rows[0]) > MOST_PAIRS:
            needs = size if kept is None else 0
            break
        kept, reach = keys, reaches
        if reaches is None:
            break
        distance = max(2 * distance, 64)
    return Part(data, rows, cols, kept, reach, needs)


def _seen_keys(data: ViewData, rows: Range, cols: Range, reach: int | None) -> npt.NDArray[np.int64]:
    """Return the keys in the picture and the keys that its queries see within a reach."""
    needed = np.zeros(data.key.shape[1], bool)
    needed[slice(*cols)] = True
    for rule in range(max(data.rules, 1)):
        chosen = {"rows": slice(*rows), "pool": (rows[1] - rows[0], 1)}
        needed |= data.seen(rule, causal=data.causal, span=reach, **chosen).reshape(-1)
    return np.flatnonzero(needed)


def _bytes(data: ViewData, queries: int, keys: int) -> int:
    heads, _, dim = data.query.shape
    return 4 * int(heads) * int(dim) * (queries + keys)


def _described(pattern: Pattern | None) -> dict[str, Any]:
    """Return the properties of a pattern that the browser needs in addition to its pairs."""
    return {
        "name": None if pattern is None else pattern.short_name(),
        "free": [] if pattern is None else list(pattern.global_tokens),
        "grid": None if pattern is None else list(pattern.grid) or None,
        "gridStart": 0 if pattern is None else pattern.grid_start,
    }


def _listed(array: Any) -> list[int] | None:
    return None if array is None else array.tolist()


def _float32(array: Array) -> bytes:
    return np.ascontiguousarray(array, dtype="<f4").tobytes()
