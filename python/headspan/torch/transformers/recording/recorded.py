"""The recorded attention of layers, and its form for the interactive view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops.arguments.options import options_in
from headspan.ops.arguments.rows import In
from headspan.ops.attention_map import attention_weights
from headspan.patterns import Window
from headspan.torch.transformers.recording.tokens import readable_tokens

_Array = npt.NDArray[Any]
_SHOWN = frozenset(options_in(In.RECORD))
_CONVERTED = {"key_ranges", "key_bias", "scale"}  # to other arguments of the view


class Recorded:
    """The arguments of one attention call of a layer.

    Attributes
    ----------
    query : ndarray, shape (batch, heads, tokens, head_dim)
    key : ndarray, shape (batch, key heads, key tokens, head_dim)
    value : ndarray, shape (batch, key heads, key tokens, value_dim)
    options : dict
        Options of `headspan.attention`.
    """

    def __init__(self, query: _Array, key: _Array, value: _Array, options: dict[str, Any]) -> None:
        self.query, self.key, self.value, self.options = query, key, value, options

    def weights(self, **selection: Any) -> _Array:
        """Return the weights of all pairs, or of those that arguments of `headspan.attention_weights` select."""
        return attention_weights(self.query, self.key, **self.options, **selection)

    def trace(self, item: int = 0, *, tokens: Iterable[str] | None = None) -> dict[str, Any]:
        """Return a batch item as arguments of `headspan.explore`: ``headspan.explore(**record[0].trace())``.

        The arguments describe the same attention: windows and padding are options by name, and keys of a static cache
        that are not in use yet are left out.

        Parameters
        ----------
        item : int
            The index of the batch item.
        tokens : iterable of str, optional
            The tokens of all keys as the tokenizer writes them, such as ``tokenizer.convert_ids_to_tokens(ids[0])``.
            The view shows them as text, without marks such as ``Ġ``, ``▁`` and ``##``.

        Raises
        ------
        NotImplementedError
            For options that the view does not show: biases of pairs, and spans at positions other than the last.
        """
        shown = {name: option for name, option in self.options.items() if name in _SHOWN - _CONVERTED}
        remaining = self.options.keys() - _SHOWN
        query, key, value = self.query[item], self.key[item], self.value[item]
        stop = key.shape[1]
        if "key_ranges" in self.options:
            limits = _limits(self.options["key_ranges"][item], stop, shown.get("pattern"))
            stop = limits.pop("keys")
            shown |= limits
            positions = self.options.get("query_positions")
            if positions is not None and np.array_equal(positions, np.arange(stop - query.shape[1], stop)):
                remaining -= {"query_positions"}  # the default
        if "span" not in shown:
            remaining -= {"query_positions"}  # with ranges, only spans depend on the positions
        if remaining:
            raise NotImplementedError(f"the view does not show {', '.join(sorted(remaining))}: look at weights()")
        # The view always uses the default scale, so the query absorbs another one.
        default = query.shape[-1] ** -0.5
        shown["query"] = query * query.dtype.type(self.options.get("scale", default) / default)
        shown["key"], shown["value"] = key[:, :stop], value[:, :stop]
        if "key_bias" in self.options:
            shown["key_bias"] = self.options["key_bias"][item, 0, :stop]
        if tokens is not None:
            shown["tokens"] = readable_tokens(list(tokens))[:stop]
        return shown


class Recording(dict[int, Recorded]):
    """The last attention call of each layer, by layer index."""

    def __missing__(self, layer: int) -> Recorded:
        raise KeyError(
            f"layer must be one of the recorded layers {sorted(self)}, got {layer!r}; a layer is recorded when the "
            "model is called within headspan.torch.record and computes with attn_implementation='headspan'"
        )

    def trace(
        self, layers: int | Sequence[int] | None = None, *, item: int = 0, tokens: Iterable[str] | None = None
    ) -> dict[str, Any]:
        """Return the layers as arguments of `headspan.explore`: ``headspan.explore(**record.trace())``.

        Parameters
        ----------
        layers : int or sequence of int, optional
            The indices of the layers, from 0. Default: all.
        item : int
            The index of the batch item.
        tokens : iterable of str, optional
            The tokens of all keys as the tokenizer writes them, see `Recorded.trace`.

        Raises
        ------
        NotImplementedError
            If a layer has options that the view does not show.
        """
        if not self:
            self[0]  # raises the error of a missing layer
        numbers = sorted(self) if layers is None else np.atleast_1d(_check.as_array("layers", layers)).tolist()
        traces: dict[int, dict[str, Any]] = {}
        for number in numbers:
            try:
                traces[number] = self[number].trace(item)
            except NotImplementedError as error:
                raise NotImplementedError(f"layer {number}: {error}") from error
        if tokens is None:
            return {"layers": traces}
        keys = max(trace["key"].shape[1] for trace in traces.values())
        return {"layers": traces, "tokens": readable_tokens(list(tokens))[:keys]}


def _limits(ranges: npt.NDArray[np.int64], keys: int, pattern: object) -> dict[str, Any]:
    """Return the ranges of keys of the queries as options of `headspan.explore`, by names that say what they are.

    The item "keys" is the number of keys in use. The last query is at the position of the last of these keys.
    """
    starts, ends = ranges.T
    has_keys = starts < ends
    begin = int(starts[has_keys].min(initial=keys))
    stop = int(ends[has_keys].max(initial=0))
    width = int((ends - starts).max(initial=0))
    # A static cache has room for later keys: then every query sees itself as its last key if the last one in use does.
    in_use = np.arange(stop - len(ranges), stop) + 1
    last = stop if np.array_equal(ends[has_keys], in_use[has_keys]) and (in_use[~has_keys] <= begin).all() else keys
    causal_ends = np.arange(last - len(ranges), last) + 1
    limits: dict[str, Any] = {"keys": last, "causal": bool((ends <= causal_ends)[has_keys].all())}
    padding = ({"key_start": begin} if begin else {}) | ({"key_stop": stop} if stop < last else {})
    for window in [None] if pattern is not None else [None, width]:
        first = np.maximum(begin, 0 if window is None else causal_ends - window)
        end = np.minimum(causal_ends, stop)
        same = np.where(has_keys, (starts == first) & (ends == end), first >= end)
        if limits["causal"] and same.all():
            return limits | padding | ({} if window is None else {"pattern": Window(window)})
    return limits | {"key_ranges": ranges}
