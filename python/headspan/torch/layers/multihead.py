"""`torch.nn.MultiheadAttention` with learned spans."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from headspan.torch import private
from headspan.torch.functional import attention, weights
from headspan.torch.layers.spans import AdaptiveSpan


class SpanMultiheadAttention(nn.MultiheadAttention):
    """A `torch.nn.MultiheadAttention` after `headspan.torch.convert`, with the same weights.

    There are three differences from the original module. Attention weights are returned only for ``need_weights=True``,
    at a cost that grows with the cube of the number of tokens. The result of a query without visible keys is 0, as
    everywhere in headspan, instead of NaN. Dropout uses other random numbers.

    Attributes
    ----------
    span : AdaptiveSpan
        Spans of the heads. With more keys than queries, the last query is at the position of the last key.
    ramp : float

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019.
    """

    span: AdaptiveSpan
    ramp: float

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = False,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Compute attention; arguments and results are those of `torch.nn.MultiheadAttention`."""
        if query.is_nested or key.is_nested or value.is_nested:
            raise ValueError("query, key and value must be padded, not nested; key_padding_mask marks the padding")
        is_batched = query.ndim == 3
        query, key, value = (self._by_head(x) for x in self._projected(query, key, value))
        options = self._options(query, key, key_padding_mask, attn_mask, is_causal)
        out = attention(query, key, value, **options).transpose(1, 2).flatten(2)
        out = self.out_proj(out if self.batch_first else out.transpose(0, 1))
        pair_weights = _weights(query, key, options) if need_weights else None
        if pair_weights is not None and average_attn_weights:
            pair_weights = pair_weights.mean(1)
        if is_batched:
            return out, pair_weights
        return out.squeeze(0 if self.batch_first else 1), None if pair_weights is None else pair_weights.squeeze(0)

    def _projected(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if weight is not None and query is key and key is value:
            parts: tuple[torch.Tensor, ...] = functional.linear(query, weight, bias).chunk(3, -1)
            return parts
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        weights = separate if weight is None else weight.chunk(3)
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return tuple(functional.linear(*args) for args in zip((query, key, value), weights, biases, strict=True))

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        """Reshape tokens to (batch, heads, tokens, head_dim)."""
        if x.ndim == 2:
            x = x.unsqueeze(0)
        elif not self.batch_first:
            x = x.transpose(0, 1)
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _options(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        key_padding_mask: torch.Tensor | None,
        attn_mask: torch.Tensor | None,
        is_causal: bool,
    ) -> dict[str, Any]:
        """Return masks, spans and dropout as options of attention."""
        batch, heads, queries, _ = query.shape
        keys = key.shape[2]
        options: dict[str, Any] = {"span": self.span(), "ramp": self.ramp, "causal": False}
        if is_causal and attn_mask is None and queries != keys:
            raise ValueError(f"is_causal needs as many queries as keys, not {queries} and {keys}; see attn_mask")
        if attn_mask is not None:
            _check_mask("attn_mask", attn_mask, (queries, keys), (batch * heads, queries, keys))
        if queries == keys and (is_causal or _is_causal(attn_mask)):
            options["causal"] = True
        elif attn_mask is not None:
            bias = _mask_bias(attn_mask, query.dtype)
            options["pair_bias"] = bias if bias.ndim == 2 else bias.unflatten(0, (batch, heads))
        if key_padding_mask is not None:
            _check_mask("key_padding_mask", key_padding_mask, (batch, keys), *[(keys,)] * (batch == 1))
            options["key_bias"] = _mask_bias(key_padding_mask, query.dtype).unsqueeze(-2)
        if self.bias_k is not None:
            options["persistent_key"] = self.bias_k.view(heads, 1, -1).to(query.dtype)
            options["persistent_value"] = self.bias_v.view(heads, 1, -1).to(query.dtype)
        if self.add_zero_attn:
            options["sinks"] = 0.0  # equivalent to a key and a value of zeros
        if self.training and self.dropout:
            options |= {"dropout": self.dropout, "seed": torch.randint(2**62, (), device=query.device)}
        return options

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        """Accept state dicts without spans: the spans do not change, or get their initial values on "meta"."""
        old = self.span.fraction.detach()
        state_dict.setdefault(f"{prefix}span.fraction", self.span.initial_fraction(old.dtype) if old.is_meta else old)
        super()._load_from_state_dict(state_dict, prefix, *others)


def add_spans(module: nn.MultiheadAttention, span: AdaptiveSpan, ramp: float) -> None:
    """Add spans to a module in place, so that all references to the module and its weights stay valid."""
    module.__class__ = SpanMultiheadAttention
    module.span, module.ramp = span, ramp
    private.disable_fast_path(module)


def _weights(query: torch.Tensor, key: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    """Return weights; as in torch, columns for the learned key and the zero key follow those of the keys."""
    heads, keys = key.shape[1:3]
    extra_keys = [options["persistent_key"]] if "persistent_key" in options else []
    if "sinks" in options:
        extra_keys.append(query.new_zeros(heads, 1, key.shape[3]))
        options = {name: option for name, option in options.items() if name != "sinks"}
    columns = keys + len(extra_keys)
    if extra_keys:
        one_hot = torch.eye(columns, dtype=query.dtype, device=query.device)[keys:]
        persistent_value = one_hot.expand(heads, len(extra_keys), columns)
        options = options | {"persistent_key": torch.cat(extra_keys, 1), "persistent_value": persistent_value}
    return weights(query, key, options, columns=columns)


def _check_mask(name: str, mask: torch.Tensor, *shapes: tuple[int, ...]) -> None:
    if tuple(mask.shape) not in shapes:
        raise ValueError(f"{name} must be of shape {' or '.join(map(str, shapes))}, not {tuple(mask.shape)}")
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(f"{name} must be of bool or of floats, not {mask.dtype}")


def _mask_bias(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert a mask to a bias that is added to the scores."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -torch.inf)


def _is_causal(mask: torch.Tensor | None) -> bool:
    """Whether a mask is exactly the causal mask; False if its values cannot be read."""
    if mask is None or mask.ndim != 2 or mask.requires_grad or mask.is_meta or torch.compiler.is_compiling():
        return False
    hidden = mask if mask.dtype == torch.bool else mask == -torch.inf
    return torch.equal(hidden, torch.ones_like(hidden).triu(1)) and (hidden is mask or not mask.tril().any())
