"""The definition in dense float64 NumPy: what `headspan.attention` computes, for reading, teaching and checking."""

from typing import Any

import numpy as np
import numpy.typing as npt


def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    span: npt.ArrayLike | None = None,
    ramp: float = 32,
    causal: bool = True,
    include_self: bool = True,
    scale: float | None = None,
    temperature: npt.ArrayLike | None = None,
    alibi_slopes: npt.ArrayLike | None = None,
    return_lse: bool = False,
) -> Any:
    """Attention by its definition, in memory of the square of the tokens.

    The arguments and the results are those of `headspan.attention`; everything is computed in float64 and nothing is
    checked.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 100, 16))
    >>> bool(np.allclose(hs.reference.attention(q, k, v, span=9), hs.attention(q, k, v, span=9)))
    True
    """
    q, k, v = (np.asarray(a, np.float64) for a in (query, key, value))
    if q.ndim > 2:  # heads that share a key head
        k, v = (np.repeat(a, q.shape[-3] // a.shape[-3], axis=-3) for a in (k, v))
    z, t, slope = (
        _per_query(a, q.ndim)
        for a in (
            np.inf if span is None else span,
            1.0 if temperature is None else temperature,
            0.0 if alibi_slopes is None else alibi_slopes,
        )
    )

    x = (np.arange(q.shape[-2]) + k.shape[-2] - q.shape[-2])[:, None] - np.arange(k.shape[-2])
    allowed = ((x >= 0) | (not causal)) & ((x != 0) | include_self)
    x = np.abs(x)
    m = np.clip((ramp + z - x) / ramp, 0, 1) if ramp else np.where(x <= z, 1.0, 0.0)
    m = np.where(allowed, m, 0.0)
    s = (q.shape[-1] ** -0.5 if scale is None else scale) / t * (q @ np.swapaxes(k, -1, -2)) - slope * x
    top = np.max(s, axis=-1, keepdims=True, initial=-1e300, where=m > 0)
    e = m * np.exp(np.where(m > 0, s - top, -np.inf))
    total = e.sum(axis=-1, keepdims=True)
    out = e / np.where(total == 0, 1, total) @ v
    if not return_lse:
        return out
    with np.errstate(divide="ignore"):
        return out, (top + np.log(total))[..., 0]


def _per_query(a: npt.ArrayLike, ndim: int) -> npt.NDArray[np.float64]:
    """Bring a parameter of one of its forms against (batch, heads, tokens, keys)."""
    a = np.asarray(a, np.float64)
    per_token = a.ndim == max(ndim - 1, 1)
    return a[..., None] if per_token else a[..., None, None]
