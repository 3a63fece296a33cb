"""Which heads copy: how much a head attends to the character that followed the same characters before."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from model import HEADS, LAYERS, Attend, Model, full
from torch import Tensor
from torch.nn import functional as F

SAME, NEAREST = 8, 64


def followed(row: np.ndarray) -> np.ndarray:
    """Return for each position what followed the latest earlier occurrence of its last SAME characters, or -1.

    Occurrences less than NEAREST characters before are left out, and so are positions whose characters are all equal,
    as in indentation.
    """
    latest: dict[bytes, int] = {}
    places = np.full(len(row), -1)
    data = row.astype(np.uint8).tobytes()
    for position in range(SAME - 1, len(row)):
        characters = data[position - SAME + 1 : position + 1]
        before = latest.get(characters, -1)
        if before >= 0 and position - before >= NEAREST and len(set(characters)) > 1:
            places[position] = before + 1
        latest[characters] = position
    return places


@torch.no_grad()
def copying(model: Model, rows: Tensor) -> dict[str, Any]:
    """Return the weight of each head on what followed before, and the bits of repeated and of other characters."""
    weights = np.zeros((LAYERS, HEADS))
    count, bits_of = 0, {"repeated": 0.0, "others": 0.0}
    for row in rows:
        places = torch.from_numpy(followed(row[:-1].numpy()))
        (repeated,) = torch.nonzero(places >= 0, as_tuple=True)
        logits = model(row[None, :-1], _counting(weights, repeated, places[repeated]))
        each = F.cross_entropy(logits[0], row[1:], reduction="none") / math.log(2)
        count += len(repeated)
        bits_of["repeated"] += float(each[repeated].sum())
        bits_of["others"] += float(each.sum() - each[repeated].sum())
    total = rows[:, 1:].numel()
    return {
        "weights": (weights / count).round(4).tolist(),
        "repeated": round(bits_of["repeated"] / count, 4),
        "others": round(bits_of["others"] / (total - count), 4),
        "share": round(count / total, 4),
    }


def _counting(weights: np.ndarray, queries: Tensor, keys: Tensor) -> Attend:
    """Return full attention that adds to `weights` those of each query and its key, for each head of each layer."""

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query[0, :, queries] @ key[0].mT / math.sqrt(query.shape[-1])
        later = torch.arange(key.shape[-2]) > queries[:, None]
        shares = scores.masked_fill(later, -torch.inf).softmax(-1)
        weights[layer] += shares.gather(-1, keys.expand(HEADS, -1)[..., None]).double().sum((1, 2)).numpy()
        return full(layer, query, key, value)

    return attend
