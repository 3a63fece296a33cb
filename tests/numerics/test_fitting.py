"""Spans fitted to models whose needs are known: found, within the bound, never worse than one span for all heads."""

import headspan as hs
import numpy as np
import pytest
from headspan.fitting.search.price import Price
from headspan.patterns import Full, Global

TOKENS = 300


def sizes(layers, heads, **more):
    return {"tokens": TOKENS, "num_layers": layers, "num_heads": heads, "head_dim": 8, "ramp": 4, **more}


def price(layers=2, heads=4, key_heads=2, ramp=4.0, first_tokens=0, causal=True):
    return Price(TOKENS, layers, heads, key_heads, 8, ramp, first_tokens, np.float32, causal=causal)


class Planted:
    """A model whose heads need the given numbers of tokens; its loss grows with the number of missing tokens."""

    def __init__(self, needs, power=1.0, weights=1.0):
        self.needs, self.power, self.weights = np.asarray(needs, float), power, np.asarray(weights, float)
        self.seen = []

    def loss(self, spans):
        self.seen.append(spans.copy())
        return 2 + float((self.weights * self.missing(spans) ** self.power).sum())

    def gradient(self, spans, step):
        missing = self.missing(spans)
        slopes = -self.weights * self.power * missing ** (self.power - 1) / self.needs
        return float((self.weights * missing**self.power).sum()), np.where(missing > 0, slopes, 0)

    def missing(self, spans):
        return np.maximum(1 - spans / self.needs, 0)

    def fit(self, held_out=None, **options):
        return hs.fit_spans(self.loss, held_out or Planted(self.needs).loss, **sizes(*self.needs.shape) | options)


def drawn(seed, layers=2, heads=3):
    rng = np.random.default_rng(seed)
    return np.round(np.exp(rng.uniform(np.log(5), np.log(250), (layers, heads))))


def counted(spans, ramp=4.0, **options):
    spans = np.ravel(spans)
    return hs.cost(tokens=TOKENS, num_heads=spans.size, head_dim=8, span=spans, ramp=ramp, **options).pairs


@pytest.mark.parametrize("ramp", [0.0, 1.0, 2.5, 32.0])
@pytest.mark.parametrize("sinks", [0, 5, 400])
@pytest.mark.parametrize("causal", [True, False])
def test_pairs_are_those_that_cost_counts(ramp, sinks, causal):
    rng = np.random.default_rng(0)
    pricing = price(ramp=ramp, first_tokens=sinks, causal=causal)
    pattern = Full() | Global(range(min(sinks, TOKENS))) if sinks else None
    for spans in (pricing.full, 0 * pricing.full, rng.integers(0, TOKENS, (2, 2)), rng.uniform(0, TOKENS, (2, 2))):
        assert pricing.pairs(np.asarray(spans)) == counted(
            pricing.of_heads(spans), ramp, pattern=pattern, causal=causal
        )


@pytest.mark.parametrize("ramp", [1.0, 2.5, 32.0])
def test_scaled_spans_have_the_pairs_asked_for_and_rounded_down_no_more(ramp):
    pricing = price(ramp=ramp, first_tokens=3)
    spans = np.array([[3.0, 200.0], [0.0, 40.0]])
    for share in (0.3, 0.5, 0.9):
        pairs = share * pricing.pairs(pricing.full)
        scaled = pricing.scaled(spans, pairs)
        assert pricing.smooth(scaled)[0].sum() == pytest.approx(pairs, rel=1e-6)
        assert 0.97 * pairs < pricing.pairs(np.floor(scaled)) <= pairs
        inside = (scaled > 0) & (scaled < TOKENS - pricing.beyond - 1)
        assert np.ptp(((scaled + 1) / (spans + 1))[inside]) < 1e-9


def test_the_slope_of_pairs_is_that_of_finite_differences():
    pricing, spans = price(ramp=4.0, first_tokens=7), np.array([[3.25, 200.5], [0.5, 40.75]])
    more = (pricing.smooth(spans + 0.01)[0] - pricing.smooth(spans - 0.01)[0]) / 0.02
    np.testing.assert_allclose(pricing.smooth(spans)[1], more)


