"""Recording of the queries, keys and values of a model's layers, to inspect their attention afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from headspan.ops.arguments.options import ROWS
from headspan.ops.arguments.rows import Group
from headspan.torch.arrays import wide_array_of
from headspan.torch.private import is_compiler_loaded
from headspan.torch.transformers.private import collected_outputs, implementation_of
from headspan.torch.transformers.recording.recorded import Recorded, Recording


class _Target(NamedTuple):
    """A recording, the ids of its modules, and the id of the module that each layer index belongs to."""

    recording: Recording
    modules: frozenset[int]
    owners: dict[int, int]


_RECORDING: ContextVar[_Target | None] = ContextVar("recording", default=None)
# Number of active recordings in all threads. torch.compile can read it, but not a context variable.
_active_count = 0
_lock = Lock()
_collector: Any = None  # set by `follow_outputs`


@contextmanager
def record(model: torch.nn.Module) -> Iterator[Recording]:
    """Record the queries, keys and values of a transformers model in a context, to inspect the attention of its heads.

    The model must use ``attn_implementation="headspan"``. Recording adds no computation to the model. Attention maps
    are computed on request, and a pooled map needs only the memory of the result.

    Parameters
    ----------
    model : Module
        The model, or a part of it.

    Yields
    ------
    Recording
        The last call of each layer, by layer index. ``record.trace()`` returns all layers as arguments of
        `headspan.explore`, and ``record.trace([0, 5])`` some of them; ``item=`` selects a batch item, and ``tokens=``
        takes the tokens of the tokenizer. ``record[0].weights()`` is the attention map of a layer.

    Raises
    ------
    ValueError
        If the model uses another attention implementation.
    NotImplementedError
        If two attentions have the same layer index, as in models with an encoder and a decoder.

    See Also
    --------
    register : Makes headspan an attention implementation of transformers.
    headspan.explore : Interactive view of attention and spans.

    Examples
    --------
    >>> import torch, headspan.torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> headspan.torch.register()
    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes, attn_implementation="headspan"))
    >>> with headspan.torch.record(model) as record:
    ...     _ = model(torch.arange(40)[None])
    >>> record[1].weights(pool=4).shape
    (1, 4, 10, 10)
    >>> sorted(record.trace()["layers"])  # headspan.explore(**record.trace())
    [0, 1]
    """
    configs = [module.config for module in model.modules() if hasattr(module, "config")]
    names = {implementation_of(config) for config in configs}
    if names and "headspan" not in names:
        raise ValueError(
            f"recording needs a model with attn_implementation='headspan', not {' or '.join(sorted(map(str, names)))}: "
            "headspan.torch.register(), then model.set_attn_implementation('headspan')"
        )
    recording = Recording()
    token = _RECORDING.set(_Target(recording, frozenset(map(id, model.modules())), {}))
    _count(1)
    try:
        yield recording
    finally:
        _count(-1)
        _RECORDING.reset(token)


def _count(change: int) -> None:
    global _active_count
    with _lock:
        _active_count += change


def note(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: dict[str, Any]
) -> None:
    """Record the arguments of a layer's attention if a recording of it is active."""
    if _active_count:
        # `torch.compiler.disable` would import the compiler if it is not loaded.
        keep = torch.compiler.disable(_note) if is_compiler_loaded() else _note
        keep(module, query, key, value, options)


def is_recorded(module: torch.nn.Module) -> bool:
    """Whether a recording of a layer is active."""
    target = _RECORDING.get() if _active_count else None
    return target is not None and id(module) in target.modules


def _note(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: dict[str, Any]
) -> None:
    target = _RECORDING.get()
    if target is None or id(module) not in target.modules:
        return
    number = getattr(module, "layer_idx", None)
    if not isinstance(number, int):
        number = next((index for index, owner in target.owners.items() if owner == id(module)), len(target.owners))
    if target.owners.setdefault(number, id(module)) != id(module):
        raise NotImplementedError(
            f"two attentions of the model are layer {number}: record a part of the model, such as model.encoder"
        )
    plain = {
        name: _copy_of(option) if isinstance(option, torch.Tensor) else option
        for name, option in options.items()
        if option is not None and ROWS[name].group is not Group.DROPOUT
    }
    target.recording[number] = Recorded(_copy_of(query), _copy_of(key), _copy_of(value), plain)


def follow_outputs() -> None:
    """Find the output collector of transformers; in older versions, models pass output_attentions to their layers."""
    global _collector
    _collector = collected_outputs()


def are_weights_collected() -> bool:
    """Whether transformers collects the weights of this call; some models do not pass output_attentions to layers."""
    collected = None if _collector is None else _collector.get()
    return collected is not None and any(name.endswith("attentions") for name in collected)


def _copy_of(tensor: torch.Tensor) -> npt.NDArray[Any]:
    return np.array(wide_array_of(tensor.detach().cpu()))
