"""AntiBERTy (BERT, 8 layers of 8 heads) on antibodies against HIV, a masked language model of proteins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from study import Study
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM
from wheels import ABSTAR, ANTIBERTY, config_of, lines_of, sha256_of, weights_of

BATCH, MASKED = 4, 0.15
HELD_OUT = 16
_LETTERS = "TCAG"
_ACIDS = "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"
_CODE = dict(zip((a + b + c for a in _LETTERS for b in _LETTERS for c in _LETTERS), _ACIDS, strict=True))


class Batch(NamedTuple):
    """Token ids with masked residues, the mask of the padding, and the residues as labels, -100 elsewhere."""

    ids: torch.Tensor
    mask: torch.Tensor
    labels: torch.Tensor


def study() -> Study:
    """Load the model and the heavy and light chains; the last quarter of each file is held out."""
    vocabulary = {token: number for number, token in enumerate(lines_of(ANTIBERTY["vocab.txt"]))}
    fitted: list[str] = []
    held_out: list[str] = []
    for name in ABSTAR:
        chains = [chain for chain in map(translated, sequences(lines_of(ABSTAR[name]))) if chain is not None]
        fitted += chains[: 3 * len(chains) // 4]
        held_out += chains[3 * len(chains) // 4 :]
    rng = np.random.default_rng(0)
    batches = [
        _batches([chains[n] for n in rng.permutation(len(chains))], vocabulary, rng) for chains in (fitted, held_out)
    ]
    tokens = max(batch.ids.shape[1] for half in batches for batch in half)
    files = sha256_of(ANTIBERTY, ABSTAR)
    return Study(load(), loss, accuracy, batches[0], batches[1][:HELD_OUT], tokens=tokens, ramp=4, sha256=files)


def load() -> BertForMaskedLM:
    """Return the encoder and its head for residues; the heads for species and chains are left out."""
    config = BertConfig(**config_of(ANTIBERTY["config.json"]))
    config._attn_implementation = "headspan"
    model = BertForMaskedLM(config).eval()
    weights = weights_of(ANTIBERTY["pytorch_model.bin"])
    for name, parameter in model.named_parameters():
        parameter.data.copy_(weights[name])
    return model


def sequences(lines: list[str]) -> list[str]:
    """Return the sequences of a FASTA file."""
    text = "\n".join(lines)
    return ["".join(entry.splitlines()[1:]).upper() for entry in text.split(">")[1:]]


def translated(nucleotides: str) -> str | None:
    """Return the amino acids of a chain in the one frame that has no stop, or None for partial and unusual chains."""
    for frame in range(3):
        codons = [nucleotides[start : start + 3] for start in range(frame, len(nucleotides) - 2, 3)]
        acids = "".join(_CODE.get(codon, "*") for codon in codons)
        if "*" not in acids and 95 <= len(acids) <= 140:
            return acids
    return None


def _batches(chains: list[str], vocabulary: dict[str, int], rng: np.random.Generator) -> list[Batch]:
    batches = []
    for start in range(0, len(chains) - BATCH + 1, BATCH):
        rows = [["[CLS]", *chain, "[SEP]"] for chain in chains[start : start + BATCH]]
        ids = torch.full((BATCH, max(map(len, rows))), vocabulary["[PAD]"])
        for row, tokens in zip(ids, rows, strict=True):
            row[: len(tokens)] = torch.tensor([vocabulary[token] for token in tokens])
        is_hidden = torch.from_numpy(rng.random(ids.shape) < MASKED) & (ids >= vocabulary["A"])
        batches.append(
            Batch(
                ids.masked_fill(is_hidden, vocabulary["[MASK]"]),
                (ids != vocabulary["[PAD]"]).long(),
                ids.masked_fill(~is_hidden, -100),
            )
        )
    return batches


def _predicted(model: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of the masked residues, and the residues."""
    is_hidden = batch.labels != -100
    return model(batch.ids, attention_mask=batch.mask).logits[is_hidden], batch.labels[is_hidden]


def loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy of the masked residues, in nats."""
    return F.cross_entropy(*_predicted(model, batch))


@torch.no_grad()
def accuracy(model: torch.nn.Module, batches: Sequence[Any]) -> float:
    """Return the share of masked residues that are predicted."""
    right = [logits.argmax(1) == labels for logits, labels in (_predicted(model, batch) for batch in batches)]
    return float(torch.cat(right).float().mean())
