"""The heads of a view: checked arrays, and queries of the core about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops.arguments.options import ROWS, Options, options_in
from headspan.ops.arguments.rows import Group, In
from headspan.ops.attention_map import attention_weights
from headspan.ops.execution.request import Request
from headspan.patterns.base import Pattern

Array = npt.NDArray[Any]
# Options that limit which keys a query sees.
_LIMITS = tuple(name for name in options_in(In.VIEW) if ROWS[name].group is Group.PACKING)


@dataclass(frozen=True)
class ViewData:
    """The heads of one view.

    Attributes
    ----------
    query, key : ndarray, shape (heads, tokens, head_dim)
        The queries and keys of the shown heads. Each head has its own keys.
    norms : ndarray, shape (heads, key tokens), or None
        The length of every value.
    value_dim : int
    span : list of float
        One span per head, at most the number of keys.
    ramp : float
    tokens : list of str, or None
        The texts of all keys.
    heads : list of int
        The indices of the heads in the query, from 0.
    names : list of str
        The names of the heads.
    max_tokens : int
        The largest number of queries or keys that are shown without pooling.
    patterns : list of Pattern
        No pattern, one for all heads, or one for each head.
    causal : bool
    limits : dict of ndarray
        The other options in ``_LIMITS`` that limit which keys a query sees, without a batch axis.
    bias : ndarray, shape (heads, key tokens), or None
        A bias on the scores of keys. -inf removes a key.
    unit : str
        The name of what the model reads, in the plural.
    """

    query: Array
    key: Array
    norms: Array | None
    value_dim: int
    span: list[float]
    ramp: float
    tokens: list[str] | None
    heads: list[int]
    names: list[str]
    max_tokens: int
    patterns: list[Pattern] = field(default_factory=list)
    causal: bool = True
    limits: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    bias: Array | None = None
    unit: str = "tokens"

    @classmethod
    def checked(
        cls,
        query: npt.ArrayLike,
        key: npt.ArrayLike,
        options: Options,
        *,
        value: npt.ArrayLike | None,
        tokens: Sequence[str] | None,
        heads: Sequence[int] | None,
        names: Sequence[str] | None,
        max_tokens: int,
        unit: str,
    ) -> ViewData:
        """Return the data for the arguments of `headspan.explore`, after checking them."""
        request = Request(query, key, key if value is None else value, options)
        batch, count, queries, _ = request.query.shape
        keys = request.key.shape[2]
        if batch != 1:
            raise ValueError(f"query must be one item of a batch, not {batch}; query[0] is the first")
        if queries == 0:
            raise ValueError(f"query must have at least one token, not shape {request.query.shape}")
        shown = _shown_heads(heads, count)
        key_heads = np.array(shown) // (count // request.key.shape[1])
        norms = None if value is None else np.linalg.norm(request.value[0], axis=-1)[key_heads]
        return cls(
            query=request.query[0, shown],
            key=request.key[0, key_heads],
            norms=norms,
            value_dim=request.value.shape[-1],
            span=_one_a_head(request, count, keys)[shown].tolist(),
            ramp=float(options["ramp"]),
            tokens=_check.token_texts(tokens, keys),
            heads=shown,
            names=_names(names, shown, count),
            max_tokens=_check.integer("max_tokens", max_tokens, at_least=1),
            patterns=_shown_patterns(list(request.patterns), shown),
            causal=request.causal,
            limits=_limits(options),
            bias=_bias(request, count, shown),
            unit=str(unit),
        )

    @property
    def removed(self) -> npt.NDArray[np.bool_] | None:
        """The keys that no query sees, shape (heads or 1, key tokens), or None if there are none."""
        mask = None if self.bias is None else np.isneginf(self.bias)
        if mask is None or not mask.any():
            return None
        return mask[:1] if (mask == mask[0]).all() else mask

    @property
    def padding(self) -> tuple[int, int]:
        """The first key that is not padding, and the end of these keys."""
        start, stop = self.limits.get("key_start"), self.limits.get("key_stop")
        return 0 if start is None else int(start[0]), self.key.shape[1] if stop is None else int(stop[0])

    @property
    def prefix(self) -> int:
        """The end of the prefix, whose keys every query sees even if they are later."""
        length = self.limits.get("prefix_lengths")
        return 0 if length is None else min(self.padding[0] + int(length[0]), self.key.shape[1])

    def limits_of(self, rows: int) -> dict[str, Any]:
        """Return the limits of the last `rows` queries."""
        ranges = {name: array[len(array) - rows :] for name, array in self.limits.items() if name == "key_ranges"}
        return {**self.limits, **ranges}

    @property
    def rules(self) -> int:
        """The number of masks in addition to causality and spans: 0, 1 for all heads, or one for each head."""
        removed = self.removed
        different = len(self.patterns) > 1 or (removed is not None and len(removed) > 1)
        return len(self.heads) if different else 1 if self.patterns or self.limits or removed is not None else 0

    def pattern_of(self, index: int) -> Pattern | None:
        """Return the pattern of a head."""
        return self.patterns[min(index, len(self.patterns) - 1)] if self.patterns else None

    def weights(self, index: int, span: float, ramp: float, temperature: float, **chosen: Any) -> Array:
        """Return the weights of a head. `chosen` selects rows, columns and pooling."""
        options: dict[str, Any] = {"span": span, "ramp": ramp, "temperature": temperature, "causal": self.causal}
        bias = None if self.bias is None else self.bias[index]
        options |= {"pattern": self.pattern_of(index), "key_bias": bias, **self.limits}
        return attention_weights(self.query[index], self.key[index], **chosen, **options)

    def seen(self, rule: int, *, causal: bool, span: float | None = None, **chosen: Any) -> npt.NDArray[np.bool_]:
        """Return which keys some queries may see by a rule: those with a weight above 0 when all scores are equal."""
        query, key = (np.zeros((n, 1), np.float32) for n in (self.query.shape[1], self.key.shape[1]))
        removed = self.removed
        bias = None if removed is None else np.where(removed[min(rule, len(removed) - 1)], -np.inf, 0.0)
        options: dict[str, Any] = {"span": span, "ramp": 0, "causal": causal, **self.limits}
        options |= {"pattern": self.pattern_of(rule), "key_bias": bias}
        if not causal:
            options.pop("prefix_lengths", None)
        seen: npt.NDArray[np.bool_] = attention_weights(query, key, **chosen, **options) > 0
        return seen


def _shown_patterns(patterns: list[Pattern], shown: list[int]) -> list[Pattern]:
    """Return the patterns of the shown heads, or a single one if all heads share it."""
    head_patterns = patterns if len(patterns) < 2 else [patterns[head] for head in shown]
    return head_patterns[:1] if all(pattern == head_patterns[0] for pattern in head_patterns) else head_patterns


def _shown_heads(heads: Sequence[int] | None, count: int) -> list[int]:
    if heads is None:
        return list(range(count))
    indices = _check.sequence("heads", heads, "integers")
    shown = [_check.integer("heads", head, at_least=0) for head in indices]
    if not shown or max(shown) >= count or len(set(shown)) < len(shown):
        raise ValueError(f"heads must be different numbers from 0 to {count - 1}, not {_check.describe(indices)}")
    return shown


def _names(names: Sequence[str] | None, shown: list[int], count: int) -> list[str]:
    if names is None:
        return [f"head {number}" for number in shown]
    texts = [str(name) for name in _check.sequence("names", names, "texts")]
    if isinstance(names, str) or len(texts) != count:
        what = repr(names) if isinstance(names, str) else len(texts)
        raise ValueError(f"names must hold {count} texts, one for each head of query, not {what}")
    return [texts[number] for number in shown]


def _limits(options: Options) -> dict[str, npt.NDArray[np.int64]]:
    """Return the limits from the options, for the single batch item."""
    lists: dict[str, Any] = {name: options.get(name) for name in _LIMITS}
    arrays = {name: np.asarray(numbers, np.int64) for name, numbers in lists.items() if numbers is not None}
    return {name: array.reshape(-1, *(2,) * (name == "key_ranges")) for name, array in arrays.items()}


def _bias(request: Request, count: int, shown: list[int]) -> Array | None:
    if "key_bias" not in request.parameters:
        return None
    bias = request.parameters["key_bias"].array[0]
    return np.broadcast_to(bias, (count, bias.shape[-1]))[shown]


def _one_a_head(request: Request, heads: int, keys: int) -> npt.NDArray[np.float64]:
    if "span" not in request.parameters:
        return np.full(heads, float(keys))
    array = request.parameters["span"].array
    if array.shape[2] != 1:
        raise ValueError(
            f"span must have one number per head in a view, not shape {request.parameters['span'].shape}; "
            "headspan.plot.dynamic_spans draws spans of tokens"
        )
    return np.minimum(np.broadcast_to(array[0, :, 0], (heads,)).astype(np.float64), keys)