@pytest.mark.parametrize("seed", range(4))
def test_measured_steps_find_what_each_head_needs_within_a_rung(seed):
    needs = drawn(seed)
    fit = Planted(needs).fit(tolerance=1e-6)
    assert (fit.spans >= needs - 1).all()
    assert (fit.spans <= needs * 2**0.5 + 5).all()
    assert not fit.uniform_wins
    assert fit.fitted_after <= fit.fitted_before * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_descent_finds_what_each_head_needs(seed):
    planted = Planted(needs := drawn(seed), power=2.0)
    fit = planted.fit(tolerance=1e-4, method="learn", gradient=planted.gradient)
    assert (planted.missing(fit.spans) < 0.03).all()
    assert (fit.spans <= needs * 1.35 + 6).all()
    assert fit.fitted_after <= fit.fitted_before * (1 + 1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("steps", [20, 60, 150])
def test_learned_spans_that_exceed_the_tolerance_are_lengthened_and_not_given_up(seed, steps):
    planted = Planted(drawn(seed), power=2.0)
    fit = planted.fit(tolerance=1e-3, method="learn", gradient=planted.gradient, steps=steps)
    assert not fit.uniform_wins
    assert fit.share < 0.55
    assert fit.fitted_after <= fit.fitted_before * (1 + 1e-3)


@pytest.mark.parametrize("method", ["profile", "learn"])
def test_spans_are_learned_by_default_where_there_is_a_gradient(method):
    planted = Planted(drawn(0), power=2.0)
    gradient = planted.gradient if method == "learn" else None
    by_default = planted.fit(budget=0.3, gradient=gradient)
    assert np.array_equal(by_default.spans, planted.fit(budget=0.3, gradient=gradient, method=method).spans)


@pytest.mark.parametrize("method", ["profile", "learn"])
@pytest.mark.parametrize("budget", [0.08, 0.2, 0.6, 1.0])
def test_a_budget_is_kept_and_goes_to_the_heads_that_need_it(method, budget):
    planted = Planted([[200, 4, 4], [4, 30, 4]], power=2.0)
    fit = planted.fit(budget=budget, method=method, gradient=planted.gradient)
    assert fit.pairs == counted(fit.spans) <= budget * fit.full_pairs
    assert fit.fitted_after == planted.loss(fit.spans) <= planted.loss(np.full((2, 3), fit.uniform.span))
    if budget == 0.2:  # less than what the needs come to
        assert fit.fitted_after < 2.08
        assert planted.loss(np.full((2, 3), fit.uniform.span)) > 2.7


@pytest.mark.parametrize("method", ["profile", "learn"])
@pytest.mark.parametrize("bound", [{"tolerance": 1e-9}, {"budget": 0.21}])
def test_one_span_for_all_wins_where_all_heads_need_the_same(method, bound):
    planted = Planted(np.full((2, 3), 29))
    fit = planted.fit(method=method, gradient=planted.gradient, **bound)
    assert fit.uniform_wins
    assert (fit.spans == fit.uniform.span).all()
    assert fit.spans[0, 0] == 29 if "tolerance" in bound else fit.spans[0, 0] >= 29
    assert "one span for all heads did as well" in str(fit)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("method", ["profile", "learn"])
@pytest.mark.parametrize("bound", [{"tolerance": 0.01}, {"budget": 0.15}])
def test_never_worse_than_one_span_of_equal_pairs(seed, method, bound):
    """The loss is not monotonic: more pairs may be worse."""
    rng = np.random.default_rng(seed)
    waves, shifts = rng.uniform(0.01, 0.3, (2, 3)), rng.uniform(0, 6, (2, 3))

    def loss(spans):
        return 5 + float(np.cos(waves * spans + shifts).sum() / 10 + np.exp(-spans / 50).sum())

    def gradient(spans, step):
        slopes = -np.sin(waves * spans + shifts) * waves / 10 - np.exp(-spans / 50) / 50
        return loss(spans) - loss(np.full((2, 3), float(TOKENS))), slopes

    fit = hs.fit_spans(loss, loss, **sizes(2, 3), method=method, gradient=gradient, **bound)
    uniform = np.full((2, 3), fit.uniform.span)
    assert counted(uniform) <= fit.pairs
    assert counted(uniform + 1) > fit.pairs or (uniform >= TOKENS).all()
    if "budget" in bound or loss(uniform) <= 1.01 * fit.fitted_before:
        assert fit.fitted_after <= loss(uniform) == fit.uniform.fitted_loss


@pytest.mark.parametrize("method", ["profile", "learn"])
def test_heads_that_share_keys_share_a_span_as_long_as_the_neediest(method):
    planted = Planted([[100, 4, 4, 20], [4, 4, 50, 4]], power=2.0)
    fit = planted.fit(tolerance=1e-4, method=method, gradient=planted.gradient, num_key_heads=2)
    assert (fit.spans[:, 0] == fit.spans[:, 1]).all()
    assert (fit.spans[:, 2] == fit.spans[:, 3]).all()
    assert (planted.missing(fit.spans) < 0.03).all()
    assert fit.cache_bytes == sum(2 * 8 * 4 * (span + 4) for span in fit.spans[:, ::2].ravel())
    assert all((seen[:, 0] == seen[:, 1]).all() for seen in planted.seen)


def test_a_gradient_is_summed_over_heads_that_share_keys():
    """Two heads pull in opposite directions, which cancels: the need that remains decides."""
    pull = np.array([[1.0, -1.0, 1.0, 1.0]])

    def loss(spans):
        return 2 + float((np.exp(-spans / 20) * [1, 1, 0, 0]).sum())

    def gradient(spans, step):
        return loss(spans) - 2, pull * 1e-3 - np.exp(-spans / 20) / 20 * [1, 1, 0, 0]

    options = sizes(1, 4, num_key_heads=2) | {"budget": 0.3, "method": "learn", "gradient": gradient}
    fit = hs.fit_spans(loss, loss, **options)
    assert fit.spans[0, 0] > 3 * fit.spans[0, 2]


def test_held_out_data_is_evaluated_after_the_fit():
    held_out = Planted([[50, 9, 9], [9, 9, 9]])
    planted = Planted([[100, 4, 4], [4, 30, 4]])
    fit = planted.fit(held_out=held_out.loss, budget=0.2)
    before, after, uniform = held_out.seen
    assert (before == TOKENS).all()
    assert (after == fit.spans).all()
    assert (uniform == fit.uniform.span).all()
    assert (fit.loss_before, fit.loss_after) == (2.0, held_out.loss(fit.spans))
    assert fit.excess == fit.loss_after / 2 - 1
    assert f"{fit.excess:+.2%}" in str(fit)
    assert fit.evaluations == len(planted.seen)


def test_the_curve_is_what_was_measured_with_falling_pairs():
    planted = Planted([[100, 4, 4], [4, 30, 4]])
    fit = planted.fit(tolerance=0.01)
    rows = {(counted(spans), planted.loss(spans)) for spans in list(planted.seen)}
    for curve in (fit.curve, fit.uniform_curve):
        assert {(point.pairs, point.loss) for point in curve} <= rows
        assert (np.diff([point.pairs for point in curve]) < 0).all()
    assert (np.diff([point.loss for point in fit.curve]) > 0).all()
    assert fit.curve[0].loss <= fit.fitted_before
    full = fit.uniform_curve[0]
    assert full == (fit.full_pairs, fit.full_cache_bytes, fit.fitted_before)
    assert full.cache_bytes == 6 * TOKENS * 2 * 8 * 4


@pytest.mark.parametrize("shares", [{"num_key_heads": 2}, {"first_tokens": 10}, {"dtype": "float16"}])
@pytest.mark.parametrize("budget", [0.3, 12_000])
@pytest.mark.parametrize("method", ["profile", "learn"])
def test_a_budget_of_bytes_is_kept(method, budget, shares):
    planted = Planted([[200, 4, 4, 4], [4, 4, 60, 4]], power=2.0)
    options = {"method": method, "gradient": planted.gradient, "budget_of": "cache"} | shares
    fit = planted.fit(budget=budget, **options)
    bound = budget * fit.full_cache_bytes if budget < 1 else budget
    assert (0.9 if method == "learn" else 0.8) * bound < fit.cache_bytes <= bound
    pattern = Full() | Global(range(shares.get("first_tokens", 0))) if "first_tokens" in shares else None
    layer = {"tokens": TOKENS, "num_heads": 4, "head_dim": 8, "num_key_heads": shares.get("num_key_heads", 4)}
    layer |= {"decode": True, "dtype": shares.get("dtype", "float32"), "pattern": pattern, "ramp": 4}
    spans = np.where(fit.spans == TOKENS, np.inf, fit.spans)
    costs = [hs.cost(**layer, span=row) for row in spans]
    assert fit.cache_bytes == sum(cost.cache_bytes for cost in costs)
    assert fit.uniform.cache_bytes <= bound
    assert fit.fitted_after <= fit.uniform.fitted_loss


class Interrupted(Planted):
    """A planted model that is interrupted in one step."""

    at = 40

    def gradient(self, spans, step):
        if step == self.at:
            raise KeyboardInterrupt
        return super().gradient(spans, step)


@pytest.mark.parametrize("bound", [{"budget": 0.2}, {"tolerance": 0.01}])
def test_an_interrupted_fit_has_a_result_and_goes_on_to_the_same_bits(bound):
    needs = [[200, 4, 4], [4, 30, 4]]
    planted, interrupted = Planted(needs, power=2.0), Interrupted(needs, power=2.0)
    uninterrupted = planted.fit(gradient=planted.gradient, **bound)
    part = interrupted.fit(gradient=interrupted.gradient, **bound)
    assert (part.state.step, part.state.steps) == (40, 150)
    assert "stopped after 40 of 150 steps" in str(part)
    assert "stopped" not in str(uninterrupted)
    assert part.share <= 0.2 if "budget" in bound else part.fitted_after <= part.fitted_before * 1.01
    assert part.fitted_after <= part.uniform.fitted_loss
    resumed = planted.fit(gradient=planted.gradient, state=part.state, **bound)
    assert np.array_equal(resumed.spans, uninterrupted.spans)
    assert resumed.state.step == 150
    for one, other in zip(resumed.state, uninterrupted.state, strict=True):
        assert np.array_equal(one, other)


def test_an_interrupt_before_the_first_step_is_raised():
    interrupted = Interrupted([[100, 4], [4, 30]])
    interrupted.at = 0
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(gradient=interrupted.gradient, budget=0.3)


def test_steps_may_see_another_batch_each():
    """Each batch pulls at one head only."""
    needs = np.array([[150, 60, 3, 3], [20, 3, 3, 3]])
    planted, steps = Planted(needs, power=2.0), []

    def gradient(spans, step):
        steps.append(step)
        seen = np.arange(8).reshape(2, 4) % 4 == step % 4
        missing = np.where(seen, planted.missing(spans), 0)
        return 4 * float((missing**2).sum()), -8 * missing / needs

    fit = planted.fit(gradient=gradient, budget=0.3)
    assert steps == list(range(150))
    assert (planted.missing(fit.spans) < 0.2).all()
    assert fit.fitted_after < 2.05 < fit.uniform.fitted_loss


def test_sinks_are_counted():
    planted = Planted([[100, 4], [4, 30]])
    fit = planted.fit(tolerance=1e-6, first_tokens=10, ramp=1)
    assert fit.pairs == counted(fit.spans, 1, pattern=Full() | Global(range(10)))
    assert fit.cache_bytes == (fit.spans + 1 + 10).sum() * 2 * 8 * 4


def test_mass_says_where_to_begin_and_the_loss_decides():
    needs = np.array([[40, 4, 4, 4], [4, 4, 4, 4]])
    near = np.arange(TOKENS) < needs[..., None]
    honest, misled = Planted(needs), Planted(needs)
    without = Planted(needs).fit(tolerance=1e-6)
    fit = honest.fit(tolerance=1e-6, profile=near / near.sum(-1, keepdims=True))
    assert (fit.spans == without.spans).all()
    assert fit.evaluations < 0.75 * without.evaluations
    fit = misled.fit(tolerance=1e-6, profile=np.eye(1, TOKENS)[None].repeat(2, 0).repeat(4, 1))  # all on themselves
    assert (fit.spans == without.spans).all()


def test_a_tolerance_that_nothing_meets_leaves_full_attention():
    fit = Planted(np.full((1, 2), 10 * TOKENS)).fit(tolerance=1e-9)
    assert fit.share == 1
    assert (fit.spans == TOKENS).all()
    assert fit.excess == 0


def wrong(error, match, loss=None, **options):
    planted = Planted(np.full((1, 2), 9))
    with pytest.raises(error, match=match):
        hs.fit_spans(loss or planted.loss, planted.loss, **sizes(1, 2) | {"budget": 0.5} | options)


def test_impossible_requests_are_refused():
    wrong(ValueError, "exactly one of budget and tolerance must be given, got both", tolerance=0.1)
    wrong(ValueError, "exactly one of budget and tolerance must be given, got neither", budget=None)
    wrong(ValueError, "budget must be at least 0.0264, which spans of 0 have with a ramp of 4", budget=0.02)
    wrong(ValueError, "budget must be a share of at most 1, or at most the 90300 pairs of full attention", budget=1e6)
    wrong(ValueError, "budget must be at least 2388, which spans of 0 have with a ramp of 4 on 300 .*, not 2", budget=2)
    wrong(ValueError, "budget_of must be 'pairs' or 'cache', not 'bytes'", budget_of="bytes")
    wrong(ValueError, "steps must be at least 4, not 3", steps=3)
    wrong(ValueError, "state is for method='learn' only", state=3)
    wrong(TypeError, "progress must be True or False, not 'no'", progress="no")
    wrong(ValueError, "gradient must be given for method='learn'", method="learn")
    wrong(ValueError, "ramp must be at least 1 for method='learn', not 0", method="learn", gradient=len, ramp=0)
    wrong(ValueError, "num_heads must be a multiple of num_key_heads, not 2 and 3", num_key_heads=3)
    wrong(ValueError, r"profile must be of shape \(layers, heads, tokens\), \(1, 2, 300\)", profile=np.ones((1, 2)))
    wrong(ValueError, "what loss returns must be finite, not nan", loss=lambda _: float("nan"))
    wrong(ValueError, "what loss returns must be a loss greater than 0, not -1", loss=lambda _: -1)
    wrong(TypeError, "what loss returns must be a number, not None", loss=lambda _: None)
    learn = {"method": "learn"}
    wrong(TypeError, "gradient must return the increase of the loss and an .*, not 3", gradient=lambda *_: 3, **learn)
    wrong(ValueError, "must return an array of the shape of spans", gradient=lambda *_: (1.0, [1.0]), **learn)
    wrong(ValueError, "must be finite, got nan", gradient=lambda z, _: (1.0, z * np.nan), **learn)
    wrong(TypeError, "state must be the state of a SpanFit, not 3", gradient=len, state=3, **learn)
    fit = Planted(np.full((1, 2), 9)).fit(budget=0.5, gradient=lambda z, _: (1.0, z), steps=8)
    wrong(ValueError, "state must be of a fit of 150 steps, not of 8", gradient=len, state=fit.state, **learn)
    match = r"state must have spans of shape \(layers, key heads\), \(2, 1\), not \(1, 2\)"
    wrong(ValueError, match, gradient=len, state=fit.state, steps=8, num_layers=2, num_key_heads=1, **learn)
