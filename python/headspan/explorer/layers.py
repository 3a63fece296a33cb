"""The layers of a view: each is one attention with its own options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops.arguments.options import DEFAULTS, ROWS, Options, options_in, refuse_unknown
from headspan.ops.arguments.rows import Group, In
from headspan.ops.execution.request import Request
from headspan.patterns.base import Pattern

Array = npt.NDArray[Any]
# Options that limit which keys a query sees.
_LIMITS = tuple(name for name in options_in(In.VIEW) if ROWS[name].group is Group.PACKING)
_ARGUMENTS = ("query", "key", "value", *options_in(In.VIEW))


@dataclass(frozen=True, eq=False)
class ViewLayer:
    """One attention.

    Attributes
    ----------
    query : ndarray, shape (heads, tokens, head_dim)
    key : ndarray, shape (key heads, key tokens, head_dim)
    norms : ndarray, shape (key heads, key tokens), or None
        The length of every value.
    value_dim : int
    span : list of float
        One span per head, at most the number of keys.
    ramp : float
    patterns : list of Pattern
        No pattern, one for all heads, or one for each head.
    causal : bool
    limits : dict of ndarray
        The other options in ``_LIMITS`` that limit which keys a query sees, without a batch axis.
    bias : ndarray, shape (heads, key tokens), or None
        A bias on the scores of keys. -inf removes a key.
    softcap : float or None
    sinks, slopes : ndarray, shape (heads,), or None
        Attention sinks and ALiBi slopes.
    """

    query: Array
    key: Array
    norms: Array | None
    value_dim: int
    span: list[float]
    ramp: float
    patterns: list[Pattern] = field(default_factory=list)
    causal: bool = True
    limits: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    bias: Array | None = None
    softcap: float | None = None
    sinks: Array | None = None
    slopes: Array | None = None

    @classmethod
    def checked(cls, query: object, key: object, value: object, options: Options) -> ViewLayer:
        """Return a layer from arguments of `headspan.explore`, after checking them."""
        request = Request(query, key, key if value is None else value, options)
        batch, heads, queries, _ = request.query.shape
        keys = request.key.shape[2]
        if batch != 1:
            raise ValueError(f"query must be one item of a batch, not {batch}; query[0] is the first")
        if queries == 0:
            raise ValueError(f"query must have at least one token, not shape {request.query.shape}")
        return cls(
            query=request.query[0],
            key=request.key[0],
            norms=None if value is None else np.linalg.norm(request.value[0], axis=-1),
            value_dim=request.value.shape[-1],
            span=_spans(request, heads, keys),
            ramp=float(options.get("ramp", DEFAULTS["ramp"])),
            patterns=list(request.patterns),
            causal=request.causal,
            limits=_limits(options),
            bias=_bias(request, heads),
            softcap=None if options.get("softcap") is None else float(cast(float, options["softcap"])),
            sinks=_numbers(request, "sinks", heads),
            slopes=_numbers(request, "alibi_slopes", heads),
        )

    def key_head(self, head: int) -> int:
        """Return the index of the keys of a head."""
        return head // (len(self.query) // len(self.key))

    def pattern(self, head: int) -> Pattern | None:
        """Return the pattern of a head."""
        return self.patterns[min(head, len(self.patterns) - 1)] if self.patterns else None

    def removed(self, head: int) -> npt.NDArray[np.bool_] | None:
        """Return the keys that no query of a head sees, shape (key tokens,), or None if there are none."""
        mask = None if self.bias is None else np.isneginf(self.bias[head])
        return mask if mask is not None and mask.any() else None

    def scores(self, head: int) -> dict[str, Any]:
        """Return the options of a head that change scores, without the bias on keys."""
        options = {} if self.softcap is None else {"softcap": self.softcap}
        arrays = {"sinks": self.sinks, "alibi_slopes": self.slopes}
        return options | {name: array[head] for name, array in arrays.items() if array is not None}


def checked_layers(layers: object) -> dict[int, ViewLayer]:
    """Return the layers of the argument `layers` of `headspan.explore`, by their numbers, after checking them."""
    numbered = layers.items() if isinstance(layers, Mapping) else enumerate(_check.sequence("layers", layers, "dicts"))
    checked = {}
    for number, arguments in numbered:
        if not isinstance(arguments, Mapping) or not {"query", "key"} <= arguments.keys():
            raise TypeError(
                f"layer {number} of layers must be a dict with query and key, not {_check.describe(arguments)}"
            )
        refuse_unknown(arguments.keys(), _ARGUMENTS, by="a layer of a view")
        options = {name: option for name, option in arguments.items() if name not in ("query", "key", "value")}
        try:
            layer = ViewLayer.checked(
                arguments["query"], arguments["key"], arguments.get("value"), cast(Options, options)
            )
        except (TypeError, ValueError) as error:
            raise type(error)(f"layer {number}: {error}") from error
        checked[_check.integer("the number of a layer", number, at_least=0)] = layer
    if not checked:
        raise ValueError("layers must have at least one layer")
    _check_alike(checked)
    return checked


def _check_alike(layers: dict[int, ViewLayer]) -> None:
    """Raise an error if layers differ in what a view has only once."""
    (first, one), *others = layers.items()
    for number, layer in others:
        sizes = {
            "queries": (one.query.shape[1], layer.query.shape[1]),
            "keys": (one.key.shape[1], layer.key.shape[1]),
            "channels per query": (one.query.shape[2], layer.query.shape[2]),
        }
        for what, (size, other) in sizes.items():
            if size != other:
                raise ValueError(
                    f"layers must have equal numbers of {what}, but layer {first} has {size} and layer {number} "
                    f"{other}; a view of some of the layers is possible"
                )
    limited = {number: layer.ramp for number, layer in layers.items() if min(layer.span) < layer.key.shape[1]}
    if len(set(limited.values())) > 1:
        raise ValueError(f"layers must have one ramp, but the ramps of layers with spans are {limited}")


def _limits(options: Options) -> dict[str, npt.NDArray[np.int64]]:
    """Return the limits from the options, for the single batch item."""
    lists: dict[str, Any] = {name: options.get(name) for name in _LIMITS}
    arrays = {name: np.asarray(numbers, np.int64) for name, numbers in lists.items() if numbers is not None}
    return {name: array.reshape(-1, *(2,) * (name == "key_ranges")) for name, array in arrays.items()}


def _bias(request: Request, heads: int) -> Array | None:
    if "key_bias" not in request.parameters:
        return None
    bias = request.parameters["key_bias"].array[0]
    return np.broadcast_to(bias, (heads, bias.shape[-1]))


def _numbers(request: Request, name: str, heads: int) -> Array | None:
    """Return an option that has a number per head."""
    if name not in request.parameters:
        return None
    return np.broadcast_to(request.parameters[name].array.reshape(-1), (heads,))


def _spans(request: Request, heads: int, keys: int) -> list[float]:
    if "span" not in request.parameters:
        return [float(keys)] * heads
    array = request.parameters["span"].array
    if array.shape[2] != 1:
        raise ValueError(
            f"span must have one number per head in a view, not shape {request.parameters['span'].shape}; "
            "headspan.plot.dynamic_spans draws spans of tokens"
        )
    spans: list[float] = np.minimum(np.broadcast_to(array[0, :, 0], (heads,)).astype(np.float64), keys).tolist()
    return spans


def shown_heads(heads: object, all_heads: Sequence[Any]) -> list[int]:
    """Return the indices in `all_heads` of the argument `heads` of `headspan.explore`."""
    if heads is None:
        return list(range(len(all_heads)))
    if isinstance(all_heads[0], int):
        kind, what = "integers", f"different numbers from 0 to {len(all_heads) - 1}"
        indices = _check.sequence("heads", heads, kind)
        asked: list[Any] = [_check.integer("heads", head, at_least=0) for head in indices]
    else:
        kind, what = "pairs of a layer and a head", "different pairs of a layer and a head, such as (2, 0)"
        indices = _check.sequence("heads", heads, kind)
        asked = [tuple(np.asarray(pair).ravel().tolist()) for pair in indices]
    places = {head: place for place, head in enumerate(all_heads)}
    if not asked or len(set(asked)) < len(asked) or not places.keys() >= set(asked):
        raise ValueError(f"heads must be {what}, not {_check.describe(indices)}")
    return [places[head] for head in asked]
