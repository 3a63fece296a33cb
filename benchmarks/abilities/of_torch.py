"""The abilities of `scaled_dot_product_attention` and `flex_attention` of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from benchmarks.abilities.cases import CAP, DROPOUT, RAMP, SINKS, SPANS, TOKENS, Inputs, distances, masks, texts

Attend = Callable[..., torch.Tensor]
sdpa: Attend = torch.nn.functional.scaled_dot_product_attention
compiled = torch.compile(flex_attention)


def _arrays(arrays: Inputs) -> list[torch.Tensor]:
    return [torch.from_numpy(arrays[name]) for name in ("query", "key", "value")]


def _backward(arrays: Inputs, attend: Attend) -> Any:
    leaves = [x.clone().requires_grad_() for x in _arrays(arrays)]
    return torch.autograd.grad(attend(*leaves), leaves, torch.from_numpy(arrays["grad_out"]))


def _soft_mask(spans: torch.Tensor) -> torch.Tensor:
    x = torch.from_numpy(distances())
    m = ((RAMP + spans[:, None, None] - x) / RAMP).clamp(0, 1)
    return torch.where(x < 0, 0, m).clamp(min=1e-30).log()  # a zero would make the gradient NaN


def _learned_span(arrays: Inputs, attend: Attend) -> Any:
    spans = torch.tensor(SPANS, dtype=torch.float32, requires_grad=True)
    query, *others = _arrays(arrays)
    query.requires_grad_()
    return torch.autograd.grad(attend(spans, query, *others), (spans, query), torch.from_numpy(arrays["grad_out"]))


def _with_sink(arrays: Inputs) -> Any:
    """Add a key whose value is zero and whose score is the sink."""
    q, k, v = _arrays(arrays)
    k, v = (torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
    bias = torch.where(torch.from_numpy(distances()) < 0, -torch.inf, 0.0).expand(len(SINKS), -1, -1)
    sinks = torch.tensor(SINKS, dtype=torch.float32)[:, None, None].expand(-1, bias.shape[1], 1)
    return sdpa(q, k, v, attn_mask=torch.cat([bias, sinks], -1))


def of_sdpa() -> dict[str, tuple[str, Any]]:
    """Return for each ability whether it is "yes" or "dense", and the function that computes it."""
    allowed = {name: torch.from_numpy(mask) for name, mask in masks().items()}

    def masked(name: str) -> tuple[str, Any]:
        return "dense", lambda arrays: sdpa(*_arrays(arrays), attn_mask=allowed[name])

    return {
        "forward": ("yes", lambda arrays: sdpa(*_arrays(arrays), is_causal=True)),
        "backward": ("yes", lambda arrays: _backward(arrays, lambda *leaves: sdpa(*leaves, is_causal=True))),
        "window": masked("window"),
        "window of each head": masked("window of each head"),
        "learned span": (
            "dense",
            lambda arrays: _learned_span(arrays, lambda spans, *leaves: sdpa(*leaves, attn_mask=_soft_mask(spans))),
        ),
        "pattern": masked("pattern"),
        "sinks": ("dense", _with_sink),
        "dropout": ("yes", lambda arrays: sdpa(*_arrays(arrays), is_causal=True, dropout_p=DROPOUT)),
        "grouped heads": (
            "yes",
            lambda arrays: sdpa(
                *(x[:, :: 1 + bool(i)] for i, x in enumerate(_arrays(arrays))), is_causal=True, enable_gqa=True
            ),
        ),
        "packed": masked("packed"),
    }


def _block_mask(rule: Callable[..., torch.Tensor], heads: int | None = None) -> Any:
    return create_block_mask(rule, None, heads, TOKENS, TOKENS, device="cpu", BLOCK_SIZE=16)


def of_flex() -> dict[str, tuple[str, Any]]:
    """Return "yes" and the function that computes it for each ability. The functions are compiled."""
    spans, text = torch.tensor(SPANS), torch.from_numpy(texts())
    blocks, sinks = torch.from_numpy(masks()["blocks"]), torch.tensor(SINKS, dtype=torch.float32)

    def causal(_b: Any, _h: Any, q: Any, k: Any) -> Any:
        return q >= k

    def ruled(rule: Callable[..., torch.Tensor], heads: int | None = None, **more: Any) -> tuple[str, Any]:
        mask = _block_mask(rule, heads)
        return "yes", lambda arrays: compiled(*_arrays(arrays), block_mask=mask, **more)

    def learned_span(arrays: Inputs) -> Any:
        mask = _block_mask(causal)

        def attend(learned: torch.Tensor, *leaves: torch.Tensor) -> torch.Tensor:
            def score(s: Any, _b: Any, h: Any, q: Any, k: Any) -> Any:
                return s + ((RAMP + learned[h] - (q - k)) / RAMP).clamp(1e-30, 1).log()

            return compiled(*leaves, score_mod=score, block_mask=mask)

        return _learned_span(arrays, attend)

    def with_sinks(arrays: Inputs) -> Any:
        out, aux = compiled(*_arrays(arrays), block_mask=_block_mask(causal), return_aux=AuxRequest(lse=True))
        return out * (aux.lse - sinks[:, None]).sigmoid()[..., None]

    return {
        "forward": ruled(causal),
        "backward": (
            "yes",
            lambda arrays: _backward(arrays, lambda *leaves: compiled(*leaves, block_mask=_block_mask(causal))),
        ),
        "window": ruled(lambda b, h, q, k: (q >= k) & (q - k <= 8)),
        "window of each head": ruled(lambda b, h, q, k: (q >= k) & (q - k <= spans[h]), len(SPANS)),
        "learned span": ("yes", learned_span),
        "pattern": ruled(lambda b, h, q, k: (q >= k) & blocks[q // 8, k // 8]),
        "sinks": ("yes", with_sinks),
        "soft cap": ruled(causal, score_mod=lambda s, b, h, q, k: CAP * torch.tanh(s / CAP)),
        "grouped heads": (
            "yes",
            lambda arrays: compiled(
                *(x[:, :: 1 + bool(i)] for i, x in enumerate(_arrays(arrays))),
                block_mask=_block_mask(causal),
                enable_gqa=True,
            ),
        ),
        "packed": ruled(lambda b, h, q, k: (q >= k) & (text[q] == text[k])),
    }
