"""Find the smallest spans for a trained model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.fitting.checked import checked_budget, checked_price, checked_profile, checked_state
from headspan.fitting.result import SpanFit, Window
from headspan.fitting.search.descent import DescentState, descend
from headspan.fitting.search.greedy import by_steps
from headspan.fitting.search.measured import Aim, Measured, checked_loss, is_uniform
from headspan.fitting.search.price import Price, Spans, Unit
from headspan.fitting.search.progress import Progress
from headspan.fitting.search.windows import measure, one_span


def fit_spans(
    loss: Callable[[Any], float],
    held_out: Callable[[Any], float],
    *,
    tokens: int,
    num_layers: int,
    num_heads: int,
    head_dim: int,
    num_key_heads: int | None = None,
    budget: float | None = None,
    budget_of: Unit = "pairs",
    tolerance: float | None = None,
    ramp: float = 32,
    method: Literal["profile", "learn"] | None = None,
    profile: npt.ArrayLike | None = None,
    gradient: Callable[[Any, int], tuple[float, Any]] | None = None,
    steps: int = 150,
    state: DescentState | None = None,
    first_tokens: int = 0,
    causal: bool = True,
    dtype: object = np.float32,
    progress: bool = True,
) -> SpanFit:
    """Find the smallest spans for a trained model, using its measured loss.

    The model is a function that takes spans and returns the loss of the model with these spans. Heads that need little
    context get a short span, so that the other heads can keep a long one. The function also measures one span for all
    heads. On the data of `loss`, the result is never worse than such a span with the same number of pairs.
    Attention is causal by default; with ``causal=False`` a head reaches as far ahead as back.

    Parameters
    ----------
    loss, held_out : callable
        ``loss(spans)`` returns the mean loss of the model with spans of shape (layers, heads), float64, on the data to
        which the spans are fitted. `held_out` does the same on data that the fit does not use. A span of `tokens` means
        full attention. Losses must be greater than 0, and equal for equal spans.
    tokens, num_layers, num_heads, head_dim : int
        The length of the texts and the sizes of the model.
    num_key_heads : int, optional
        The number of key heads of a layer, by default `num_heads`. Heads that share keys get the same span, since a
        cache keeps the keys for all of them.
    budget : float
        The maximum number of pairs: up to 1 as a share of the pairs of full attention, above 1 as their number. Pass
        either `budget` or `tolerance`.
    budget_of : {"pairs", "cache"}
        What is counted: the pairs of a text, or the bytes of the caches of all layers at its last token.
    tolerance : float
        The maximum increase of the loss, as a share of the loss of full attention. 0.01 is 1 %.
    ramp : float
        The ramp of the soft mask in tokens, see `attention`. Every head reaches this far beyond its span, so a short
        ramp saves more pairs. "learn" needs a ramp of at least 1 and works better with 8.
    method : {"profile", "learn"}, optional
        "profile" shortens one head at a time down a ladder of spans, by the step with the least loss for each pair
        saved. "learn" descends in the logarithm of the spans with frozen weights and calls `gradient` in every step.
        Default: "learn" with a `gradient` and without a `profile`, otherwise "profile".
    profile : array_like, shape (layers, heads, tokens), optional
        The attention mass by distance, as from `headspan.plot.mean_by_distance`. With it, "profile" starts at spans
        beyond which there is almost no mass, if the measured loss confirms them, and not at full attention. The mass is
        not used in any other way, since it does not show how much a head needs a distance.
    gradient : callable
        For "learn", ``gradient(spans, step)`` returns the increase of the loss over full attention on one batch, and
        its gradient with respect to `spans`, of their shape. The batch may be another in each step, or all data.
    steps : int
        The number of steps of "learn", at least 4.
    state : DescentState, optional
        The ``state`` of a result that was interrupted, to go on from it with the same arguments. The result is the same
        to the bit as without the interruption.
    first_tokens : int
        The number of first tokens that are seen at any distance. Their pairs are counted, and `loss` has to apply them.
        Without causality, the first tokens also see all others.
    causal : bool
        Whether the attention of the model is causal. Otherwise the pairs on both sides are counted.
    dtype : dtype or str
        The type in which a cache stores keys and values, see `SpanCache`.
    progress : bool
        Whether to show a progress bar. It needs tqdm, and is shown in a terminal or a notebook only.

    Returns
    -------
    SpanFit
        The spans, their pairs and losses, and the curve of measured spans. `headspan.plot.span_fit` draws it.

    Raises
    ------
    ValueError
        If the ramp alone exceeds the budget, or if a loss is not finite.

    See Also
    --------
    SpanFit : The result of `fit_spans`.
    headspan.plot.span_fit : Draws the result.
    headspan.torch.fit_spans : The same for PyTorch models, in which it sets the spans.
    cost : The pairs and the operations of an attention.

    Notes
    -----
    The tolerance holds on the data of `loss`. The loss on held-out data may grow a little more. `SpanFit.excess` is the
    increase on held-out data.

    An interrupt (Ctrl-C) during the steps of "learn" ends them: the result is the best so far, within the budget or the
    tolerance, and its ``state`` has the steps that are done.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, section 2.2, with the weights frozen.

    Examples
    --------
    In this model one head needs 100 tokens, one 30 and two need 3. The nearest rungs of the ladder are 90 and 128.

    >>> import numpy as np
    >>> import headspan as hs
    >>> needs = np.array([[100, 3], [30, 3]])
    >>> def loss(spans):
    ...     return 2 + np.maximum(1 - spans / needs, 0).sum()
    >>> sizes = {"tokens": 256, "num_layers": 2, "num_heads": 2, "head_dim": 16}
    >>> fit = hs.fit_spans(loss, loss, **sizes, tolerance=0.001, ramp=1)
    >>> fit.spans
    array([[128.,   3.],
           [ 32.,   3.]])
    >>> f"{fit.share:.0%} of the pairs: {fit.excess:+.0%}; one span of {fit.uniform.span:g}: {fit.uniform_excess:+.0%}"
    '26% of the pairs: +0%; one span of 35: +32%'
    """
    price = checked_price(
        tokens=tokens,
        num_layers=num_layers,
        num_heads=num_heads,
        head_dim=head_dim,
        num_key_heads=num_heads if num_key_heads is None else num_key_heads,
        ramp=ramp,
        first_tokens=first_tokens,
        dtype=dtype,
        unit=budget_of,
        causal=causal,
    )
    for name, function in {"loss": loss, "held_out": held_out, "gradient": gradient}.items():
        if not callable(function) and (name != "gradient" or function is not None):
            raise TypeError(f"{name} must be a function of spans, not {_check.describe(function)}")
    if method is None:
        method = "learn" if gradient is not None and profile is None else "profile"
    if method not in ("profile", "learn"):
        raise ValueError(f"method must be 'profile' or 'learn', not {_check.describe(method)}")
    if method == "learn" and gradient is None:
        raise ValueError("gradient must be given for method='learn'")
    if method == "profile" and state is not None:
        raise ValueError("state is for method='learn' only")
    if method == "learn" and price.ramp < 1:
        raise ValueError(
            f"ramp must be at least 1 for method='learn', not {price.ramp:g}: spans have no gradient otherwise"
        )
    mass = None if profile is None else checked_profile(profile, price)
    steps = _check.integer("steps", steps, at_least=4)
    state = checked_state(state, steps, price)
    amount = checked_budget(budget, tolerance, price)
    limit = None if tolerance is None else _check.positive("tolerance", tolerance)
    shown = _check.flag("progress", progress)

    learns = method == "learn"
    with Progress(shown, steps if learns else None, begun=state.step if state is not None else 0) as bar:
        measured = Measured(price, loss, bar)
        before = measured(price.full)
        aim = Aim(loss=before * (1 + limit)) if limit is not None else Aim(amount=amount or 0.0)
        learned = None
        if learns:
            assert gradient is not None
            increase = None if limit is None else limit * before
            state = descend(price, gradient, bar, steps=steps, state=state, amount=amount, increase=increase)
            for learned in state.candidates(price):
                measured(learned)
        measure(measured, aim)
        if not learns:
            by_steps(measured, aim, mass)
        if learned is not None and not aim.has_budget:
            _lengthen(measured, aim, learned)
        _settle(measured, aim)
        measured(one_span(price, measured.best(aim)))
        best = measured.best(aim)
        window = one_span(price, best)
        return SpanFit(
            spans=price.of_heads(best),
            ramp=price.ramp,
            tokens=price.tokens,
            first_tokens=price.first_tokens,
            num_key_heads=price.key_heads,
            loss_before=_held_out(held_out, price, price.full),
            loss_after=_held_out(held_out, price, best),
            fitted_before=before,
            fitted_after=measured(best),
            pairs=price.pairs(best),
            full_pairs=price.pairs(price.full),
            cache_bytes=price.cache_bytes(best),
            full_cache_bytes=price.cache_bytes(price.full),
            curve=measured.points(),
            uniform_curve=measured.points(uniform=True),
            uniform=Window(
                float(window.flat[0]),
                price.pairs(window),
                price.cache_bytes(window),
                measured(window),
                _held_out(held_out, price, window),
            ),
            uniform_wins=is_uniform(best),
            evaluations=measured.evaluations,
            state=state if learns else None,
            is_causal=price.causal,
        )


def _lengthen(measured: Measured, aim: Aim, spans: Spans) -> None:
    """Scale learned spans that exceed the tolerance by one factor, up to the amount of the best, until they keep it."""
    price = measured.price
    low, high = price.amount(spans), price.amount(measured.best(aim))
    for _ in range(5 if measured(spans) > aim.loss and low < high else 0):
        middle = (low + high) // 2
        low, high = (low, middle) if measured(price.scaled(spans, middle)) <= aim.loss else (middle, high)


def _settle(measured: Measured, aim: Aim) -> None:
    """Scale the best spans by one factor, and measure again, to use up the budget or the tolerance."""
    price = measured.price
    best = measured.best(aim)
    if aim.has_budget:
        measured(price.scaled(best, aim.amount))
        return
    low, high = 0.5, 1.0
    for _ in range(5):
        middle = (low + high) / 2
        scaled = price.scaled(best, middle * price.amount(best))
        low, high = (low, middle) if measured(scaled) <= aim.loss else (middle, high)


def _held_out(held_out: Callable[[Any], float], price: Price, spans: Spans) -> float:
    return checked_loss("held_out", held_out(price.of_heads(spans)))
