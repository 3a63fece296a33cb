"""What a score_mod computes, as options of attention.

A score_mod is a function of the score and the indices of a pair. It is recognised by its values: as a factor or a soft
cap of the score, plus a number that depends on the head and the distance, or else on the pair. The numbers are computed
with PyTorch in every call, so that tensors which the function captures get their gradients. Every call also compares
the function with what was recognised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from headspan.torch.flex.captured import captured, depends_on

ScoreMod = Callable[..., torch.Tensor]

# Scores at which a function is compared: small and large, of both signs, and no simple multiples of each other.
_SCORES = (0.0, 1.0, -1.0, 0.37, -2.9, 11.3, -47.0)
_FAR, _NEAR = 1e9, 1e-3
_SAMPLE = 4096  # pairs
_ALL = 2**18  # up to so many pairs, all of them are compared
_TOLERANCE = 1e-5  # captured numbers may be float32

_ADVICE = (
    "score_mod must be a factor or a soft cap of the score, plus a number that depends on the head and the distance or "
    "on the pair; "
)


class Pairs(NamedTuple):
    """Pairs by the indices of batch item, head, query and key; each is a tensor of int64, of shape (pairs,)."""

    item: torch.Tensor
    head: torch.Tensor
    query: torch.Tensor
    key: torch.Tensor


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call."""

    batch: int
    heads: int
    queries: int
    keys: int

    @property
    def shift(self) -> int:
        """What is added to a query's index, so that the last query is at the last key."""
        return self.keys - self.queries

    @property
    def count(self) -> int:
        """The number of pairs."""
        return self.batch * self.heads * self.queries * self.keys

    def pairs(self, rng: np.random.Generator) -> Pairs:
        """Return all pairs of a small call, and otherwise random ones."""
        shape = (self.batch, self.heads, self.queries, self.keys)
        flat = np.arange(self.count) if self.count <= _ALL else rng.integers(0, self.count, _SAMPLE)
        return Pairs(*(torch.from_numpy(index.astype(np.int64)) for index in np.unravel_index(flat, shape)))


class Form(NamedTuple):
    """How a function depends on the score: ``cap * tanh(factor * score / cap)``, or ``factor * score``."""

    factor: float
    cap: float | None

    def of(self, score: float) -> float:
        """Return the result for a score, without the number that is added."""
        return self.factor * score if self.cap is None else self.cap * math.tanh(self.factor * score / self.cap)


def options_of(score_mod: ScoreMod, sizes: Sizes, visible: Callable[[Pairs], torch.Tensor]) -> dict[str, Any]:
    """Return the options of attention that compute a score_mod.

    Parameters
    ----------
    score_mod : callable
    sizes : Sizes
    visible : callable
        Which of some pairs exist.

    Returns
    -------
    dict
        ``factor`` of the scale, ``softcap``, and ``distance_bias`` with ``distance_buckets``, or ``pair_bias``.

    Raises
    ------
    NotImplementedError
        If the function is none that is recognised.
    """
    rng = np.random.default_rng(0)
    pairs = sizes.pairs(rng)
    exists = visible(pairs)
    pairs = Pairs(*(index[exists] for index in pairs))
    if not len(pairs.item):
        return {}
    with torch.no_grad():
        results = torch.stack([evaluate(score_mod, score, pairs) for score in _SCORES])
        form = _form(score_mod, pairs, results)
    _refuse_gradient_of_form(score_mod, pairs)
    options: dict[str, Any] = {"factor": form.factor, "softcap": form.cap}
    at_zero = results[0]
    if bool((at_zero == 0).all()) and not _has_gradient(score_mod, pairs):
        return options
    return options | _added(score_mod, sizes, pairs, at_zero)


def evaluate(score_mod: ScoreMod, score: float, pairs: Pairs) -> torch.Tensor:
    """Return a score_mod of pairs that all have the same score."""
    scores = torch.full(pairs.item.shape, score, dtype=torch.float64)
    return torch.vmap(score_mod)(scores, *pairs).to(torch.float64)


