"""The abilities to test: the input arrays, and the results of the definition in float64."""

from __future__ import annotations

from typing import Any

import headspan as hs
import numpy as np

HEADS, TOKENS, WIDTH, RAMP, CAP, DROPOUT = 4, 64, 64, 8.0, 2.0, 0.5
SPANS = np.array([3.3, 10.6, 20.2, 40.7])  # not integers: a mask has two slopes at a distance on its corner
SINKS = np.array([0.5, 1.0, -1.0, 2.0])
LENGTHS = (24, 40)  # lengths of two texts in one sequence
ABILITIES = {
    "forward": "causal attention",
    "backward": "its gradient",
    "window": "a window of 8 before the own key",
    "window of each head": "another one for each head",
    "learned span": "the gradients of a soft span and of what it is applied to",
    "pattern": "blocks, chosen freely",
    "sinks": "a learned sink for each head",
    "soft cap": "Gemma's",
    "dropout": "of the weights",
    "grouped heads": "two heads on each key head",
    "packed": "two texts in one sequence",
    "cache": "one that keeps for each head what its span reaches",
    "pictures": "of spans and maps",
}
Inputs = dict[str, Any]


def inputs() -> Inputs:
    """Draw the input arrays, which are the same for all libraries."""
    rng = np.random.default_rng(0)
    names = ("query", "key", "value", "grad_out")
    return dict(zip(names, rng.standard_normal((4, 1, HEADS, TOKENS, WIDTH)).astype(np.float32), strict=True))


def distances() -> Any:
    """Return the distance from each query back to each key."""
    return np.arange(TOKENS)[:, None] - np.arange(TOKENS)


def texts() -> Any:
    """Return the index of the text of each token in a sequence of two packed texts."""
    return np.repeat(np.arange(len(LENGTHS)), LENGTHS)


def masks() -> dict[str, Any]:
    """Return the masks of allowed pairs for the abilities that a dense mask can express."""
    x = distances()
    blocks = np.random.default_rng(1).random((8, 8)) < 0.5
    blocks[np.diag_indices(8)] = True
    text = texts()
    return {
        "window": (x >= 0) & (x <= 8),
        "window of each head": (x >= 0) & (x <= SPANS[:, None, None]),
        "pattern": np.kron(blocks, np.ones((8, 8), bool)) & (x >= 0),
        "packed": (x >= 0) & (text[:, None] == text),
        "blocks": blocks,
    }


def expected(arrays: Inputs) -> dict[str, Any]:
    """Return the results of the definition in float64 for each ability with a defined result."""
    q, k, v, g = (arrays[name].astype(np.float64) for name in ("query", "key", "value", "grad_out"))
    allowed, attend = masks(), hs.reference.attention

    def masked(mask: Any) -> Any:
        return attend(q, k, v, causal=False, pair_bias=np.where(mask, 0, -np.inf))

    gradients = hs.attention_vjp(q, k, v)[1](g)
    learned = hs.attention_vjp(q, k, v, span=SPANS, ramp=RAMP)[1](g)
    return {
        "forward": attend(q, k, v),
        "backward": (gradients.query, gradients.key, gradients.value),
        "learned span": (learned.span, learned.query),
        "sinks": attend(q, k, v, sinks=SINKS),
        "soft cap": attend(q, k, v, softcap=CAP),
        "grouped heads": attend(q, k[:, ::2], v[:, ::2]),
        "cache": masked(allowed["window of each head"]),
        **{name: masked(allowed[name]) for name in ("window", "window of each head", "pattern", "packed")},
    }
