"""`scaled_dot_product_attention` and `flex_attention` of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention as sdpa

from benchmarks.abilities.cases import CAP, DROPOUT, RAMP, SINKS, SPANS, TOKENS, Inputs, distances, masks, texts

Attend = Callable[..., torch.Tensor]
compiled = torch.compile(flex_attention)


def _arrays(given: Inputs) -> list[torch.Tensor]:
    return [torch.from_numpy(given[name]) for name in ("query", "key", "value")]


def _backward(given: Inputs, attend: Attend) -> Any:
    leaves = [x.clone().requires_grad_() for x in _arrays(given)]
    return torch.autograd.grad(attend(*leaves), leaves, torch.from_numpy(given["grad_out"]))


def _soft_mask(spans: torch.Tensor) -> torch.Tensor:
    x = torch.from_numpy(distances())
    m = ((RAMP + spans[:, None, None] - x) / RAMP).clamp(0, 1)
    return torch.where(x < 0, 0, m).clamp(min=1e-30).log()  # a zero would make the gradient NaN


def _learned_span(given: Inputs, attend: Attend) -> Any:
    spans = torch.tensor(SPANS, dtype=torch.float32, requires_grad=True)
    query, *others = _arrays(given)
    query.requires_grad_()
    return torch.autograd.grad(attend(spans, query, *others), (spans, query), torch.from_numpy(given["grad_out"]))


def _with_sink(given: Inputs) -> Any:
    """One more key that gives nothing, with the sink for a score."""
    q, k, v = _arrays(given)
    k, v = (torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
    bias = torch.where(torch.from_numpy(distances()) < 0, -torch.inf, 0.0).expand(len(SINKS), -1, -1)
    sinks = torch.tensor(SINKS, dtype=torch.float32)[:, None, None].expand(-1, bias.shape[1], 1)
    return sdpa(q, k, v, attn_mask=torch.cat([bias, sinks], -1))


def of_sdpa() -> dict[str, tuple[str, Any]]:
    """Return how each ability is had, and what computes it."""
    its = {name: torch.from_numpy(mask) for name, mask in masks().items()}

    def masked(name: str) -> tuple[str, Any]:
        return "dense", lambda given: sdpa(*_arrays(given), attn_mask=its[name])

    return {
        "forward": ("yes", lambda given: sdpa(*_arrays(given), is_causal=True)),
        "backward": ("yes", lambda given: _backward(given, lambda *leaves: sdpa(*leaves, is_causal=True))),
        "window": masked("window"),
        "window of each head": masked("window of each head"),
        "learned span": (
            "dense",
            lambda given: _learned_span(given, lambda spans, *its: sdpa(*its, attn_mask=_soft_mask(spans))),
        ),
        "pattern": masked("pattern"),
        "sinks": ("dense", _with_sink),
        "dropout": ("yes", lambda given: sdpa(*_arrays(given), is_causal=True, dropout_p=DROPOUT)),
        "grouped heads": (
            "yes",
            lambda given: sdpa(
                *(x[:, :: 1 + bool(i)] for i, x in enumerate(_arrays(given))), is_causal=True, enable_gqa=True
            ),
        ),
        "packed": masked("packed"),
    }


def _block_mask(rule: Callable[..., torch.Tensor], heads: int | None = None) -> Any:
    return create_block_mask(rule, None, heads, TOKENS, TOKENS, device="cpu", BLOCK_SIZE=16)


def of_flex() -> dict[str, tuple[str, Any]]:
    """Return how each ability is had, and what computes it: compiled, as it is meant."""
    spans, text = torch.tensor(SPANS), torch.from_numpy(texts())
    blocks, sinks = torch.from_numpy(masks()["blocks"]), torch.tensor(SINKS, dtype=torch.float32)

    def causal(_b: Any, _h: Any, q: Any, k: Any) -> Any:
        return q >= k

    def ruled(rule: Callable[..., torch.Tensor], heads: int | None = None, **more: Any) -> tuple[str, Any]:
        mask = _block_mask(rule, heads)
        return "yes", lambda given: compiled(*_arrays(given), block_mask=mask, **more)

    def learned_span(given: Inputs) -> Any:
        mask = _block_mask(causal)

        def attend(learned: torch.Tensor, *arrays: torch.Tensor) -> torch.Tensor:
            def score(s: Any, _b: Any, h: Any, q: Any, k: Any) -> Any:
                return s + ((RAMP + learned[h] - (q - k)) / RAMP).clamp(1e-30, 1).log()

            return compiled(*arrays, score_mod=score, block_mask=mask)

        return _learned_span(given, attend)

    def with_sinks(given: Inputs) -> Any:
        out, aux = compiled(*_arrays(given), block_mask=_block_mask(causal), return_aux=AuxRequest(lse=True))
        return out * (aux.lse - sinks[:, None]).sigmoid()[..., None]

    return {
        "forward": ruled(causal),
        "backward": (
            "yes",
            lambda given: _backward(given, lambda *leaves: compiled(*leaves, block_mask=_block_mask(causal))),
        ),
        "window": ruled(lambda b, h, q, k: (q >= k) & (q - k <= 8)),
        "window of each head": ruled(lambda b, h, q, k: (q >= k) & (q - k <= spans[h]), len(SPANS)),
        "learned span": ("yes", learned_span),
        "pattern": ruled(lambda b, h, q, k: (q >= k) & blocks[q // 8, k // 8]),
        "sinks": ("yes", with_sinks),
        "soft cap": ruled(causal, score_mod=lambda s, b, h, q, k: CAP * torch.tanh(s / CAP)),
        "grouped heads": (
            "yes",
            lambda given: compiled(
                *(x[:, :: 1 + bool(i)] for i, x in enumerate(_arrays(given))),
                block_mask=_block_mask(causal),
                enable_gqa=True,
            ),
        ),
        "packed": ruled(lambda b, h, q, k: (q >= k) & (text[q] == text[k])),
    }
