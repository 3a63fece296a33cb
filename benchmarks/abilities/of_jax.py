"""`jax.nn.dot_product_attention`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.nn import dot_product_attention

from benchmarks.abilities.cases import RAMP, SPANS, Inputs, distances, masks


def _arrays(given: Inputs) -> list[jax.Array]:
    return [jnp.asarray(given[name]).swapaxes(1, 2) for name in ("query", "key", "value")]  # token by token


def _attend(given: Inputs, **options: Any) -> Any:
    return dot_product_attention(*_arrays(given), **options).swapaxes(1, 2)


def _backward(given: Inputs) -> Any:
    vjp = jax.vjp(lambda *its: dot_product_attention(*its, is_causal=True), *_arrays(given))[1]
    return [x.swapaxes(1, 2) for x in vjp(jnp.asarray(given["grad_out"]).swapaxes(1, 2))]


def _learned_span(given: Inputs) -> Any:
    x = jnp.asarray(distances())

    def attend(spans: jax.Array, query: jax.Array) -> jax.Array:
        m = jnp.clip((RAMP + spans[:, None, None] - x) / RAMP, 0, 1)
        bias = jnp.log(jnp.maximum(jnp.where(x < 0, 0, m), 1e-30))[None]
        return _attend({**given, "query": query}, bias=bias)

    vjp = jax.vjp(attend, jnp.asarray(SPANS, jnp.float32), jnp.asarray(given["query"]))[1]
    return vjp(jnp.asarray(given["grad_out"]))


def of_jax() -> dict[str, tuple[str, Any]]:
    """Return how each ability is had, and what computes it."""
    its = masks()

    def masked(name: str) -> tuple[str, Any]:
        mask = jnp.asarray(its[name])
        return "dense", lambda given: _attend(given, mask=mask[None] if mask.ndim == 3 else mask[None, None])

    return {
        "forward": ("yes", lambda given: _attend(given, is_causal=True)),
        "backward": ("yes", _backward),
        "window": ("yes", lambda given: _attend(given, is_causal=True, local_window_size=(8, 0))),
        "window of each head": masked("window of each head"),
        "learned span": ("dense", _learned_span),
        "pattern": masked("pattern"),
        "grouped heads": (
            "yes",
            lambda given: _attend(
                {**given, "key": given["key"][:, ::2], "value": given["value"][:, ::2]}, is_causal=True
            ),
        ),
        "packed": masked("packed"),
    }
