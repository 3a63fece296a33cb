"""Published spans for the heads of trained models."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.torch.transformers.spans import UNLIMITED


def duo_attention_spans(
    gates: str | os.PathLike[str] | npt.ArrayLike,
    num_heads: int,
    *,
    recent: int | None = None,
    sinks: int | None = None,
    threshold: float = 0.5,
    sparsity: float | None = None,
) -> tuple[list[list[float]], int]:
    """Return the spans and sinks of DuoAttention: a head sees all tokens, or a window and the first tokens.

    Parameters
    ----------
    gates : path or array_like, shape (layers, key_heads)
        A published folder with ``full_attention_heads.tsv`` and ``config.json``, or the table of gates.
    num_heads : int
        Number of query heads in a layer, a multiple of the key heads.
    recent, sinks : int, optional
        Sizes, in tokens, of the window, which includes the current token, and of the sinks.
        Default: the values in ``config.json``.
    threshold : float
        Heads whose gate is at least this value see all tokens.
    sparsity : float, optional
        The fraction of heads that do not see all tokens; replaces `threshold`.

    Returns
    -------
    spans : list of list of float
        Spans of the heads of each layer, for `set_spans` and `head_cache` with ``ramp=0``.
    first_tokens : int
        Number of sinks, for `head_cache`.

    Raises
    ------
    ValueError
        If `num_heads` is not a multiple of the key heads of `gates`.
    TypeError
        If `gates` does not hold numbers, or `num_heads`, `recent` or `sinks` is not an integer.
    OSError
        If the folder or one of its files does not exist.

    See Also
    --------
    moa_spans : The spans of MoA.
    set_spans : Sets the spans of a transformers model.

    References
    ----------
    Xiao et al., "DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming Heads", ICLR 2025,
    sections 2.2 and 2.3.

    Examples
    --------
    >>> from headspan.torch import duo_attention_spans
    >>> spans, first_tokens = duo_attention_spans([[0.9, 0.1], [0.0, 1.0]], num_heads=4, recent=256, sinks=64)
    >>> spans[0]
    [1e+30, 1e+30, 255.0, 255.0]
    """
    if isinstance(gates, str | os.PathLike):
        folder = Path(gates)
        settings = json.loads((folder / "config.json").read_text())
        recent = settings["recent_size"] if recent is None else recent
        sinks = settings["sink_size"] if sinks is None else sinks
        gates = np.loadtxt(folder / "full_attention_heads.tsv", ndmin=2)
    table = _check.as_array("gates", gates)
    _check.limits("gates", table)
    count = _check.integer("num_heads", num_heads, at_least=1)
    if table.ndim != 2 or 0 in table.shape or count % table.shape[1]:
        raise ValueError(f"gates must be of shape (layers, key heads) for {count} heads, not of shape {table.shape}")
    for name, size in (("recent", recent), ("sinks", sinks)):
        if size is None:
            raise ValueError(f"{name} must be given if gates is not a folder with a config.json")
    window = _check.integer("recent", recent, at_least=1)
    minimum = _check.number("threshold", threshold, at_least=0)
    if sparsity is not None:
        share = _check.number("sparsity", sparsity, at_least=0)
        if share > 1:
            raise ValueError(f"sparsity must be a share of heads, at most 1, not {share:g}")
        rank = np.argsort(np.argsort(table, axis=None, kind="stable")).reshape(table.shape)
        streaming = rank < round(share * table.size)
    else:
        streaming = table < minimum
    spans = np.where(streaming, window - 1.0, UNLIMITED)
    return np.repeat(spans, count // table.shape[1], axis=1).tolist(), _check.integer("sinks", sinks, at_least=0)


def moa_spans(plan: str | os.PathLike[str] | dict[str, Any], tokens: int) -> list[list[float]]:
    """Return the spans of MoA: each head has a window of ``alpha + beta * tokens``.

    Parameters
    ----------
    plan : path or dict
        A published JSON file or its content: `alphas` and `betas`, each of shape (layers, heads).
    tokens : int
        Length of the sequences.

    Returns
    -------
    list of list of float
        Spans of the heads of each layer, for `set_spans` and `head_cache` with ``ramp=0``. In addition to its window,
        a head of MoA sees the first 64 tokens: ``head_cache(first_tokens=64)``.

    Raises
    ------
    ValueError
        If `alphas` and `betas` have different shapes, or `tokens` is less than 1.
    TypeError
        If `alphas` or `betas` does not hold numbers, or `tokens` is not an integer.
    OSError
        If the file does not exist.

    See Also
    --------
    duo_attention_spans : The spans of DuoAttention.
    set_spans : Sets the spans of a transformers model.

    References
    ----------
    Fu et al., "MoA: Mixture of Sparse Attention for Automatic Large Language Model Compression", 2024, section 3.2.

    Examples
    --------
    >>> from headspan.torch import moa_spans
    >>> moa_spans({"alphas": [[0.0, -1024.0]], "betas": [[0.125, 0.5]]}, tokens=4096)
    [[511.0, 1023.0]]
    """
    tables = json.loads(Path(plan).read_text()) if isinstance(plan, str | os.PathLike) else plan
    if not isinstance(tables, dict) or not {"alphas", "betas"} <= tables.keys():
        raise ValueError("plan must have alphas and betas, like the JSON files of MoA")
    alphas, betas = (_check.as_array(name, tables[name]) for name in ("alphas", "betas"))
    for name, table in (("alphas", alphas), ("betas", betas)):
        _check.limits(name, table)
    if alphas.ndim != 2 or alphas.shape != betas.shape:
        raise ValueError(
            f"alphas and betas must be (layers, heads) each, not of shape {alphas.shape} and {betas.shape}"
        )
    spans: list[list[float]] = np.maximum(
        alphas + betas * _check.integer("tokens", tokens, at_least=1) - 1.0, 0.0
    ).tolist()
    return spans
