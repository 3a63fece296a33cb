"""What spans cost and save: losses on held-out windows, and the time and memory of generated tokens."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import headspan.lab.pretrained.extra

# isort: split
import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm
from transformers import DynamicCache

import headspan.torch
from headspan.fitting.search.price import cache_price
from headspan.fitting.search.windows import one_span_per_layer
from headspan.lab.pretrained.fit import Fitted
from headspan.torch.fitting.losses import next_token_loss

NEW_TOKENS = 32
ROUNDS = 3

Spans = NDArray[np.float64]


class Arm(NamedTuple):
    """Spans on held-out windows.

    Attributes
    ----------
    spans : ndarray, shape (layers, heads)
    cache_share : float
        Share of the bytes of the cache of full attention.
    losses : ndarray, shape (windows,)
    """

    spans: Spans
    cache_share: float
    losses: NDArray[np.float64]

    def excess(self, full: Arm) -> tuple[float, float]:
        """Return the increase of the mean loss over full attention, as a share of it, and its standard error."""
        difference = self.losses - full.losses
        error = difference.std(ddof=1) / len(difference) ** 0.5 if len(difference) > 1 else np.nan
        return float(difference.mean() / full.losses.mean()), float(error / full.losses.mean())


def arms(fitted: Fitted) -> dict[str, Arm]:
    """Measure full attention, the fitted spans, and with as many bytes one span for each layer, and one for all."""
    fit = fitted.fit
    heads = fit.spans.shape[1]
    of_key_heads = fit.spans[:, :: heads // fit.num_key_heads]
    price = cache_price(of_key_heads, heads, tokens=fit.tokens, ramp=fit.ramp, first_tokens=fit.first_tokens)
    tables = {
        "full attention": price.full,
        "fitted": of_key_heads,
        "one span a layer": one_span_per_layer(price, of_key_heads),
        "one span": np.full_like(price.full, fit.uniform.span),
    }
    measured = {}
    with tqdm(total=len(tables) * len(fitted.held_out), desc="held-out windows", disable=None) as bar:
        for name, table in tables.items():
            spans = price.of_heads(table)
            _set(fitted, spans)
            losses = []
            for window in fitted.held_out.split(1):
                with torch.no_grad():
                    losses.append(float(next_token_loss(fitted.pretrained.model, window)))
                bar.update()
            share = price.cache_bytes(table) / price.cache_bytes(price.full)
            measured[name] = Arm(spans, share, np.array(losses))
    _set(fitted, fit.spans)
    return measured


def _set(fitted: Fitted, spans: Spans) -> None:
    unlimited = np.where(spans >= fitted.fit.tokens, np.inf, spans)
    headspan.torch.set_spans(
        fitted.pretrained.model, unlimited, ramp=fitted.fit.ramp, first_tokens=fitted.fit.first_tokens
    )


class Generation(NamedTuple):
    """Time and memory of generation after a prompt.

    Attributes
    ----------
    milliseconds : float
        The median time of a token.
    cache_bytes : int
    """

    milliseconds: float
    cache_bytes: int


def generations(model: Any, prompt: torch.Tensor) -> dict[str, Generation]:
    """Generate after a prompt, in turn with the cache of transformers and "sdpa", and with the spans of the model.

    Parameters
    ----------
    model : PreTrainedModel
        A decoder with spans.
    prompt : Tensor of int, shape (1, tokens)
    """
    ways: dict[str, tuple[str, Callable[[], Any]]] = {
        "full attention (sdpa, DynamicCache)": ("sdpa", lambda: DynamicCache(config=model.config)),
        "fitted spans (head_cache)": ("headspan", lambda: headspan.torch.head_cache(model)),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    held: dict[str, int] = {}
    with tqdm(total=ROUNDS * len(ways), desc="generated texts", disable=None) as bar:
        for _ in range(ROUNDS):
            for name, (implementation, make_cache) in ways.items():
                model.set_attn_implementation(implementation)
                cache = make_cache()
                times[name] += _token_times(model, prompt, cache)
                held[name] = _bytes_of(cache)
                bar.update()
    model.set_attn_implementation("headspan")
    return {name: Generation(1000 * float(np.median(taken)), held[name]) for name, taken in times.items()}


def _token_times(model: Any, prompt: torch.Tensor, cache: Any) -> list[float]:
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    taken = []
    with torch.no_grad():
        logits = model(prompt, **{name: cache}, use_cache=True, logits_to_keep=1).logits
        for _ in range(NEW_TOKENS):
            token = logits[:, -1:].argmax(-1)
            began = time.perf_counter()
            logits = model(token, **{name: cache}, use_cache=True).logits
            taken.append(time.perf_counter() - began)
    return taken


def _bytes_of(cache: Any) -> int:
    if hasattr(cache, "nbytes"):
        return int(cache.nbytes)
    return sum(x.nbytes for layer in cache.layers for x in (layer.keys, layer.values))
