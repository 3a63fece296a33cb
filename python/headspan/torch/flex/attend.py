"""flex_attention on the CPU: masks and score functions of PyTorch as patterns and options of attention."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch

from headspan.patterns import Mask, Pattern, Window
from headspan.patterns.mask import mask_of_tiles
from headspan.torch.flex.block_masks import pattern_of
from headspan.torch.flex.pairs import Sizes
from headspan.torch.flex.score_mods import options_of
from headspan.torch.functional import attention


def flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """Compute attention with a mask and a score function of `torch.nn.attention.flex_attention`, with gradients.

    The signature is that of PyTorch, whose function has no backward pass on a CPU. A `block_mask` becomes a pattern:
    its full blocks, and the pairs of its partial blocks for which `mask_mod` is true. The pattern is made once and kept
    with the BlockMask. A `score_mod` is recognised by its values, as a factor or a soft cap of the score, plus a number
    that depends on the head and the distance or on the pair. Tensors that these functions capture get their gradients.
    Tensors on a CUDA device go to PyTorch's function.

    Parameters
    ----------
    query : Tensor, shape (batch, heads, tokens, head_dim)
        As for `attention`.
    key, value : Tensor, shape (batch or 1, key heads, key tokens, head_dim)
    score_mod : callable, optional
        A function ``score_mod(score, batch, head, q_idx, kv_idx)``. A number that depends on the pair, and not only on
        the head and the distance, is computed for all pairs, which needs tokens times key tokens numbers.
    block_mask : BlockMask, optional
        From `torch.nn.attention.flex_attention.create_block_mask`, for these numbers of tokens. Default: all pairs.
    scale : float, optional
        Factor of the dot products. Default: ``1 / sqrt(head_dim)``.
    enable_gqa : bool
        Whether `key` and `value` may have fewer heads than `query`.
    return_lse : bool
        Whether to return the log-sum-exp as well.
    kernel_options : dict, optional
        Options of PyTorch's kernels for GPUs, without an effect on the CPU.
    return_aux : AuxRequest, optional
        With ``lse=True``, an `AuxOutput` with the log-sum-exp is returned as well.

    Returns
    -------
    out : Tensor, shape (batch, heads, tokens, head_dim of value)
        It is 0 for a query that sees no key.
    lse : Tensor, shape (batch, heads, tokens)
        Returned only if `return_lse` is True.

    Raises
    ------
    ValueError
        If shapes do not fit, or if `block_mask` is for other numbers of tokens.
    NotImplementedError
        If `score_mod` is none that is recognised, with what differs, or for ``AuxRequest(max_scores=True)``.

    See Also
    --------
    attention : Attention on tensors, with a description of every option.
    headspan.patterns.Mask : Any pairs as a pattern.

    Notes
    -----
    What a `score_mod` depends on is found out in its first call, by the values and gradients of all pairs, which takes
    seconds for thousands of tokens. Later calls compare a sample of a few thousand pairs. `torch.compile` does not look
    into this function. A BlockMask lists its blocks only once, so create a new one if a tensor that its
    `mask_mod` captures is written to.

    References
    ----------
    Dong et al., "Flex Attention: A Programming Model for Generating Optimized Attention Kernels", 2024.

    Examples
    --------
    >>> import torch
    >>> from torch.nn.attention.flex_attention import create_block_mask
    >>> from headspan.torch import flex_attention
    >>> query, key, value = torch.randn(3, 1, 2, 300, 16)
    >>> slopes = torch.tensor([0.1, 0.5], requires_grad=True)
    >>> mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < 100), 1, None, 300, 300, device="cpu")
    >>> out = flex_attention(query, key, value, lambda s, b, h, q, k: s - slopes[h] * (q - k), mask)
    >>> out.sum().backward()
    >>> slopes.grad.shape
    torch.Size([2])
    """
    more = {"kernel_options": kernel_options, "return_aux": return_aux}
    if query.device.type == "cuda":
        from torch.nn.attention.flex_attention import flex_attention as of_torch

        return of_torch(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, **more)
    attend = _attend
    if torch.compiler.is_compiling():  # not as a decorator, which would load the compiler
        attend = torch.compiler.disable(_attend)
    return attend(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, return_aux)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Any,
    block_mask: Any,
    scale: float | None,
    enable_gqa: bool,
    return_lse: bool,
    return_aux: Any,
) -> Any:
    with_lse = _with_lse(return_lse, return_aux)
    sizes = _sizes(query, key, value, enable_gqa)
    mask = None
    if block_mask is not None:
        _check_block_mask(block_mask, sizes)
        mask = pattern_of(block_mask, sizes.batch, sizes.heads)
    pattern: Pattern | None = mask
    options: dict[str, Any] = {"causal": False, "scale": 1 / math.sqrt(query.shape[-1]) if scale is None else scale}
    if score_mod is not None:
        of_mod = options_of(score_mod, sizes, mask)
        options, excluded = _with_score_mod(options, of_mod, query.dtype)
        if excluded is not None and bool(excluded.any()):
            rest = _without(excluded.numpy().tobytes(), excluded.shape[0], sizes.queries, sizes.keys)
            pattern = rest if pattern is None else pattern & rest
    if pattern is not None:
        options["pattern"] = pattern
    key, value = (x.expand(sizes.batch, -1, -1, -1) for x in (key, value))
    if not with_lse:
        return attention(query, key, value, **options)
    out, lse = attention(query, key, value, return_lse=True, **options)
    if return_aux is None:
        return out, lse
    from torch.nn.attention.flex_attention import AuxOutput

    return out, AuxOutput(lse=lse, max_scores=None)


def _with_lse(return_lse: bool, return_aux: Any) -> bool:
    if return_aux is None:
        return return_lse
    if return_lse:
        raise ValueError("return_lse and return_aux must not both be given")
    if return_aux.max_scores:
        raise NotImplementedError("the largest scores are not available, only AuxRequest(lse=True)")
    return bool(return_aux.lse)


def _sizes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> Sizes:
    for name, tensor in {"query": query, "key": key, "value": value}.items():
        if tensor.ndim != 4:
            raise ValueError(f"{name} must have four axes, not the shape {tuple(tensor.shape)}")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError(
            f"key must have the {query.shape[1]} heads of query, not {key.shape[1]}; for fewer, pass enable_gqa=True"
        )
    if key.shape[0] not in (1, query.shape[0]):
        raise ValueError(f"key must have 1 or {query.shape[0]} batch items, not {key.shape[0]}")
    return Sizes(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _check_block_mask(block_mask: Any, sizes: Sizes) -> None:
    if tuple(block_mask.seq_lengths) != (sizes.queries, sizes.keys):
        raise ValueError(
            f"block_mask must be for {sizes.queries} queries and {sizes.keys} keys, not for "
            f"{block_mask.seq_lengths[0]} and {block_mask.seq_lengths[1]}"
        )


def _with_score_mod(
    options: dict[str, Any], of_mod: dict[str, Any], dtype: torch.dtype
) -> tuple[dict[str, Any], torch.Tensor | None]:
    """Return the options with those of a score_mod, and the offsets that it excludes, by head."""
    excluded = of_mod.pop("excluded", None)
    factor, cap = of_mod.pop("factor", 1.0), of_mod.pop("softcap", None)
    options = options | {"scale": options["scale"] * factor} | ({} if cap is None else {"softcap": cap})
    computed = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    for name, option in of_mod.items():
        of_type = dtype if name == "pair_bias" else computed
        options[name] = option.to(of_type) if isinstance(option, torch.Tensor) else option
    return options, excluded


@functools.lru_cache(maxsize=16)
def _without(excluded: bytes, heads: int, queries: int, keys: int) -> Pattern:
    """Return the pairs whose offset is not excluded, for each head."""
    table = np.frombuffer(excluded, np.bool_).reshape(heads, -1)
    most = table.shape[1] // 2
    rows = table[:1] if (table == table[:1]).all() else table
    if len(rows) == 1:
        window = _window(rows[0], most, queries, keys)
        if window is not None:
            return window

    def masks(row: Any) -> Mask:
        return Mask(lambda query, key: ~row[key - query - (keys - queries) + most], tokens=queries, key_tokens=keys)

    parts = [masks(row) for row in rows]
    if len(parts) == 1:
        return parts[0]
    return mask_of_tiles((queries, keys), [[part.tiles[0][0] for part in parts]], per_item=False, per_head=True)


def _window(row: Any, most: int, queries: int, keys: int) -> Window | None:
    """Return the window of the offsets that are not excluded, or None if they are not one window."""
    least, last = -(queries - 1) - (keys - queries), keys - 1 - (keys - queries)
    seen = np.flatnonzero(~row[least + most : last + most + 1]) + least
    if not len(seen) or seen[-1] - seen[0] + 1 != len(seen) or not seen[0] <= 0 <= seen[-1]:
        return None
    return Window(int(1 - seen[0]), ahead=int(seen[-1]))
