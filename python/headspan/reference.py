"""The definition in dense float64 NumPy: what `headspan.attention` computes, for reading, teaching and checking."""

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
) -> npt.NDArray[np.float64]:
    """Attention by its definition, in memory of the square of the tokens.

    Parameters are those of `headspan.attention`, for arrays (batch, heads, tokens, head_dim) with equally many heads.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 100, 16))
    >>> bool(np.allclose(hs.reference.attention(q, k, v, span=9), hs.attention(q, k, v, span=9)))
    True
    """
    q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
    tokens, keys = q.shape[-2], k.shape[-2]
    z, t, slope = _per_head(span, np.inf), _per_head(temperature, 1), _per_head(alibi_slopes, 0)

    x = (np.arange(tokens) + keys - tokens)[:, None] - np.arange(keys)
    allowed = (x >= 0 if causal else True) & (x != 0 if not include_self else True)
    x = np.abs(x)
    m = np.clip((ramp + z - x) / ramp, 0, 1) if ramp else np.where(x <= z, 1.0, 0.0)
    m = np.where(allowed, m, 0)
    s = (q.shape[-1] ** -0.5 if scale is None else scale) / t * (q @ np.swapaxes(k, -1, -2)) - slope * x
    s = np.where(m > 0, s, -np.inf)
    e = m * np.exp(s - np.maximum(s.max(axis=-1, keepdims=True), -1e300))
    w = e / np.maximum(e.sum(axis=-1, keepdims=True), 1e-300)
    out: npt.NDArray[np.float64] = w @ v
    return out


def _per_head(x: npt.ArrayLike | None, default: float) -> npt.NDArray[np.float64]:
    """A number, (heads,), (batch, heads) or (batch, heads, tokens), against (batch, heads, tokens, keys)."""
    a = np.asarray(default if x is None else x, np.float64)
    return a[..., None] if a.ndim == 3 else a[..., None, None]
