"""The abilities of `jax.nn.dot_product_attention`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.nn import dot_product_attention

from benchmarks.abilities.cases import RAMP, SPANS, Inputs, distances, masks


def _arrays(arrays: Inputs) -> list[jax.Array]:
    return [jnp.asarray(arrays[name]).swapaxes(1, 2) for name in ("query", "key", "value")]  # heads follow tokens


def _attend(arrays: Inputs, **options: Any) -> Any:
    return dot_product_attention(*_arrays(arrays), **options).swapaxes(1, 2)


def _backward(arrays: Inputs) -> Any:
    vjp = jax.vjp(lambda *leaves: dot_product_attention(*leaves, is_causal=True), *_arrays(arrays))[1]
    return [x.swapaxes(1, 2) for x in vjp(jnp.asarray(arrays["grad_out"]).swapaxes(1, 2))]


def _learned_span(arrays: Inputs) -> Any:
    x = jnp.asarray(distances())

    def attend(spans: jax.Array, query: jax.Array) -> jax.Array:
        m = jnp.clip((RAMP + spans[:, None, None] - x) / RAMP, 0, 1)
        bias = jnp.log(jnp.maximum(jnp.where(x < 0, 0, m), 1e-30))[None]
        return _attend({**arrays, "query": query}, bias=bias)

    vjp = jax.vjp(attend, jnp.asarray(SPANS, jnp.float32), jnp.asarray(arrays["query"]))[1]
    return vjp(jnp.asarray(arrays["grad_out"]))


def of_jax() -> dict[str, tuple[str, Any]]:
    """Return for each ability whether it is "yes" or "dense", and the function that computes it."""
    allowed = masks()

    def masked(name: str) -> tuple[str, Any]:
        mask = jnp.asarray(allowed[name])
        return "dense", lambda arrays: _attend(arrays, mask=mask[None] if mask.ndim == 3 else mask[None, None])

    return {
        "forward": ("yes", lambda arrays: _attend(arrays, is_causal=True)),
        "backward": ("yes", _backward),
        "window": ("yes", lambda arrays: _attend(arrays, is_causal=True, local_window_size=(8, 0))),
        "window of each head": masked("window of each head"),
        "learned span": ("dense", _learned_span),
        "pattern": masked("pattern"),
        "grouped heads": (
            "yes",
            lambda arrays: _attend(
                {**arrays, "key": arrays["key"][:, ::2], "value": arrays["value"][:, ::2]}, is_causal=True
            ),
        ),
        "packed": masked("packed"),
    }
