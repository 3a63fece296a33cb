"""Checks of what a score_mod depends on, by its values and its gradients."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from headspan.patterns.mask import Mask
from headspan.torch.flex.pairs import Block, Pairs, ScoreMod, Sizes, evaluate, one_for_each_offset

# Scores at which a function is compared: small and large, of both signs, and no simple multiples of each other.
_SCORES = (0.0, 1.0, -1.0, 0.37, -2.9, 11.3, -47.0)
_FAR, _NEAR = 1e9, 1e-3
_TOLERANCE = 1e-5  # captured numbers may be float32
_ADVICE = (
    "score_mod must be a factor or a soft cap of the score, plus a number that depends on the head and the distance or "
    "on the pair; "
)


class Form(NamedTuple):
    """How a function depends on the score: ``cap * tanh(factor * score / cap)``, or ``factor * score``."""

    factor: float
    cap: float | None

    def of(self, score: torch.Tensor) -> torch.Tensor:
        """Return the results for scores, without the numbers that are added."""
        product = self.factor * score
        return product if self.cap is None else self.cap * torch.tanh(product / self.cap)


@torch.no_grad()
def form_of(score_mod: ScoreMod, sample: Pairs) -> Form:
    """Return the form that a function has on a sample, or raise `NotImplementedError`."""
    results = torch.stack([evaluate(score_mod, score, sample) for score in _SCORES])
    some = Pairs(*(index[~torch.isneginf(results[0])][:1] for index in sample))
    form = _form_of_one(score_mod, some) if len(some.item) else Form(1.0, None)
    for score, result in zip(_SCORES, results, strict=True):
        compare(form, torch.full_like(result, score), results[0], result)
    return form


def _form_of_one(score_mod: ScoreMod, pair: Pairs) -> Form:
    zero, near, far = (float(evaluate(score_mod, score, pair)) for score in (0.0, _NEAR, _FAR))
    if not all(map(math.isfinite, (zero, near, far))):
        raise NotImplementedError(f"{_ADVICE}it must be finite or -inf")
    slope, limit = (near - zero) / _NEAR, far - zero
    if limit == 0 or abs(limit) > abs(slope) * _FAR / 2:
        return Form(_rounded(limit / _FAR), None)
    cap = _rounded(abs(limit))  # it bends between 0 and _NEAR, so that the slope is not exact
    return Form(_rounded(cap * math.atanh(max(min((near - zero) / cap, 0.999), -0.999)) / _NEAR), cap)


def compare(
    form: Form, scores: torch.Tensor, at_zero: torch.Tensor, results: torch.Tensor, exist: torch.Tensor | None = None
) -> None:
    """Raise `NotImplementedError` unless the results for scores are those of a form, plus the results for 0."""
    wrong = ~are_close(results, at_zero + form.of(scores))
    if exist is not None:
        wrong &= exist
    if bool(wrong.any()):
        scores, at_zero, results = scores[wrong], at_zero[wrong], results[wrong]
        if bool((torch.isneginf(results) != torch.isneginf(at_zero)).any()):
            raise NotImplementedError(f"{_ADVICE}whether it is -inf must not depend on the score")
        if not bool(torch.isfinite(results).all()):
            raise NotImplementedError(f"{_ADVICE}it must be finite or -inf")
        expected = at_zero + form.of(scores)
        worst = int((results - expected).abs().argmax())
        raise NotImplementedError(
            f"{_ADVICE}for the score {float(scores[worst]):.4g} it is {float(results[worst]):.6g}, and a function of "
            f"this kind would be {float(expected[worst]):.6g}"
        )


def are_close(results: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return which results are equal up to rounding: finite ones, or -inf."""
    close = (results - expected).abs() <= _TOLERANCE + _TOLERANCE * expected.abs()
    is_finite = torch.isfinite(results) & torch.isfinite(expected)
    return close & is_finite | torch.isneginf(results) & torch.isneginf(expected)


def _rounded(number: float) -> float:
    """Return the decimal number of six digits that is as near as the rounding of a difference."""
    short = float(f"{number:.6g}")
    return short if abs(number - short) <= 1e-7 * abs(short) else number


def has_gradient(score_mod: ScoreMod, sample: Pairs) -> bool:
    """Whether the result has a gradient."""
    return bool(evaluate(score_mod, 0.0, Pairs(*(index[:1] for index in sample))).requires_grad)


def parameters_of(result: torch.Tensor) -> list[torch.Tensor]:
    """Return the leaf tensors from which a result was computed and that have a gradient."""
    parameters: dict[int, torch.Tensor] = {}
    nodes, seen = [result.grad_fn], set()
    while nodes:
        node: Any = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            parameters[id(node.variable)] = node.variable
        nodes += [following for following, _ in node.next_functions]
    return list(parameters.values())