def _form(score_mod: ScoreMod, pairs: Pairs, results: torch.Tensor) -> Form:
    """Return the form that all results have, or raise an error."""
    excluded = torch.isneginf(results)
    if bool((excluded != excluded[0]).any()):
        raise NotImplementedError(f"{_ADVICE}whether it is -inf must not depend on the score")
    if not bool((excluded | torch.isfinite(results)).all()):
        raise NotImplementedError(f"{_ADVICE}it must be finite or -inf")
    some = Pairs(*(index[~excluded[0]][:1] for index in pairs))
    if not len(some.item):
        return Form(1.0, None)
    zero, near, far = (float(evaluate(score_mod, score, some)) for score in (0.0, _NEAR, _FAR))
    slope, limit = (near - zero) / _NEAR, far - zero
    is_linear = abs(limit) > abs(slope) * _FAR / 2
    form = Form(limit / _FAR if is_linear else slope, None if is_linear else math.copysign(limit, 1.0))
    if not is_linear and form.cap:  # the slope of a cap is not exact between 0 and _NEAR
        form = Form(form.cap * math.atanh(max(min((near - zero) / form.cap, 0.999), -0.999)) / _NEAR, form.cap)
    form = Form(*(None if number is None else _rounded(number) for number in form))  # type: ignore[arg-type]
    finite = results[:, ~excluded[0]]
    for score, result in zip(_SCORES, finite, strict=True):
        expected = finite[0] + form.of(score)
        if not torch.allclose(result, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
            worst = int((result - expected).abs().argmax())
            raise NotImplementedError(
                f"{_ADVICE}for the score {score:g} it is {float(result[worst]):.6g}, and a function of this kind would "
                f"be {float(expected[worst]):.6g}"
            )
    return form


def _rounded(number: float) -> float:
    """Return the decimal number of six digits that is as near as the rounding of a difference."""
    short = float(f"{number:.6g}")
    return short if abs(number - short) <= 1e-7 * abs(short) else number


def _tensors(score_mod: ScoreMod) -> list[torch.Tensor]:
    return [tensor for tensor in captured(score_mod) if tensor.requires_grad]


def _has_gradient(score_mod: ScoreMod, pairs: Pairs) -> bool:
    """Whether the result has a gradient, which it can have even if it is 0."""
    return bool(evaluate(score_mod, 0.0, Pairs(*(index[:1] for index in pairs))).requires_grad)


def _refuse_gradient_of_form(score_mod: ScoreMod, pairs: Pairs) -> None:
    """Raise an error if the factor or the cap of the score has a gradient."""
    tensors = _tensors(score_mod)
    if not tensors or not torch.is_grad_enabled():
        return
    some = Pairs(*(index[:64] for index in pairs))
    scores = torch.tensor([1.3, -7.0], dtype=torch.float64)
    differences = [evaluate(score_mod, float(score), some) - evaluate(score_mod, 0.0, some) for score in scores]
    total = sum(torch.where(torch.isfinite(x), x, 0.0).sum() for x in differences)
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return
    gradients = torch.autograd.grad(total, tensors, allow_unused=True)
    if any(gradient is not None and bool((gradient.nan_to_num().abs() > 1e-6).any()) for gradient in gradients):
        raise NotImplementedError(
            f"{_ADVICE}a factor or a soft cap with a gradient is not; pass temperature to headspan.torch.attention"
        )


def _added(score_mod: ScoreMod, sizes: Sizes, pairs: Pairs, at_zero: torch.Tensor) -> dict[str, Any]:
    """Return the numbers that are added, by head and distance if they depend on nothing else."""
    by_offset = _by_offset(score_mod, sizes, pairs, at_zero)
    return {"pair_bias": _by_pair(score_mod, sizes)} if by_offset is None else by_offset


def _by_offset(score_mod: ScoreMod, sizes: Sizes, pairs: Pairs, at_zero: torch.Tensor) -> dict[str, Any] | None:
    """Return a table by head and offset key - query, or None if the sample contradicts it."""
    offsets = pairs.key - pairs.query - sizes.shift
    most = max(sizes.queries, sizes.keys)
    slots = pairs.head * (2 * most + 1) + offsets + most
    table = torch.full((sizes.heads * (2 * most + 1),), torch.nan, dtype=torch.float64)
    table[slots] = at_zero
    if not torch.allclose(table[slots], at_zero, rtol=_TOLERANCE, atol=_TOLERANCE):
        return None
    full, exist = _one_pair_for_each(sizes)
    with torch.no_grad():
        values = evaluate(score_mod, 0.0, full)
    known = ~torch.isnan(table)[exist]
    if not torch.allclose(values[known], table[exist][known], rtol=_TOLERANCE, atol=_TOLERANCE):
        return None
    finite = torch.isfinite(values)
    some = Pairs(*(index[finite] for index in full))
    flat = torch.zeros(len(table), dtype=torch.float64).index_put((exist[finite],), evaluate(score_mod, 0.0, some))
    excluded = torch.zeros(len(table), dtype=torch.bool).index_put((exist[~finite],), torch.tensor(True))
    return {
        "distance_bias": flat.reshape(sizes.heads, -1),
        "distance_buckets": np.arange(2 * most + 1),
        "excluded": excluded.reshape(sizes.heads, -1),
    }


def _one_pair_for_each(sizes: Sizes) -> tuple[Pairs, torch.Tensor]:
    """Return one pair for each head and offset, from the middle of its diagonal, and its place in a table."""
    most = max(sizes.queries, sizes.keys)
    offset = torch.arange(-(sizes.queries - 1) - sizes.shift, sizes.keys - sizes.shift)
    first = (-(offset + sizes.shift)).clamp(min=0)  # the first query with this offset
    last = torch.minimum(torch.tensor(sizes.queries - 1), sizes.keys - 1 - offset - sizes.shift)
    query = (first + last) // 2
    key = query + offset + sizes.shift
    head = torch.arange(sizes.heads).repeat_interleave(len(offset))
    place = head * (2 * most + 1) + offset.repeat(sizes.heads) + most
    repeated = (x.repeat(sizes.heads) for x in (query, key))
    return Pairs(torch.zeros_like(head), head, *repeated), place


def _by_pair(score_mod: ScoreMod, sizes: Sizes) -> torch.Tensor:
    """Return the numbers of all pairs, with one batch item or one head if the function does not tell them apart."""
    items = sizes.batch if depends_on(score_mod, 1, 5) else 1
    heads = sizes.heads if depends_on(score_mod, 2, 5) else 1
    shape = (items, heads, sizes.queries, sizes.keys)
    function: Any = score_mod
    for place in (4, 3, 2, 1):
        function = torch.vmap(function, in_dims=tuple(0 if i == place else None for i in range(5)))
    indices = [torch.arange(size) for size in shape]
    with torch.no_grad():
        values = function(torch.zeros((), dtype=torch.float64), *indices).to(torch.float64)
    finite = torch.isfinite(values)
    if not torch.is_grad_enabled() or not _tensors(score_mod):
        return values
    some = Pairs(*finite.nonzero(as_tuple=True))  # a derivative where the result is -inf may be NaN
    return values.masked_fill(finite, 0.0).index_put(some, evaluate(score_mod, 0.0, some), accumulate=False)
