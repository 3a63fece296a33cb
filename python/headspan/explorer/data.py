"""The heads of a view, of one layer or several, and queries of the core about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.explorer.layers import ViewLayer, shown_heads
from headspan.ops.attention_map import attention_weights
from headspan.patterns.base import Pattern
from headspan.patterns.primitives import Full

Array = npt.NDArray[Any]
HeadId = int | tuple[int, int]
SOME_ROWS = 64  # the queries of a mean distance, evenly spaced up to the last; those of a small picture in the browser


@dataclass(frozen=True, eq=False)
class Rule:
    """Which keys the queries of some heads may see, whatever their spans.

    Attributes
    ----------
    pattern : Pattern or None
    causal : bool
    limits : dict of ndarray
        See `ViewLayer`.
    removed : ndarray of bool, shape (key tokens,), or None
        The keys that no query sees.
    """

    pattern: Pattern | None
    causal: bool
    limits: dict[str, npt.NDArray[np.int64]]
    removed: npt.NDArray[np.bool_] | None

    @property
    def is_plain(self) -> bool:
        """Whether only causality limits the keys."""
        return self.pattern is None and not self.limits and self.removed is None

    @property
    def is_open(self) -> bool:
        """Whether only causality limits the keys, apart from tokens whose pairs no span limits."""
        if self.pattern is None or self.pattern.grid or Full() not in self.pattern.alternatives:
            return self.is_plain
        return not self.limits and self.removed is None

    def equals(self, other: Rule) -> bool:
        """Whether another rule allows the same keys for the same reasons."""
        if (self.pattern, self.causal, self.limits.keys()) != (other.pattern, other.causal, other.limits.keys()):
            return False
        pairs = [(self.limits[name], other.limits[name]) for name in self.limits]
        if self.removed is None or other.removed is None:
            return self.removed is other.removed and all(np.array_equal(*pair) for pair in pairs)
        return all(np.array_equal(*pair) for pair in [*pairs, (self.removed, other.removed)])

    def padding(self, keys: int) -> tuple[int, int]:
        """Return the first key that is not padding, and the end of these keys."""
        start, stop = self.limits.get("key_start"), self.limits.get("key_stop")
        return 0 if start is None else int(start[0]), keys if stop is None else int(stop[0])

    def prefix(self, keys: int) -> int:
        """Return the end of the prefix, whose keys every query sees even if they are later."""
        length = self.limits.get("prefix_lengths")
        return 0 if length is None else min(self.padding(keys)[0] + int(length[0]), keys)

    def limits_of(self, rows: int) -> dict[str, Any]:
        """Return the limits of the last `rows` queries."""
        ranges = {name: array[len(array) - rows :] for name, array in self.limits.items() if name == "key_ranges"}
        return {**self.limits, **ranges}


@dataclass(frozen=True, eq=False)
class ViewData:
    """The heads of one view.

    Attributes
    ----------
    layers : list of ViewLayer
    shown : list of (int, int)
        The index in `layers` and the head of every shown head.
    heads : list of int or of (int, int)
        What callers call these heads: a number from 0 or, if the caller passed layers, the numbers of layer and head.
    names : list of str
    tokens : list of str, or None
        The texts of all keys.
    max_tokens : int
        The largest number of queries or keys that are shown without pooling.
    unit : str
        The name of what the model reads, in the plural.
    """

    layers: list[ViewLayer]
    shown: list[tuple[int, int]]
    heads: list[HeadId]
    names: list[str]
    tokens: list[str] | None
    max_tokens: int
    unit: str

    @classmethod
    def of(
        cls,
        layers: ViewLayer | dict[int, ViewLayer],
        *,
        tokens: Sequence[str] | None,
        heads: object = None,
        names: Sequence[str] | None = None,
        max_tokens: int,
        unit: str,
    ) -> ViewData:
        """Return the data of a layer, or of layers by their numbers, after checking the other arguments."""
        several = [layers] if isinstance(layers, ViewLayer) else list(layers.values())
        places = [(at, head) for at, layer in enumerate(several) for head in range(len(layer.query))]
        all_heads: list[HeadId] = [head for _, head in places]
        if not isinstance(layers, ViewLayer):
            numbers = list(layers)
            all_heads = [(numbers[at], head) for at, head in places]
        chosen = shown_heads(heads, all_heads)
        return cls(
            layers=several,
            shown=[places[index] for index in chosen],
            heads=[all_heads[index] for index in chosen],
            names=_names(names, all_heads, chosen),
            tokens=_check.token_texts(tokens, several[0].key.shape[1]),
            max_tokens=_check.integer("max_tokens", max_tokens, at_least=1),
            unit=str(unit),
        )

    @property
    def is_layered(self) -> bool:
        """Whether the caller passed layers."""
        return isinstance(self.heads[0], tuple)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of queries, keys and channels of a query."""
        first = self.layers[0]
        return first.query.shape[1], first.key.shape[1], first.query.shape[2]

    @property
    def span(self) -> list[float]:
        """One span per head, at most the number of keys."""
        return [self.layers[at].span[head] for at, head in self.shown]

    @property
    def ramp(self) -> float:
        """The ramp of all spans, which does not matter where spans have no limit."""
        limited = [layer.ramp for layer in self.layers if min(layer.span) < self.sizes[1]]
        return [*limited, self.layers[0].ramp][0]

    @cached_property
    def rules(self) -> list[Rule]:
        """The different rules of the heads."""
        return self._rules_and_places[0]

    @cached_property
    def rule_of(self) -> list[int]:
        """The index in `rules` of every head."""
        return self._rules_and_places[1]

    @cached_property
    def _rules_and_places(self) -> tuple[list[Rule], list[int]]:
        rules: list[Rule] = []
        places = []
        for at, head in self.shown:
            layer = self.layers[at]
            rule = Rule(layer.pattern(head), layer.causal, layer.limits, layer.removed(head))
            same = next((place for place, other in enumerate(rules) if rule.equals(other)), len(rules))
            if same == len(rules):
                rules.append(rule)
            places.append(same)
        return rules, places

    def heads_of_layer(self, index: int) -> list[int]:
        """Return the indices of the shown heads in the same layer as a head."""
        return [other for other, (at, _) in enumerate(self.shown) if at == self.shown[index][0]]

    def query(self, index: int) -> Array:
        """Return the queries of a head."""
        at, head = self.shown[index]
        query: Array = self.layers[at].query[head]
        return query

    def key(self, index: int) -> Array:
        """Return the keys of a head."""
        at, head = self.shown[index]
        key: Array = self.layers[at].key[self.layers[at].key_head(head)]
        return key

    def weights(self, index: int, span: float, ramp: float, temperature: float, **chosen: Any) -> Array:
        """Return the weights of a head. `chosen` selects rows, columns and pooling."""
        at, head = self.shown[index]
        layer = self.layers[at]
        options: dict[str, Any] = {"span": span, "ramp": ramp, "temperature": temperature, "causal": layer.causal}
        options |= {"pattern": layer.pattern(head), **layer.limits, **layer.scores(head)}
        options["key_bias"] = None if layer.bias is None else layer.bias[head]
        return attention_weights(self.query(index), self.key(index), **chosen, **options)

    def mean_distance(
        self, index: int, span: float, ramp: float, temperature: float, first: int, end: int
    ) -> float | None:
        """Return the mean distance of keys from some queries of a range, weighted by the weights of a head."""
        count = min(SOME_ROWS, end - first)
        rows = first + (np.arange(1, count + 1) * (end - first)) // count - 1
        weights = self.weights(index, span, ramp, temperature, rows=rows).astype(np.float64)
        queries, keys, _ = self.sizes
        distance = np.abs((rows + keys - queries)[:, None] - np.arange(keys))
        total = float(weights.sum())
        return float((weights * distance).sum() / total) if total > 0 else None

    def seen(self, rule: Rule, *, causal: bool, span: float | None = None, **chosen: Any) -> npt.NDArray[np.bool_]:
        """Return which keys some queries may see by a rule: those with a weight above 0 when all scores are equal."""
        query, key = (np.zeros((n, 1), np.float32) for n in self.sizes[:2])
        bias = None if rule.removed is None else np.where(rule.removed, -np.inf, 0.0)
        options: dict[str, Any] = {"span": span, "ramp": 0, "causal": causal, **rule.limits}
        options |= {"pattern": rule.pattern, "key_bias": bias}
        if not causal:
            options.pop("prefix_lengths", None)
        seen: npt.NDArray[np.bool_] = attention_weights(query, key, **chosen, **options) > 0
        return seen


def _names(names: Sequence[str] | None, all_heads: list[HeadId], chosen: list[int]) -> list[str]:
    if names is None:
        ids = [all_heads[index] for index in chosen]
        return [f"head {head}" if isinstance(head, int) else f"layer {head[0]}, head {head[1]}" for head in ids]
    texts = [str(name) for name in _check.sequence("names", names, "texts")]
    if isinstance(names, str) or len(texts) != len(all_heads):
        what = repr(names) if isinstance(names, str) else len(texts)
        raise ValueError(f"names must hold {len(all_heads)} texts, one for each head of query, not {what}")
    return [texts[index] for index in chosen]
