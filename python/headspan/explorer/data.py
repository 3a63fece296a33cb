"""The heads of a view: checked arrays, and what is asked of the core about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops.arguments.options import Options
from headspan.ops.arguments.request import Request
from headspan.ops.attention_map import attention_weights
from headspan.patterns.base import Pattern

Array = npt.NDArray[Any]
_LIMITS = ("key_begin", "key_lengths", "key_ranges", "prefix_lengths", "segment_ids")


@dataclass(frozen=True)
class ViewData:
    """The heads of one view.

    Attributes
    ----------
    query, key : ndarray, shape (heads, tokens, head_dim)
        Of the heads shown; each has a key of its own.
    norms : ndarray, shape (heads, key tokens), or None
        Length of every value.
    value_dim : int
    span : list of float
        One a head, no larger than the number of keys.
    ramp : float
    tokens : list of str, or None
        Of all keys.
    heads : list of int
        Their indices in the query, from 0.
    names : list of str
        What the heads are called.
    max_tokens : int
        More queries or keys at once are shown as maps in blocks.
    patterns : list of Pattern
        None, one for all heads, or one for each.
    causal : bool
    limits : dict of ndarray
        Who sees whom beside that, as ``_LIMITS`` lists it, without an axis of batch items.
    bias : ndarray, shape (heads, key tokens), or None
        Importance of keys; -inf removes one.
    unit : str
        What the model reads, in the plural.
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
        """Check the arguments of `headspan.explore`."""
        request = Request(query, key, key if value is None else value, options)
        batch, count, queries, _ = request.query.shape
        keys = request.key.shape[2]
        if batch != 1:
            raise ValueError(f"query must be one item of a batch, not {batch}; query[0] is the first")
        if queries == 0:
            raise ValueError(f"query must have at least one token, not shape {request.query.shape}")
        shown = _shown_heads(heads, count)
        own_key = np.array(shown) // (count // request.key.shape[1])
        norms = None if value is None else np.linalg.norm(request.value[0], axis=-1)[own_key]
        return cls(
            query=request.query[0, shown],
            key=request.key[0, own_key],
            norms=norms,
            value_dim=request.value.shape[-1],
            span=_one_a_head(request, count, keys)[shown].tolist(),
            ramp=float(options["ramp"]),
            tokens=_check.token_texts(tokens, keys),
            heads=shown,
            names=_names(names, shown, count),
            max_tokens=_check.integer("max_tokens", max_tokens, at_least=1),
            patterns=_shown_patterns(request.patterns, shown),
            causal=request.causal,
            limits=_limits(options),
            bias=_bias(request, count, shown),
            unit=str(unit),
        )

    @property
    def removed(self) -> npt.NDArray[np.bool_] | None:
        """Keys that nobody sees, shape (heads or 1, key tokens); None if there are none."""
        gone = None if self.bias is None else np.isneginf(self.bias)
        if gone is None or not gone.any():
            return None
        return gone[:1] if (gone == gone[0]).all() else gone

    @property
    def padding(self) -> tuple[int, int]:
        """The first key that counts, and where those that do end."""
        begin, end = self.limits.get("key_begin"), self.limits.get("key_lengths")
        return 0 if begin is None else int(begin[0]), self.key.shape[1] if end is None else int(end[0])

    @property
    def prefix(self) -> int:
        """Where the keys end that later ones do not hide from any query."""
        length = self.limits.get("prefix_lengths")
        return 0 if length is None else min(self.padding[0] + int(length[0]), self.key.shape[1])

    def limits_of(self, rows: int) -> dict[str, Any]:
        """Who sees whom, of the last so many queries."""
        ranges = {name: array[len(array) - rows :] for name, array in self.limits.items() if name == "key_ranges"}
        return {**self.limits, **ranges}

    @property
    def rules(self) -> int:
        """How many masks tell who sees whom beside causality and spans: none, one for all heads, or one for each."""
        removed = self.removed
        different = len(self.patterns) > 1 or (removed is not None and len(removed) > 1)
        return len(self.heads) if different else 1 if self.patterns or self.limits or removed is not None else 0

    def pattern_of(self, index: int) -> Pattern | None:
        """Pattern of a head."""
        return self.patterns[min(index, len(self.patterns) - 1)] if self.patterns else None

    def weights(self, index: int, span: float, ramp: float, temperature: float, **chosen: Any) -> Array:
        """Weights of a head; chosen are the rows, the columns and the blocks."""
        options: dict[str, Any] = {"span": span, "ramp": ramp, "temperature": temperature, "causal": self.causal}
        bias = None if self.bias is None else self.bias[index]
        options |= {"pattern": self.pattern_of(index), "key_bias": bias, **self.limits}
        return attention_weights(self.query[index], self.key[index], **chosen, **options)

    def seen(self, rule: int, *, causal: bool, span: float | None = None, **chosen: Any) -> npt.NDArray[np.bool_]:
        """Which keys some queries see by a rule, whatever their scores: those that weigh something if all are alike."""
        query, key = (np.zeros((n, 1), np.float32) for n in (self.query.shape[1], self.key.shape[1]))
        removed = self.removed
        gone = None if removed is None else np.where(removed[min(rule, len(removed) - 1)], -np.inf, 0.0)
        options: dict[str, Any] = {"span": span, "ramp": 0, "causal": causal, **self.limits}
        options |= {"pattern": self.pattern_of(rule), "key_bias": gone}
        if not causal:
            options.pop("prefix_lengths", None)
        seen: npt.NDArray[np.bool_] = attention_weights(query, key, **chosen, **options) > 0
        return seen


def _shown_patterns(patterns: list[Pattern], shown: list[int]) -> list[Pattern]:
    """Patterns of the heads shown; one alone if they share it."""
    own = patterns if len(patterns) < 2 else [patterns[head] for head in shown]
    return own[:1] if all(pattern == own[0] for pattern in own) else own


def _shown_heads(heads: Sequence[int] | None, count: int) -> list[int]:
    if heads is None:
        return list(range(count))
    given = _check.sequence("heads", heads, "integers")
    shown = [_check.integer("heads", head, at_least=0) for head in given]
    if not shown or max(shown) >= count or len(set(shown)) < len(shown):
        raise ValueError(f"heads must be different numbers from 0 to {count - 1}, not {_check.describe(given)}")
    return shown


def _names(names: Sequence[str] | None, shown: list[int], count: int) -> list[str]:
    if names is None:
        return [f"head {number}" for number in shown]
    given = [str(name) for name in _check.sequence("names", names, "texts")]
    if isinstance(names, str) or len(given) != count:
        what = repr(names) if isinstance(names, str) else len(given)
        raise ValueError(f"names must hold {count} texts, one for each head of query, not {what}")
    return [given[number] for number in shown]


def _limits(options: Options) -> dict[str, npt.NDArray[np.int64]]:
    """Return who sees whom as it was given, of the one batch item."""
    given: dict[str, Any] = {name: options.get(name) for name in _LIMITS}
    arrays = {name: np.asarray(numbers, np.int64) for name, numbers in given.items() if numbers is not None}
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
            f"span must be one number a head for a view, not of shape {request.parameters['span'].shape}; "
            "headspan.plot.dynamic_spans draws spans of every token"
        )
    return np.minimum(np.broadcast_to(array[0, :, 0], (heads,)).astype(np.float64), keys)
