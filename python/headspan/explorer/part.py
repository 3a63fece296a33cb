"""What of a view's queries and keys is on the picture, and how the browser gets it.

The browser computes weights itself where it can hold the keys for that, and else gets maps in blocks. It needs more
keys than are on the picture: a row is divided by its sum over all keys that its query sees.
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
Range = tuple[int, int]  # from the first to before the last

BLOCKS = 128  # of a map, along each side
STRONGEST = 5  # keys of the pinned query that are told
MOST_PAIRS = 3_000_000  # that the browser computes for a part of a long input, a head
MOST_BYTES = 8_000_000  # of queries and keys that it gets for that; base64 makes a third more of them in a page


@dataclass(frozen=True)
class Part:
    """Some queries and keys of a view.

    Attributes
    ----------
    data : ViewData
    rows, cols : (int, int)
        Queries and keys on the picture.
    kept : ndarray of int, or None
        Keys that the browser computes with; None if it gets maps.
    reach : int, or None
        Spans may reach so far with these keys; None: any distance.
    needs : int
        Bytes of queries and keys with which the browser would compute what it gets as maps, 0 if it computes.
    """

    data: ViewData
    rows: Range
    cols: Range
    kept: npt.NDArray[np.int64] | None
    reach: int | None
    needs: int

    @property
    def pool(self) -> tuple[int, int] | None:
        """Queries and keys in a block of a map; None if the browser computes."""
        if self.kept is not None:
            return None
        (first_row, end_row), (first_col, end_col) = self.rows, self.cols
        return -(-(end_row - first_row) // BLOCKS), -(-(end_col - first_col) // BLOCKS)

    @property
    def meta(self) -> dict[str, Any]:
        """Sizes and texts, as the browser gets them."""
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
        """Arrays for the browser to compute with, as the bytes of float32; none if it gets maps."""
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
        """Map of a head as the bytes of float32; nothing if the browser computes."""
        if self.pool is None:
            return b""
        chosen = {"rows": slice(*self.rows), "cols": slice(*self.cols), "pool": self.pool}
        return _float32(self.data.weights(index, span, ramp, temperature, **chosen))

    def _bits(self, rule: int) -> bytes:
        """Return the pairs that a rule allows, a bit each, the first lowest in its byte; causality is left out."""
        seen = self.data.seen(rule, causal=False, rows=slice(*self.rows), cols=self.kept)
        return np.packbits(seen, bitorder="little").tobytes()


def whole(data: ViewData) -> Part:
    """Return all queries and keys; of long inputs as maps."""
    queries, keys = data.query.shape[1], data.key.shape[1]
    computes = max(queries, keys) <= data.max_tokens
    kept = np.arange(keys) if computes else None
    return Part(data, (0, queries), (0, keys), kept, None, 0 if computes else _bytes(data, queries, keys))


def zoomed(data: ViewData, rows: Range, cols: Range, spans: list[float], ramp: float) -> Part:
    """Return some queries and keys; the browser computes if it can hold what spans like these see, or more."""
    if max(rows[1] - rows[0], cols[1] - cols[0]) > data.max_tokens:
        return Part(data, rows, cols, None, None, _bytes(data, rows[1] - rows[0], cols[1] - cols[0]))
    least = int(farthest(max(spans), ramp))
    all_keys = data.key.shape[1] + data.query.shape[1]
    kept, reach, needs = None, None, 0
    wanted = least
    while True:
        reaches = None if wanted >= all_keys else wanted
        more = _seen_keys(data, rows, cols, reaches)
        size = _bytes(data, rows[1] - rows[0], more.size)
        if size > MOST_BYTES or more.size * (rows[1] - rows[0]) > MOST_PAIRS:
            needs = size if kept is None else 0
            break
        kept, reach = more, reaches
        if reaches is None:
            break
        wanted = max(2 * wanted, 64)
    return Part(data, rows, cols, kept, reach, needs)


def _seen_keys(data: ViewData, rows: Range, cols: Range, reach: int | None) -> npt.NDArray[np.int64]:
    """Keys on the picture, and those that one of its queries sees within a reach."""
    wanted = np.zeros(data.key.shape[1], bool)
    wanted[slice(*cols)] = True
    for rule in range(max(data.rules, 1)):
        chosen = {"rows": slice(*rows), "pool": (rows[1] - rows[0], 1)}
        wanted |= data.seen(rule, causal=data.causal, span=reach, **chosen).reshape(-1)
    return np.flatnonzero(wanted)


def _bytes(data: ViewData, queries: int, keys: int) -> int:
    heads, _, dim = data.query.shape
    return 4 * int(heads) * int(dim) * (queries + keys)


def _described(pattern: Pattern | None) -> dict[str, Any]:
    """Return what the browser has to know of a pattern besides its pairs."""
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
