"""The queries and keys of a view that are in the picture, and the data that the browser gets for them.

The browser computes weights itself if the keys for them fit, and otherwise gets maps in blocks. It needs more keys than
are in the picture, because the softmax of a row sums over all keys that its query sees. If the heads of all layers do
not fit, the browser computes those of the selected layer or only the selected head, and gets maps of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan.explorer.data import Rule, ViewData
from headspan.ops.spans import farthest

Array = npt.NDArray[Any]
Range = tuple[int, int]  # first and end, without the end

BLOCKS = 128  # the largest number of blocks of a map along each side
STRONGEST = 5  # the number of keys that are listed for the pinned query
MOST_PAIRS = 3_000_000  # per head that the browser computes for a part of a long input
MOST_BYTES = 8_000_000  # of queries and keys for such a part; base64 adds a third in a saved page
MOST_BYTES_OF_LAYERS = 20_000_000  # of queries and keys of all heads in a view of layers


@dataclass(frozen=True)
class Part:
    """A part of the queries and keys of a view.

    Attributes
    ----------
    data : ViewData
    rows, cols : (int, int)
        The ranges of queries and keys in the picture.
    loaded : list of int
        The indices of the heads that the browser computes: all, those of a layer, one, or none.
    kept : ndarray of int, or None
        The keys with which the browser computes, or None if it gets maps of all heads.
    reach : int, or None
        The longest reach for which these keys suffice, or None for any distance.
    needs : int
        The bytes of queries and keys that the browser would need to compute the maps of all heads, or 0 if it does.
    """

    data: ViewData
    rows: Range
    cols: Range
    loaded: list[int]
    kept: npt.NDArray[np.int64] | None
    reach: int | None
    needs: int

    @property
    def is_complete(self) -> bool:
        """Whether the browser computes all heads."""
        return len(self.loaded) == len(self.data.heads)

    @property
    def pool(self) -> tuple[int, int] | None:
        """The numbers of queries and keys in a block of a map, or None if the browser computes all heads."""
        if self.is_complete:
            return None
        (first_row, end_row), (first_col, end_col) = self.rows, self.cols
        return -(-(end_row - first_row) // BLOCKS), -(-(end_col - first_col) // BLOCKS)

    @property
    def meta(self) -> dict[str, Any]:
        """The sizes and texts for the browser."""
        data, kept = self.data, self.kept
        keys = kept if kept is not None else np.arange(*self.cols)
        gapless = keys.size == 0 or keys[-1] - keys[0] == keys.size - 1
        queries, total, dim = data.sizes
        first = data.layers[0]
        key_blocks = _key_blocks(data, self.loaded)
        every = list(range(len(data.heads)))
        key_heads = {block: place for place, block in enumerate(_key_blocks(data, every))}
        return {
            "heads": data.heads,
            "layered": data.is_layered,
            "names": data.names,
            "queries": queries,
            "keys": total,
            "dim": dim,
            "valueDim": first.value_dim,
            "itemsize": first.query.itemsize,
            "scale": dim**-0.5,
            "scores": _scores(data),
            "tokens": data.tokens,
            "pool": self.pool,
            "loaded": self.loaded,
            "keyOf": [list(key_blocks).index(_key_block(data, index)) for index in self.loaded],
            "keyHeads": [key_heads[_key_block(data, index)] for index in every],
            "unit": data.unit,
            "rules": [_described(rule, total) for rule in data.rules],
            "ruleOf": data.rule_of,
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
        """The arrays with which the browser computes, as bytes of float32, or empty bytes if it gets maps.

        Heads that share keys share their bytes, too.
        """
        if self.kept is None:
            return dict.fromkeys(("query", "key", "norms", "bias", "allowed"), b"")
        data, kept, rows = self.data, self.kept, slice(*self.rows)
        blocks = _key_blocks(data, self.loaded)
        norms = [data.layers[at].norms for at, _ in blocks]
        biased = any(layer.bias is not None for layer in data.layers)
        return {
            "query": b"".join(_float32(data.query(index)[rows]) for index in self.loaded),
            "key": b"".join(_float32(data.layers[at].key[head][kept]) for at, head in blocks),
            "norms": b"".join(
                _float32(np.full(kept.size, np.nan) if norm is None else norm[head][kept])
                for norm, (_, head) in zip(norms, blocks, strict=True)
            )
            if any(norm is not None for norm in norms)
            else b"",
            "bias": b"".join(_float32(self._bias(index)) for index in self.loaded) if biased else b"",
            "allowed": b"".join(map(self._bits, data.rules)),
        }

    def map_of(self, index: int, span: float, ramp: float, temperature: float) -> bytes:
        """Return the map of a head as bytes of float32, or no bytes if the browser computes all heads."""
        if self.pool is None:
            return b""
        chosen = {"rows": slice(*self.rows), "cols": slice(*self.cols), "pool": self.pool}
        return _float32(self.data.weights(index, span, ramp, temperature, **chosen))

    def distance_of(self, index: int, span: float, ramp: float, temperature: float) -> float | None:
        """Return the mean distance of a head for the overview of layers."""
        if not self.data.is_layered:
            return None
        first, end = self.rows
        return self.data.mean_distance(index, span, ramp, temperature, first, end)

    def _bias(self, index: int) -> Array:
        at, head = self.data.shown[index]
        bias = self.data.layers[at].bias
        return np.zeros(self.data.sizes[1])[self.kept] if bias is None else bias[head][self.kept]

    def _bits(self, rule: Rule) -> bytes:
        """Return the pairs that a rule allows, without causality, as bits in little-endian order."""
        if rule.is_plain:
            return b""
        seen = self.data.seen(rule, causal=False, rows=slice(*self.rows), cols=self.kept)
        return np.packbits(seen, bitorder="little").tobytes()


def full_part(data: ViewData, head: int = 0) -> Part:
    """Return the part with all queries and keys. Long inputs are shown as maps.

    `head` is the index of the selected head.
    """
    queries, keys, _ = data.sizes
    every = list(range(len(data.heads)))
    needs = _bytes(data, every, queries, keys)
    full: tuple[Range, Range] = (0, queries), (0, keys)
    if max(queries, keys) > data.max_tokens:
        return Part(data, *full, [], None, None, needs)
    if data.is_layered and needs > MOST_BYTES_OF_LAYERS:
        layer = data.heads_of_layer(head)
        loaded = layer if _bytes(data, layer, queries, keys) <= MOST_BYTES else [head]
        return Part(data, *full, loaded, np.arange(keys), None, needs)
    return Part(data, *full, every, np.arange(keys), None, 0)


def zoomed(data: ViewData, rows: Range, cols: Range, spans: list[float], ramp: float, head: int = 0) -> Part:
    """Return a part of the queries and keys. The browser computes if it can hold all keys in reach of the spans."""
    every = list(range(len(data.heads)))
    if max(rows[1] - rows[0], cols[1] - cols[0]) > data.max_tokens:
        return Part(data, rows, cols, [], None, None, _bytes(data, every, rows[1] - rows[0], cols[1] - cols[0]))
    part = _zoomed(data, every, rows, cols, spans, ramp)
    if part.kept is not None or not data.is_layered:
        return part
    for heads in (data.heads_of_layer(head), [head]):
        smaller = _zoomed(data, heads, rows, cols, spans, ramp)
        if smaller.kept is not None:
            return replace(smaller, needs=part.needs)
    return part


def _zoomed(data: ViewData, heads: list[int], rows: Range, cols: Range, spans: list[float], ramp: float) -> Part:
    """Return a part in which the browser computes some heads, or none if they do not fit."""
    least = int(farthest(max(spans[index] for index in heads), ramp))
    all_keys = data.sizes[0] + data.sizes[1]
    kept, reach, needs = None, None, 0
    distance = least
    while True:
        reaches = None if distance >= all_keys else distance
        keys = _seen_keys(data, heads, rows, cols, reaches)
        size = _bytes(data, heads, rows[1] - rows[0], keys.size)
        if size > MOST_BYTES or keys.size * (rows[1] - rows[0]) > MOST_PAIRS:
            needs = size if kept is None else 0
            break
        kept, reach = keys, reaches
        if reaches is None:
            break
        distance = max(2 * distance, 64)
    return Part(data, rows, cols, [] if kept is None else heads, kept, reach, needs)


def _seen_keys(data: ViewData, heads: list[int], rows: Range, cols: Range, reach: int | None) -> npt.NDArray[np.int64]:
    """Return the keys in the picture and the keys that the queries of some heads see within a reach."""
    needed = np.zeros(data.sizes[1], bool)
    needed[slice(*cols)] = True
    for rule in {data.rule_of[index]: data.rules[data.rule_of[index]] for index in heads}.values():
        chosen = {"rows": slice(*rows), "pool": (rows[1] - rows[0], 1)}
        needed |= data.seen(rule, causal=rule.causal, span=reach, **chosen).reshape(-1)
    return np.flatnonzero(needed)


def _key_block(data: ViewData, index: int) -> tuple[int, int]:
    at, head = data.shown[index]
    return at, data.layers[at].key_head(head)


def _key_blocks(data: ViewData, heads: list[int]) -> list[tuple[int, int]]:
    """Return the layers and key heads whose keys some heads share, each once."""
    return list(dict.fromkeys(_key_block(data, index) for index in heads))


def _bytes(data: ViewData, heads: list[int], queries: int, keys: int) -> int:
    return 4 * data.sizes[2] * (len(heads) * queries + len(_key_blocks(data, heads)) * keys)


def _scores(data: ViewData) -> list[dict[str, float | bool | None]] | None:
    """Return the options of every head that change its scores, or None if there are none."""
    names = {"softcap": "softcap", "sink": "sinks", "slope": "alibi_slopes"}
    described = []
    for at, head in data.shown:
        options, bias = data.layers[at].scores(head), data.layers[at].bias
        biased = bias is not None and bool((np.isfinite(bias[head]) & (bias[head] != 0)).any())
        numbers = {name: float(options[option]) if option in options else None for name, option in names.items()}
        described.append({**numbers, "biased": biased})
    return (
        described if any(any(number not in (None, False) for number in head.values()) for head in described) else None
    )


def _described(rule: Rule, keys: int) -> dict[str, Any]:
    """Return the properties of a rule that the browser needs in addition to its pairs."""
    pattern = rule.pattern
    return {
        "plain": rule.is_plain,
        "open": rule.is_open,
        "causal": rule.causal,
        "name": None if pattern is None else pattern.short_name(),
        "free": [] if pattern is None else list(pattern.global_tokens),
        "grid": None if pattern is None else list(pattern.grid) or None,
        "gridStart": 0 if pattern is None else pattern.grid_start,
        "segments": _listed(rule.limits.get("segment_ids")),
        "padding": rule.padding(keys),
        "prefix": rule.prefix(keys),
        "ranged": "key_ranges" in rule.limits,
    }


def _listed(array: Any) -> list[int] | None:
    return None if array is None else array.tolist()


def _float32(array: Array) -> bytes:
    return np.ascontiguousarray(array, dtype="<f4").tobytes()
