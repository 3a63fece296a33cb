"""A transformers cache in which every head keeps only the keys and values that it can reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headspan import _check
from headspan.patterns import Window
from headspan.torch.cache import SpanCache
from headspan.torch.transformers import spans as spans_of_model
from headspan.torch.transformers.models import check_implementation, decoder_config, is_bidirectional, layers_of
from headspan.torch.transformers.spans import settings_of_layer


class HeadLayer:
    """The keys and values of a layer, which the attention function reads through `attend`.

    `update` returns only the new keys and values and attaches this layer to the keys as an attribute. Only the
    attention function "headspan" can use them.

    Attributes
    ----------
    window : int or None
        Size of the layer's sliding window, which includes the current token; None without a window.
    source : dict
        What the spans of the cache were read from: the settings of the model's layer, without those that the caller
        passed instead.
    """

    # The reach of the heads already includes the sliding window.
    is_sliding = False
    is_compileable = False
    supports_early_init = False
    record_past = False

    def __init__(
        self,
        spans: list[float],
        ramp: float,
        window: int | None,
        options: dict[str, Any],
        source: dict[str, Any],
    ) -> None:
        self._spans, self._ramp, self.window, self._options, self.source = spans, ramp, window, options, source
        self._cache: SpanCache | None = None
        self._new: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def is_initialized(self) -> bool:
        """Whether the layer has allocated its cache."""
        return self._cache is not None

    @property
    def is_croppable(self) -> bool:
        """Whether `crop` can remove tokens."""
        return bool(self._options["slack"])

    @property
    def nbytes(self) -> int:
        """Memory of keys and values, in bytes."""
        return 0 if self._cache is None else self._cache.nbytes

    def update(self, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new keys and values until `attend` reads them."""
        if self._new is not None:
            raise RuntimeError(
                "a HeadCache was updated but not read: its model must use attn_implementation='headspan'"
            )
        if torch.is_grad_enabled() and (key.requires_grad or value.requires_grad):
            raise ValueError(
                "a HeadCache has no gradients: call the model within torch.no_grad(), or train it without a cache"
            )
        key = key.detach()
        self._new = key, value.detach()
        key.headspan_cache = self
        return key, value

    def check_source(self, module: torch.nn.Module) -> None:
        """Raise an error if the spans of the model's layer differ from those that the cache was made for."""
        # A layer without a configuration has no spans.
        if not hasattr(module, "config"):
            return
        current = settings_of_layer(module)
        changed = [name for name, setting in self.source.items() if setting != current.get(name)]
        if changed:
            self._new = None
            difference = _difference(changed[0], self.source[changed[0]], current.get(changed[0]))
            raise ValueError(
                f"cache must be made for the current spans of the model, got {difference} in layer "
                f"{getattr(module, 'layer_idx', None)}; make another by headspan.torch.head_cache(model)"
            )

    def attend(self, query: torch.Tensor, *, key_start: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
        """Return attention of the new tokens to all tokens, (batch, heads, tokens, head_dim)."""
        if self._new is None:
            raise RuntimeError("a HeadCache was read twice for one update")
        if key_start is not None:
            if self._options["first_tokens"]:
                raise NotImplementedError(
                    "first_tokens are the first tokens, which are padding if padding is on the left"
                )
            options["key_start"] = key_start
        (key, value), self._new = self._new, None
        if self._cache is None:
            self._cache = self._allocate(key, value)
        result: torch.Tensor = self._cache.attend(query, key, value, **options)
        return result

    def _allocate(self, key: torch.Tensor, value: torch.Tensor) -> SpanCache:
        batch, key_heads, _, dim = key.shape
        dtype = key.dtype if self._options["dtype"] is None else self._options["dtype"]
        pattern = None if self.window is None else Window(self.window)
        limits = {name: self._options[name] for name in ("first_tokens", "slack")}
        options = {"span": self._spans, "ramp": self._ramp, "pattern": pattern, "dtype": dtype} | limits
        return SpanCache(batch, key_heads, dim, value_dim=value.shape[-1], **options)

    def get_seq_length(self) -> int:
        """Return the number of tokens seen so far."""
        return 0 if self._cache is None else self._cache.count

    def get_mask_sizes(self, query_length: int | torch.Tensor) -> tuple[int, int]:
        """Return the number of keys that a mask covers and the index of the first key; a mask covers all tokens.

        Older versions of transformers pass the positions of the queries instead of their number.
        """
        new = len(query_length) if isinstance(query_length, torch.Tensor) else query_length
        return self.get_seq_length() + new, 0

    def get_max_length(self) -> int:
        """Return -1: the cache has no maximum length."""
        return -1

    get_max_cache_shape = get_max_length  # the name in older versions

    def reset(self) -> None:
        """Remove all tokens."""
        self._cache = self._new = None

    def crop(self, tokens_to_remove: int) -> None:
        """Remove ``-tokens_to_remove`` tokens; a positive number is the length to keep, as in older versions."""
        if self._cache is not None and tokens_to_remove:
            count = self._cache.count
            self._cache.truncate(count + tokens_to_remove if tokens_to_remove < 0 else min(tokens_to_remove, count))

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Reorder the batch items for beam search."""
        if self._cache is not None:
            self._cache.reorder(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each batch item."""
        if self._cache is not None:
            self._cache.reorder(np.repeat(np.arange(self._cache.batch), repeats))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the selected batch items."""
        self.reorder_cache(torch.arange(len(indices))[indices] if indices.dtype == torch.bool else indices)


def _difference(name: str, made: Any, current: Any) -> str:
    """Return what a setting of a cache is instead of the current one."""
    if name != "spans":
        return f"{name} {made:g} instead of {current:g}"
    if made is None or current is None:
        return "no limit instead of spans" if made is None else "spans instead of no limit"
    if len(made) != len(current):
        return f"spans of {len(made)} heads instead of {len(current)}"
    head = next(index for index, pair in enumerate(zip(made, current, strict=True)) if pair[0] != pair[1])
    return f"span {made[head]:g} instead of {current[head]:g} for head {head}"


def head_cache(
    model: torch.nn.Module,
    spans: npt.ArrayLike | Sequence[npt.ArrayLike | None] | None = None,
    *,
    ramp: float | None = None,
    first_tokens: int | None = None,
    dtype: torch.dtype | str | None = None,
    slack: int = 0,
) -> Any:
    """Return a cache for ``model.generate(cache=...)`` in which every head keeps only the tokens that it can reach.

    A `DynamicCache` keeps all tokens for all heads. This cache keeps for each key head the longest span of the heads
    that share it, plus the ramp and the sinks. A sliding window of the layer limits it further.

    Parameters
    ----------
    model : PreTrainedModel
        A decoder with ``attn_implementation="headspan"``.
    spans : array_like, optional
        See `set_spans`. Default: the spans of the model.
    ramp : float, optional
        Default: the ramp of the model's spans.
    first_tokens : int, optional
        Number of first tokens that are kept and visible at any distance. Default: the number of `set_spans`.
    dtype : torch.dtype or str, optional
        Type in which keys and values are stored, see `headspan.torch.SpanCache`. Default: the type of the keys.
    slack : int
        Number of tokens that `crop` can remove, which assisted decoding requires.

    Returns
    -------
    transformers.Cache
        Its attribute `nbytes` is the memory of all layers. The cache has no gradients: call the model within
        ``torch.no_grad()``, as `generate` does. If the spans of the model have changed since, or if another model with
        other spans uses the cache, the call raises an error. Spans that you pass as `spans` are not compared.

    Raises
    ------
    ValueError
        If the model is bidirectional, uses another attention implementation or caches latents, or if `spans` does not
        fit its heads.
    TypeError
        If `model` is not a transformers model.

    See Also
    --------
    set_spans : Sets the spans of a transformers model.
    SpanCache : Cache of keys and values for tensors.

    References
    ----------
    Xiao et al., "DuoAttention", ICLR 2025, section 2.3; headspan uses a window for each head.

    Examples
    --------
    >>> import torch, headspan.torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> headspan.torch.register()
    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes, attn_implementation="headspan"))
    >>> headspan.torch.set_spans(model, [[2, 4, 8, 16], [4, 4, 4, 4]], ramp=4)
    >>> cache = headspan.torch.head_cache(model)
    >>> ids = torch.arange(3, 40)[None]
    >>> model.generate(ids, cache=cache, max_new_tokens=5, do_sample=False, pad_token_id=0).shape
    torch.Size([1, 42])
    >>> cache.nbytes
    4992
    """
    from transformers.cache_utils import Cache, CacheLayerMixin

    config = decoder_config(model)
    check_implementation(config, "a cache of heads needs")
    if is_bidirectional(model, config):
        raise ValueError(
            f"model must be a decoder with causal attention, got {type(model).__name__}, whose attention is "
            "bidirectional; an encoder reads all tokens at once and needs no cache"
        )
    if any(hasattr(module, "expand_kv") for module in model.modules()):
        raise ValueError(
            f"a cache of heads holds keys and values of heads, but {type(model).__name__} caches a latent that all "
            "heads share (multi-head latent attention): omit cache=; spans still limit the computation"
        )
    layer_spans = spans_of_model.of_model(model, config) if spans is None else spans_of_model.of_layers(spans, config)
    # The cache compares with the model only what it has read from the model.
    passed = {name for name, setting in (("ramp", ramp), ("first_tokens", first_tokens)) if setting is not None}
    if ramp is None:
        ramp = spans_of_model.ramp_of(model, config)
    ramp = _check.number("ramp", ramp, at_least=0)
    if first_tokens is None:
        first_tokens = getattr(config, "headspan_first_tokens", 0)
    kinds, windows = layers_of(config)
    unsupported = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if unsupported:
        raise ValueError(
            f"a cache of heads is for full attention and sliding windows, not for {', '.join(unsupported)}"
        )

    class Layer(HeadLayer, CacheLayerMixin):
        def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
            """Do nothing: `attend` allocates the cache for the first keys."""

    class HeadCache(Cache):
        def update(self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
            if layer_idx >= len(self.layers):
                raise ValueError(
                    f"cache must have all layers of the model, got {len(self.layers)} layers and a call from layer "
                    f"{layer_idx}; make another by headspan.torch.head_cache(model)"
                )
            return super().update(key, value, layer_idx, *args, **kwargs)

        @property
        def nbytes(self) -> int:
            return sum(layer.nbytes for layer in self.layers)

    options: dict[str, Any] = {"first_tokens": first_tokens, "dtype": dtype, "slack": slack}
    # Raise errors for wrong options now rather than in the first call of the model.
    SpanCache(1, 1, 1, **{name: option for name, option in options.items() if option is not None})
    unlimited = [spans_of_model.UNLIMITED] * config.num_attention_heads
    layers = []
    for heads, window in zip(layer_spans, windows, strict=True):
        source: dict[str, Any] = {}
        if spans is None:
            others = {} if heads is None else {"ramp": ramp, "first_tokens": first_tokens}
            source = {"spans": heads} | {name: others[name] for name in others if name not in passed}
        layers.append(Layer(unlimited if heads is None else heads, ramp, window, options, source))
    return HeadCache(layers=layers)
