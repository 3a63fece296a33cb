"""Spans that others have published for the heads of trained models."""

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
    heads: int,
    *,
    recent: int | None = None,
    sinks: int | None = None,
    threshold: float = 0.5,
    sparsity: float | None = None,
) -> tuple[list[list[float]], int]:
    """Return spans and sinks of DuoAttention: heads that see everything, and heads of a window and the first tokens.

    Parameters
    ----------
    gates : path or array_like, shape (layers, key_heads)
        A folder with ``full_attention_heads.tsv`` and ``config.json``, as it is published for a model; or the table.
    heads : int
        Heads of the queries of a layer, a multiple of the key heads.
    recent, sinks : int, optional
        Tokens of the window, the own one among them, and first tokens; those of ``config.json`` unless given.
    threshold : float
        Heads whose gate is at least this see everything.
    sparsity : float, optional
        Instead of a threshold: the share of heads that do not.

    Returns
    -------
    spans : list of list of float
        Of the heads of each layer, for `set_spans` and `head_cache` with ``ramp=0``.
    sink_tokens : int
        For `head_cache`.

    Raises
    ------
    ValueError
        For a table that does not fit, or a value out of its range.
    TypeError
        For a wrong type.
    OSError
        For a folder that is not there, or has other files.

    References
    ----------
    Xiao et al., "DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming Heads", ICLR 2025,
    sections 2.2 and 2.3.

    Examples
    --------
    >>> from headspan.torch import duo_attention_spans
    >>> spans, sink_tokens = duo_attention_spans([[0.9, 0.1], [0.0, 1.0]], heads=4, recent=256, sinks=64)
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
    count = _check.integer("heads", heads, at_least=1)
    if table.ndim != 2 or 0 in table.shape or count % table.shape[1]:
        raise ValueError(f"gates must be of shape (layers, key heads) for {count} heads, not of shape {table.shape}")
    for name, given in (("recent", recent), ("sinks", sinks)):
        if given is None:
            raise ValueError(f"{name} must be given where gates are no folder with a config.json")
    window = _check.integer("recent", recent, at_least=1)
    least = _check.number("threshold", threshold, at_least=0)
    if sparsity is not None:
        share = _check.number("sparsity", sparsity, at_least=0)
        if share > 1:
            raise ValueError(f"sparsity must be a share of heads, at most 1, not {share:g}")
        rank = np.argsort(np.argsort(table, axis=None, kind="stable")).reshape(table.shape)
        streaming = rank < round(share * table.size)
    else:
        streaming = table < least
    spans = np.where(streaming, window - 1.0, UNLIMITED)
    return np.repeat(spans, count // table.shape[1], axis=1).tolist(), _check.integer("sinks", sinks, at_least=0)


def moa_spans(plan: str | os.PathLike[str] | dict[str, Any], tokens: int) -> list[list[float]]:
    """Return spans of MoA: for each head a window of ``alpha + beta * tokens``.

    Parameters
    ----------
    plan : path or dict
        A file of JSON as it is published for a model, or what is in it: `alphas` and `betas`, (layers, heads) each.
    tokens : int
        How long texts are to be.

    Returns
    -------
    list of list of float
        Of the heads of each layer, for `set_spans` and `head_cache` with ``ramp=0``. MoA's windows have the first 64
        tokens beside them: ``head_cache(sink_tokens=64)``.

    Raises
    ------
    ValueError
        For tables that do not fit each other, or a number of tokens below 1.
    TypeError
        For a wrong type.
    OSError
        For a file that is not there.

    References
    ----------
    Fu et al., "MoA: Mixture of Sparse Attention for Automatic Large Language Model Compression", 2024, section 3.2.

    Examples
    --------
    >>> from headspan.torch import moa_spans
    >>> moa_spans({"alphas": [[0.0, -1024.0]], "betas": [[0.125, 0.5]]}, tokens=4096)
    [[511.0, 1023.0]]
    """
    read = json.loads(Path(plan).read_text()) if isinstance(plan, str | os.PathLike) else plan
    if not isinstance(read, dict) or not {"alphas", "betas"} <= read.keys():
        raise ValueError("plan must have alphas and betas, as MoA's files of JSON do")
    alphas, betas = (_check.as_array(name, read[name]) for name in ("alphas", "betas"))
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
