"""What an attention costs, counted and not measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from headspan.patterns import count
from headspan.patterns.base import Pattern
from headspan.patterns.count import Cost
from headspan.patterns.per_head import per_head

__all__ = ["Cost", "cost"]


def cost(
    *,
    tokens: int,
    heads: int,
    head_dim: int,
    key_tokens: int | None = None,
    batch: int = 1,
    span: npt.ArrayLike | None = None,
    ramp: float = 32,
    causal: bool = True,
    pattern: Pattern | Sequence[Pattern] | None = None,
) -> Cost:
    """Count the pairs and the floating-point operations of an attention.

    Parameters
    ----------
    tokens, heads, head_dim, batch : int
        Sizes of the query.
    key_tokens : int, optional
        As many as tokens unless given.
    span, ramp, causal, pattern
        As for `attention`.

    Returns
    -------
    Cost

    Raises
    ------
    ValueError
        For a wrong shape or value.
    TypeError
        For a wrong type.

    Examples
    --------
    >>> import headspan as hs
    >>> full = hs.cost(tokens=1000, heads=2, head_dim=64)
    >>> short = hs.cost(tokens=1000, heads=2, head_dim=64, span=[10, 100])
    >>> full.pairs, short.pairs, short.head_pairs
    (1001000, 164493, array([ 41139, 123354]))
    """
    return count.cost(
        lambda *its: [part.core for part in per_head(pattern, *its)],
        tokens=tokens,
        heads=heads,
        head_dim=head_dim,
        key_tokens=key_tokens,
        batch=batch,
        span=span,
        ramp=ramp,
        causal=causal,
    )
