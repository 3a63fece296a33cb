"""Queries and keys of the layers of a model, kept while it runs, so that its attention can be looked at afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from headspan.ops.attention_map import attention_weights
from headspan.torch.arrays import wide_array_of

_Array = npt.NDArray[Any]


class Recorded:
    """What a layer computed attention of.

    Attributes
    ----------
    query : ndarray, shape (batch, heads, tokens, head_dim)
    key : ndarray, shape (batch, key heads, key tokens, head_dim)
    options : dict
        Of `headspan.attention`.
    """

    def __init__(self, query: _Array, key: _Array, options: dict[str, Any]) -> None:
        self.query, self.key, self.options = query, key, options

    def weights(self, **how: Any) -> _Array:
        """Return the weights of all pairs, or of those that the arguments of `headspan.attention_weights` choose."""
        return attention_weights(self.query, self.key, **self.options, **how)

    def trace(self, item: int = 0) -> dict[str, Any]:
        """Return a batch item as `headspan.explore` takes it: ``headspan.explore(**layers[0].trace())``.

        Raises
        ------
        NotImplementedError
            For what the view does not show: biases of pairs, soft caps, sinks, and spans beside a static cache.
        """
        shown = {name: o for name, o in self.options.items() if name in ("span", "ramp", "causal", "pattern")}
        left = self.options.keys() - shown.keys() - {"key_ranges", "key_bias", "scale"}
        if "span" not in shown:
            left -= {"query_positions"}  # which spans alone go by, beside ranges
        if left:
            raise NotImplementedError(f"the view does not show {', '.join(sorted(left))}: look at weights()")
        query, key = self.query[item], self.key[item]
        usual = query.shape[-1] ** -0.5  # the view knows no other
        shown["query"] = query * query.dtype.type(self.options.get("scale", usual) / usual)
        shown["key"] = key
        if "key_bias" in self.options:
            shown["key_bias"] = self.options["key_bias"][item, 0]
        if "key_ranges" in self.options:
            ranges = self.options["key_ranges"][item]
            begin, end = int(ranges[-1, 0]), int(ranges[-1, 1])
            whole = np.arange(len(ranges)) + end - len(ranges) + 1
            if np.array_equal(ranges[:, 1], np.maximum(whole, begin)) and (ranges[:, 0] == begin).all():
                return shown | {"causal": True, "key_begin": begin, "key_lengths": end}
            shown["key_ranges"] = ranges
        return shown


class Recording(dict[int, Recorded]):
    """The last call of each layer, by its number."""


class _Asked(NamedTuple):
    """Who is recorded: modules by their ids, and of those that were heard the number of each."""

    recording: Recording
    modules: frozenset[int]
    owners: dict[int, int]


_RECORDING: ContextVar[_Asked | None] = ContextVar("recording", default=None)
# How many recordings there are in all threads: what torch.compile can look at, which it cannot at the above.
_under_way = 0
_lock = Lock()
_collector: Any = None  # of transformers: see `follow_outputs`


@contextmanager
def record(model: torch.nn.Module) -> Iterator[Recording]:
    """Keep the queries and keys of a model of transformers that runs within, to look at what its heads see.

    The model must compute with ``attn_implementation="headspan"``. Nothing is computed beside what the model does; maps
    are, when they are asked for, and pooled ones in the memory of the picture.

    Parameters
    ----------
    model : Module

    Yields
    ------
    Recording
        The last call of each layer, by its number: `Recorded.weights` has its map, `Recorded.trace` is what
        the view takes.

    Raises
    ------
    ValueError
        For a model that computes otherwise.
    NotImplementedError
        Where two attentions have the same number, as those of an encoder and a decoder do. By `Recorded.trace`, for
        what the view does not show.

    Examples
    --------
    >>> import torch, headspan.torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> headspan.torch.register()
    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes, attn_implementation="headspan"))
    >>> with headspan.torch.record(model) as layers:
    ...     _ = model(torch.arange(40)[None])
    >>> layers[1].weights(pool=4).shape
    (1, 4, 10, 10)
    """
    configs = [its.config for its in model.modules() if hasattr(its, "config")]
    names = {getattr(config, "_attn_implementation", None) for config in configs}
    if names and "headspan" not in names:
        raise ValueError(
            f"recording needs a model with attn_implementation='headspan', not {' or '.join(sorted(map(str, names)))}: "
            "headspan.torch.register(), then model.set_attn_implementation('headspan')"
        )
    recording = Recording()
    token = _RECORDING.set(_Asked(recording, frozenset(map(id, model.modules())), {}))
    _count(1)
    try:
        yield recording
    finally:
        _count(-1)
        _RECORDING.reset(token)


def _count(more: int) -> None:
    global _under_way
    with _lock:
        _under_way += more


def note(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, options: dict[str, Any]) -> None:
    """Keep what a layer computes attention of, if somebody is recording it."""
    if _under_way:
        keep = torch.compiler.disable(_note) if "torch._dynamo" in sys.modules else _note  # else it would be loaded
        keep(module, query, key, options)


def _note(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, options: dict[str, Any]) -> None:
    asked = _RECORDING.get()
    if asked is None or id(module) not in asked.modules:
        return
    number = getattr(module, "layer_idx", None)
    if not isinstance(number, int):
        number = next((its for its, owner in asked.owners.items() if owner == id(module)), len(asked.owners))
    if asked.owners.setdefault(number, id(module)) != id(module):
        raise NotImplementedError(
            f"two attentions of the model are layer {number}: record one part of it, such as model.encoder"
        )
    left_out = ("dropout", "seed")
    plain = {
        name: _copy_of(option) if isinstance(option, torch.Tensor) else option
        for name, option in options.items()
        if option is not None and name not in left_out
    }
    asked.recording[number] = Recorded(_copy_of(query), _copy_of(key), plain)


def follow_outputs() -> None:
    """Find what transformers collects outputs with; in older versions, without it, all models tell their layers."""
    global _collector
    with suppress(ImportError):
        from transformers.utils.output_capturing import _active_collector

        _collector = _active_collector


def are_weights_collected() -> bool:
    """Whether transformers collects weights of this call: some models do not tell their layers of output_attentions."""
    collected = None if _collector is None else _collector.get()
    return collected is not None and any(name.endswith("attentions") for name in collected)


def _copy_of(tensor: torch.Tensor) -> _Array:
    return np.array(wide_array_of(tensor.detach()))
