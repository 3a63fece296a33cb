"""Checks of the arguments of `fit_spans`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.fitting.search.descent import DescentState
from headspan.fitting.search.greedy import Profile
from headspan.fitting.search.price import Price, Unit
from headspan.ops.storage import storage_of


def checked_price(
    *, tokens: int, num_layers: int, num_heads: int, head_dim: int, num_key_heads: int, ramp: float, first_tokens: int,
    dtype: object, unit: Unit, causal: bool,
) -> Price:  # fmt: skip
    """Return the sizes of a model and a text."""
    layers = _check.integer("num_layers", num_layers, at_least=1)
    heads = _check.integer("num_heads", num_heads, at_least=1)
    key_heads = _check.integer("num_key_heads", num_key_heads, at_least=1)
    if heads % key_heads:
        raise ValueError(f"num_heads must be a multiple of num_key_heads, not {heads} and {key_heads}")
    if unit not in ("pairs", "cache"):
        raise ValueError(f"budget_of must be 'pairs' or 'cache', not {_check.describe(unit)}")
    if not _check.flag("causal", causal) and unit == "cache":
        raise ValueError("budget_of must be 'pairs' if causal is False, since only causal attention has a cache")
    storage_of(dtype)  # raises an error for other types
    return Price(
        tokens=_check.integer("tokens", tokens, at_least=2),
        layers=layers,
        heads=heads,
        head_dim=_check.integer("head_dim", head_dim, at_least=1),
        key_heads=key_heads,
        ramp=_check.number("ramp", ramp, at_least=0),
        first_tokens=_check.integer("first_tokens", first_tokens, at_least=0),
        dtype=dtype,
        unit=unit,
        causal=bool(causal),
    )


def checked_profile(profile: npt.ArrayLike, price: Price) -> Profile:
    """Return the attention mass by distance."""
    mass = _check.real_array("profile", profile).astype(np.float64)
    shape = (price.layers, price.heads, price.tokens)
    if mass.shape != shape:
        raise ValueError(f"profile must be of shape (layers, heads, tokens), {shape}, not {mass.shape}")
    _check.non_negative("profile", mass)
    return mass


def checked_budget(budget: float | None, tolerance: float | None, price: Price) -> float | None:
    """Return the largest amount of pairs or bytes, or None if there is a tolerance."""
    if (budget is None) == (tolerance is None):
        passed = "neither" if budget is None else "both"
        raise ValueError(f"exactly one of budget and tolerance must be given, got {passed}")
    if budget is None:
        return None
    budget = _check.positive("budget", budget)
    full, least = price.amount(price.full), price.amount(0 * price.full)
    amount = budget * full if budget <= 1 else budget
    units = "pairs" if price.unit == "pairs" else "bytes"
    if amount > full:
        raise ValueError(
            f"budget must be a share of at most 1, or at most the {full} {units} of full attention, not {budget:g}"
        )
    if least > amount:
        bound = f"{least / full:.4f}" if budget <= 1 else str(least)
        raise ValueError(
            f"budget must be at least {bound}, which spans of 0 have with a ramp of {price.ramp:g} "
            f"on {price.tokens} tokens, not {budget:g}"
        )
    return amount


def checked_state(state: DescentState | None, steps: int, price: Price) -> DescentState | None:
    """Return the state to go on from, if it is one of the same steps and heads."""
    if state is None:
        return None
    if not isinstance(state, DescentState):
        raise TypeError(f"state must be the state of a SpanFit, not {_check.describe(state)}")
    if state.steps != steps:
        raise ValueError(f"state must be of a fit of {steps} steps, not of {state.steps}")
    if state.spans.shape != price.full.shape:
        raise ValueError(
            f"state must have spans of shape (layers, key heads), {price.full.shape}, not {state.spans.shape}"
        )
    return state