def refuse_gradient_of_form(score_mod: ScoreMod, sample: Pairs) -> None:
    """Raise `NotImplementedError` if the factor or the cap of the score has a gradient."""
    if not has_gradient(score_mod, sample):
        return
    with torch.no_grad():
        finite = torch.isfinite(evaluate(score_mod, 0.0, sample))
    some = Pairs(*(index[finite][:64] for index in sample))
    at_zero = evaluate(score_mod, 0.0, some)
    total = torch.stack([evaluate(score_mod, score, some) - at_zero for score in (1.3, -7.0)]).sum()
    parameters = parameters_of(total)
    for one, other in zip(_gradients(total, parameters), _gradients(at_zero.sum(), parameters), strict=True):
        rounding = 1e-5 * (1 + float(other.abs().max()))
        if float(one.abs().max()) > rounding:
            raise NotImplementedError(
                f"{_ADVICE}a factor or a soft cap with a gradient is not; pass temperature to headspan.torch.attention"
            )


def _gradients(total: torch.Tensor, parameters: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    gradients: tuple[torch.Tensor, ...] = torch.autograd.grad(
        total, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return gradients


def kind_of(score_mod: ScoreMod, sizes: Sizes, pattern: Mask | None, form: Form) -> str:
    """Return what the added number depends on: "none" if it is 0, "offset" for head and offset, or "pair".

    All pairs that exist are compared. The gradients are compared as well, for random weights of the pairs, because
    numbers that are equal by chance, such as a table of zeros, may belong to different parameters.
    """
    generator = torch.Generator().manual_seed(0)
    representatives, places = one_for_each_offset(sizes)
    with torch.no_grad():
        of_offset = torch.full((sizes.heads * (2 * sizes.most + 1),), torch.nan, dtype=torch.float64)
        of_offset[places] = evaluate(score_mod, 0.0, representatives)
    with_gradient = has_gradient(score_mod, representatives)
    is_zero, is_by_offset = not with_gradient, True
    gradients, weights = _Gradients(), torch.zeros_like(of_offset)
    for block in sizes.blocks(pattern):
        exist, slots, scores = block.exist, sizes.slots(block), _scores(block, generator)
        with torch.no_grad():
            results, expected = block.evaluate(score_mod, scores), of_offset[slots]
            if is_by_offset and bool((are_close(results, form.of(scores) + expected) | ~exist).all()):
                added = expected
            else:  # a second evaluation tells the added numbers from the score
                added = block.evaluate(score_mod, torch.zeros((), dtype=torch.float64))
                compare(form, scores, added, results, exist)
                is_by_offset = False
        is_zero = is_zero and not bool(((added != 0) & exist).any())
        if with_gradient and is_by_offset:
            some = exist & torch.isfinite(added)
            weight = torch.randn(exist.shape, generator=generator, dtype=torch.float64) * some
            weights.index_add_(0, slots[some], weight[some])
            gradients.add(1.0, _weighted(score_mod, block, some, weight))
    if is_zero:
        return "none"
    if not is_by_offset:
        return "pair"
    if with_gradient:
        used = weights[places] != 0
        some = Pairs(*(index[used] for index in representatives))
        gradients.add(-1.0, evaluate(score_mod, 0.0, some) @ weights[places[used]])
        if not gradients.vanish:
            return "pair"
    return "offset"


def _scores(block: Block, generator: torch.Generator) -> torch.Tensor:
    """Return scores that differ for all pairs of a block."""
    of_query, of_key = (
        5 * torch.randn(len(index), generator=generator, dtype=torch.float64) for index in (block.query, block.key)
    )
    return of_query[:, None] + of_key


def _weighted(score_mod: ScoreMod, block: Block, some: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the weighted sum of a function for the score 0 over some pairs of a block."""
    added = block.evaluate(score_mod, torch.zeros((), dtype=torch.float64))
    if bool(torch.isfinite(added.detach()).all()):
        return (added * weight).sum()
    return evaluate(score_mod, 0.0, block.pairs(some)) @ weight[some]  # a derivative may be NaN where others are -inf


class _Gradients:
    """A sum of gradients with respect to all parameters, and of their absolute values."""

    def __init__(self) -> None:
        self.sums: dict[int, torch.Tensor] = {}
        self.sizes: dict[int, float] = {}

    def add(self, factor: float, total: torch.Tensor) -> None:
        """Add the gradient of a total."""
        parameters = parameters_of(total)
        for parameter, gradient in zip(parameters, _gradients(total, parameters), strict=True):
            number = id(parameter)
            self.sums[number] = self.sums.get(number, 0.0) + factor * gradient.double()
            self.sizes[number] = self.sizes.get(number, 0.0) + float(gradient.abs().max())

    @property
    def vanish(self) -> bool:
        """Whether the sums are 0, up to rounding."""
        return all(float(total.abs().max()) <= 1e-4 * self.sizes[number] for number, total in self.sums.items())
