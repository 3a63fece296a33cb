"""What a score_mod computes, as options of attention.

A score_mod is a function of the score and the indices of a pair. It is recognised by its values: as a factor or a soft
cap of the score, plus a number that depends on the head and the distance, or else on the pair. The numbers are computed
with PyTorch in every call, so that tensors which the function captures get their gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from headspan.patterns.mask import Mask
from headspan.torch.flex.captured import depends_on, signature
from headspan.torch.flex.checks import Form, are_close, form_of, has_gradient, kind_of, refuse_gradient_of_form
from headspan.torch.flex.pairs import Pairs, ScoreMod, Sizes, evaluate, one_for_each_offset

_MOST_KNOWN = 64
_known: dict[Any, str] = {}  # the kinds of functions by their signatures


def options_of(score_mod: ScoreMod, sizes: Sizes, pattern: Mask | None) -> dict[str, Any]:
    """Return the options of attention that compute a score_mod.

    Parameters
    ----------
    score_mod : callable
    sizes : Sizes
    pattern : Mask or None
        The pairs that exist; None for all.

    Returns
    -------
    dict
        ``factor`` of the scale, ``softcap``, and ``distance_bias`` with ``distance_buckets`` and the offsets that are
        ``excluded``, or ``pair_bias``.

    Raises
    ------
    NotImplementedError
        If the function is none that is recognised.
    """
    if not depends_on(score_mod, 1, 5):
        sizes = sizes._replace(batch=1)
    if not depends_on(score_mod, 2, 5):
        sizes = sizes._replace(heads=1)
    sample = sizes.sample(pattern)
    if not len(sample.item):
        return {}
    form = form_of(score_mod, sample)
    refuse_gradient_of_form(score_mod, sample)
    kind = _kind(score_mod, sizes, pattern, sample, form)
    options: dict[str, Any] = {"factor": form.factor, "softcap": form.cap}
    if kind == "offset":
        options |= _by_offset(score_mod, sizes)
    elif kind == "pair":
        options["pair_bias"] = _by_pair(score_mod, sizes)
    return options


def _kind(score_mod: ScoreMod, sizes: Sizes, pattern: Mask | None, sample: Pairs, form: Form) -> str:
    """Return the kind of a function, from an earlier call unless the sample contradicts it."""
    key = (signature(score_mod), sizes, pattern, has_gradient(score_mod, sample))
    kind = _known.get(key)
    if kind is None or not _agrees(kind, score_mod, sizes, sample):
        kind = kind_of(score_mod, sizes, pattern, form)
        while len(_known) >= _MOST_KNOWN:
            _known.pop(next(iter(_known)))
        _known[key] = kind
    return kind


def _agrees(kind: str, score_mod: ScoreMod, sizes: Sizes, sample: Pairs) -> bool:
    """Whether the numbers of a sample are of a kind."""
    if kind == "pair":
        return True
    with torch.no_grad():
        added = evaluate(score_mod, 0.0, sample)
        if kind == "none":
            return bool((added == 0).all())
        expected = evaluate(score_mod, 0.0, sizes.representatives(sample))
        return bool(are_close(added, expected).all())


def _by_offset(score_mod: ScoreMod, sizes: Sizes) -> dict[str, Any]:
    """Return a table by head and offset key - query."""
    pairs, places = one_for_each_offset(sizes)
    with torch.no_grad():
        finite = torch.isfinite(evaluate(score_mod, 0.0, pairs))
    some = Pairs(*(index[finite] for index in pairs))
    table = torch.zeros(sizes.heads, 2 * sizes.most + 1, dtype=torch.float64)
    flat = table.ravel().index_put((places[finite],), evaluate(score_mod, 0.0, some))
    excluded = torch.zeros(table.shape, dtype=torch.bool)
    excluded.view(-1)[places[~finite]] = True
    return {
        "distance_bias": flat.reshape(table.shape) if sizes.heads > 1 else flat,
        "distance_buckets": np.arange(2 * sizes.most + 1),
        "excluded": excluded,
    }


def _by_pair(score_mod: ScoreMod, sizes: Sizes) -> torch.Tensor:
    """Return the numbers of all pairs."""
    function: Any = score_mod
    for place in (4, 3, 2, 1):
        function = torch.vmap(function, in_dims=tuple(0 if i == place else None for i in range(5)))
    indices = [torch.arange(size) for size in sizes]
    with torch.no_grad():
        values = function(torch.zeros((), dtype=torch.float64), *indices).to(torch.float64)
    if not has_gradient(score_mod, Pairs(*(index[:1] for index in indices))):
        return values
    finite = torch.isfinite(values)
    some = Pairs(*finite.nonzero(as_tuple=True))  # a derivative where the result is -inf may be NaN
    return values.masked_fill(finite, 0.0).index_put(some, evaluate(score_mod, 0.0, some))
