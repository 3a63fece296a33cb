"""Find the smallest spans for a model that is already trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.fitting.descent import by_descent
from headspan.fitting.greedy import Profile, by_steps
from headspan.fitting.measured import Aim, Measured, checked_loss, is_uniform
from headspan.fitting.price import Price, Spans
from headspan.fitting.result import SpanFit, Window
from headspan.fitting.windows import largest_within, measure, uniform
from headspan.ops.storage import storage_of


def fit_spans(
    loss: Callable[[Any], float],
    held_out: Callable[[Any], float],
    *,
    tokens: int,
    layers: int,
    heads: int,
    head_dim: int,
    key_heads: int | None = None,
    budget: float | None = None,
    tolerance: float | None = None,
    ramp: float = 32,
    method: Literal["profile", "learn"] = "profile",
    profile: npt.ArrayLike | None = None,
    gradient: Callable[[Any], tuple[float, Any]] | None = None,
    sink_tokens: int = 0,
    dtype: object = np.float32,
) -> SpanFit:
    """Find the smallest spans for a model that is already trained, by its measured loss.

    The model is a function: it is given spans, and says what loss the model has with them. Heads that need little get a
    short span, so that those that need much can keep it. One span for all heads is always measured beside it, and what
    is returned is never worse than that at equal pairs, on the data that `loss` measures.

    Parameters
    ----------
    loss, held_out : callable
        ``loss(spans)`` is the mean loss of the model with spans of shape (layers, heads), float64, on the data that
        they are fitted to; `held_out` the same on data that the fit does not see. A span of `tokens` is full
        attention. Losses are greater than 0, and the same for the same spans.
    tokens, layers, heads, head_dim : int
        Sizes of the texts and of the model.
    key_heads : int, optional
        Heads of keys and values of a layer, as many as `heads` unless given. Heads that share keys get one span, since
        a cache keeps the keys for all of them.
    budget : float
        The pairs that there may be, as a share of those of full attention.
    tolerance : float
        Instead of a budget: by how much the loss may grow, as a share of that of full attention; 0.01 is 1 %.
    ramp : float
        Of the soft mask, see `attention`: it is what every head reaches beyond its span, so that a short one leaves
        more to save. To learn needs one of at least 1, better 8 than 1.
    method : {"profile", "learn"}
        By measured steps, each head down a ladder of spans, whichever step costs least loss for the pairs it saves. Or
        by descent in the logarithm of the spans, with the weights as they are: 60 times loss and gradient.
    profile : array_like, shape (layers, heads, tokens), optional
        Attention mass by distance, as of `headspan.plot.mean_by_distance`: "profile" begins where next to no mass lies
        farther, instead of at full attention, if the measured loss agrees. How much mass a head has at a distance is
        otherwise no sign of how much it needs it.
    gradient : callable
        For "learn": ``gradient(spans)`` is the loss and its gradient for the spans, an array of their shape.
    sink_tokens : int
        So many first tokens are seen at any distance; they are counted, and `loss` has to see to it.
    dtype : dtype or str
        As what a cache keeps keys and values, see `SpanCache`.

    Returns
    -------
    SpanFit
        The spans, what they cost and lose, held out too, and the curve; `headspan.plot.span_fit` draws it.

    Raises
    ------
    ValueError
        For a budget that the ramp alone exceeds, a wrong shape or value, or a loss that is not finite.
    TypeError
        For a wrong type.

    Notes
    -----
    A tolerance holds on the data that spans are fitted to. Held out, the loss may be a little larger:
    `SpanFit.excess` says what it is.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, section 2.2, with the weights frozen.

    Examples
    --------
    A model of which one head needs 100 tokens, one 30, and the two others 3; the rungs of the ladder are 90 and 128:

    >>> import numpy as np
    >>> import headspan as hs
    >>> needs = np.array([[100, 3], [30, 3]])
    >>> def loss(spans):
    ...     return 2 + np.maximum(1 - spans / needs, 0).sum()
    >>> sizes = {"tokens": 256, "layers": 2, "heads": 2, "head_dim": 16}
    >>> fit = hs.fit_spans(loss, loss, **sizes, tolerance=0.001, ramp=1)
    >>> fit.spans
    array([[128.,   3.],
           [ 32.,   3.]])
    >>> f"{fit.share:.0%} of the pairs: {fit.excess:+.0%}; one span of {fit.uniform.span:g}: {fit.uniform_excess:+.0%}"
    '26% of the pairs: +0%; one span of 35: +32%'
    """
    key_heads = heads if key_heads is None else key_heads
    price = _checked_price(tokens, layers, heads, head_dim, key_heads, ramp, sink_tokens, dtype)
    for name, function in {"loss": loss, "held_out": held_out, "gradient": gradient}.items():
        if not callable(function) and (name != "gradient" or function is not None):
            raise TypeError(f"{name} must be a function of spans, not {_check.describe(function)}")
    if method not in ("profile", "learn"):
        raise ValueError(f"method must be 'profile' or 'learn', not {_check.describe(method)}")
    if method == "learn" and gradient is None:
        raise ValueError("gradient must be given for method='learn'")
    if method == "learn" and price.ramp < 1:
        raise ValueError(f"ramp must be at least 1 for method='learn', not {price.ramp:g}: spans have no gradient else")
    mass = None if profile is None else _checked_profile(profile, price)
    bound, limit = _checked_aim(budget, tolerance, price)

    measured = Measured(price, loss, gradient)
    before = measured(price.full)
    aim = Aim(pairs=bound) if bound is not None else Aim(loss=before * (1 + limit))
    measure(measured, aim)
    if method == "profile":
        by_steps(measured, aim, mass)
    else:
        by_descent(measured, aim)
    _settle(measured, aim)
    beside = uniform(price, largest_within(price, price.pairs(measured.best(aim))))
    measured(beside)
    found = measured.best(aim)
    beside = uniform(price, largest_within(price, price.pairs(found)))
    return SpanFit(
        spans=price.of_heads(found),
        ramp=price.ramp,
        loss_before=_held_out(held_out, price, price.full),
        loss_after=_held_out(held_out, price, found),
        fitted_before=before,
        fitted_after=measured(found),
        pairs=price.pairs(found),
        full_pairs=price.pairs(price.full),
        cache_bytes=price.cache_bytes(found),
        full_cache_bytes=price.cache_bytes(price.full),
        curve=measured.points(),
        uniform_curve=measured.points(uniform=True),
        uniform=Window(
            float(beside.flat[0]),
            price.pairs(beside),
            price.cache_bytes(beside),
            measured(beside),
            _held_out(held_out, price, beside),
        ),
        uniform_wins=is_uniform(found),
        evaluations=measured.evaluations,
    )


def _settle(measured: Measured, aim: Aim) -> None:
    """Measure the best spans once more, all longer or shorter by one factor, so that what may be spent is spent."""
    price = measured.price
    best = measured.best(aim)
    if aim.has_budget:
        measured(price.scaled(best, aim.pairs))
        return
    low, high = 0.5, 1.0
    for _ in range(5):
        middle = (low + high) / 2
        scaled = price.scaled(best, middle * price.pairs(best))
        low, high = (low, middle) if measured(scaled) <= aim.loss else (middle, high)


def _held_out(held_out: Callable[[Any], float], price: Price, spans: Spans) -> float:
    return checked_loss("held_out", held_out(price.of_heads(spans)))


def _checked_price(
    tokens: int, layers: int, heads: int, head_dim: int, key_heads: int, ramp: float, sink_tokens: int, dtype: object
) -> Price:
    sizes = {"layers": layers, "heads": heads, "head_dim": head_dim, "key_heads": key_heads}
    of = {name: _check.integer(name, size, at_least=1) for name, size in sizes.items()}
    if of["heads"] % of["key_heads"]:
        raise ValueError(f"heads must be a multiple of key_heads, not {of['heads']} and {of['key_heads']}")
    storage_of(dtype)  # or an error
    return Price(
        tokens=_check.integer("tokens", tokens, at_least=2),
        **of,
        ramp=_check.number("ramp", ramp, at_least=0),
        sink_tokens=_check.integer("sink_tokens", sink_tokens, at_least=0),
        dtype=dtype,
    )


def _checked_profile(profile: npt.ArrayLike, price: Price) -> Profile:
    mass = _check.real_array("profile", profile).astype(np.float64)
    shape = (price.layers, price.heads, price.tokens)
    if mass.shape != shape:
        raise ValueError(f"profile must be of shape (layers, heads, tokens), {shape}, not {mass.shape}")
    _check.non_negative("profile", mass)
    return mass


def _checked_aim(budget: float | None, tolerance: float | None, price: Price) -> tuple[float | None, float]:
    """Return the pairs that there may be, or None, and by how much the loss may grow."""
    if (budget is None) == (tolerance is None):
        given = "neither" if budget is None else "both"
        raise ValueError(f"either budget or tolerance must be given, not {given}")
    if budget is None:
        return None, _check.positive("tolerance", tolerance)
    share = _check.positive("budget", budget)
    if share > 1:
        raise ValueError(f"budget must be a share of the pairs, at most 1, not {share:g}")
    full, least = price.pairs(price.full), price.pairs(0 * price.full)
    if least > share * full:
        raise ValueError(
            f"budget must be at least {least / full:.4f}, which spans of 0 have with a ramp of {price.ramp:g} "
            f"on {price.tokens} tokens, not {share:g}"
        )
    return share * full, 0.0
