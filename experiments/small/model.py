"""Small character models whose attention can be replaced, and the code that all experiments on them share.

``training.py`` trains the models with full attention. Their weights are in the folder of the option ``--models``.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import torch
except ModuleNotFoundError as error:
    message = "the experiments train their models with PyTorch; run pip install '.[torch,demo]' in the project folder"
    raise ModuleNotFoundError(message) from error
import headspan as hs
from headspan.lab.machine import describe_machine
from headspan.lab.runs.folder import replace_file
from headspan.lab.text import Text
from kernel_source import PACKAGE, KernelText, kernel_source
from torch import Tensor, nn
from torch.nn import functional as F

RESULTS = Path(__file__).parents[1] / "results"
CONTEXT, LAYERS, HEADS, WIDTH, TAPS = 1024, 4, 4, 128, 4
SHORT_WINDOWS = 0.3  # of the steps of a training
RATE = 3e-3  # of the weights

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Takes the number of a layer and its query, key and value (batch, heads, tokens, head_dim), and returns the output."""


def full(_layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return causal attention over the whole context, as in training."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Return x with rotary embeddings (Su et al. 2021, equation 34)."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Block(nn.Module):
    """A pre-norm block of attention and two dense layers.

    Each channel of queries and keys is mixed with itself at the TAPS - 1 tokens before (So et al., "Primer", 2021,
    section 3). A head can then look for what followed the same characters before. Small models learn this in minutes,
    and make little use of distant keys without it.
    """

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.before_attention, self.before_dense = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.taps = nn.Parameter(torch.cat([torch.ones(1, 2 * WIDTH), 0.1 * torch.randn(TAPS - 1, 2 * WIDTH)]))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """Return the output of the block."""
        batch, tokens, _ = x.shape
        query_key, value = self.query_key_value(self.before_attention(x)).split([2 * WIDTH, WIDTH], dim=-1)
        before = F.pad(query_key, (0, 0, TAPS - 1, 0))
        query_key = sum(before[:, TAPS - 1 - tap :][:, :tokens] * self.taps[tap] for tap in range(TAPS))
        query, key, value = (
            part.view(batch, tokens, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in (*query_key.split(WIDTH, dim=-1), value)
        )
        positions = torch.arange(tokens)
        heads = attend(self.layer, rotate(query, positions), rotate(key, positions), value)
        x = x + self.out(heads.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.down(F.gelu(self.up(self.before_dense(x))))


class Model(nn.Module):
    """A model that predicts the next character at each position."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.blocks = nn.ModuleList(Block(layer) for layer in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary)
        nn.init.normal_(self.embedding.weight, std=0.5)
        for block in self.blocks:  # so that the sum over layers begins small
            for last in (block.out, block.down):
                nn.init.normal_(last.weight, std=0.02 / math.sqrt(2 * LAYERS))

    def forward(self, tokens: Tensor, attend: Attend = full) -> Tensor:
        """Return logits (batch, tokens, vocabulary) of tokens (batch, tokens)."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, attend)
        return self.head(self.norm(x))


def loss_within(model: Model, rows: Tensor, attend: Attend) -> Tensor:
    """Return the mean loss in nats of all characters of windows but the first."""
    return F.cross_entropy(model(rows[:, :-1], attend).flatten(0, 1), rows[:, 1:].flatten())


def attention_flops(spans: np.ndarray, tokens: int, ramp: float) -> float:
    """Return the FLOPs of forward attention for a character, the mean over a window."""
    size: dict[str, Any] = {"tokens": tokens, "num_heads": HEADS, "head_dim": WIDTH // HEADS, "ramp": ramp}
    return sum(hs.cost(span=layer, **size).forward_flops for layer in spans) / tokens


def windows(text: Text, part: str, count: int, length: int = CONTEXT) -> Tensor:
    """Return windows of length + 1 characters, evenly spaced in a part of the text."""
    data = text.encode(text.part(part))
    starts = np.linspace(0, len(data) - length - 1, count).astype(int)
    return torch.stack([torch.from_numpy(data[start : start + length + 1]) for start in starts])


@torch.no_grad()
def bits(model: Model, rows: Tensor, attend: Attend = full, batch: int = 8) -> np.ndarray:
    """Return the mean bits per character of each window."""
    parts = []
    for rows_of_batch in rows.split(batch):
        logits = model(rows_of_batch[:, :-1], attend)
        nats = F.cross_entropy(logits.transpose(1, 2), rows_of_batch[:, 1:], reduction="none")
        parts.append(nats.mean(1) / math.log(2))
    return torch.cat(parts).numpy()


def drawn(data: Tensor, rng: np.random.Generator, count: int, length: int) -> Tensor:
    """Return windows of length + 1 characters from random places of a text."""
    starts = rng.integers(0, len(data) - length - 1, count)
    return torch.stack([data[start : start + length + 1] for start in starts])


def descent(model: nn.Module, rate: float, steps: int) -> Callable[[Tensor], None]:
    """Return a function that takes an AdamW step; a twentieth of the steps warm up, and a cosine follows."""
    warm = max(1, steps // 20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))
    )

    def descend(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()

    return descend


def train(text: Text, seed: int, steps: int, batch: int, watch: Callable[[int, Model], None]) -> Model:
    """Train a model with full attention, AdamW and a cosine schedule.

    The first steps have windows of a quarter of the context and four times as many: as many characters, for less time.
    `watch` is called with the number of steps before each of them and after the last.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = Model(len(text.vocabulary))
    data = torch.from_numpy(text.encode(text.part("train")))
    descend = descent(model, RATE, steps)
    began = time.perf_counter()
    for step in range(steps):
        watch(step, model)
        shorter = 4 if step < SHORT_WINDOWS * steps else 1
        loss = loss_within(model, drawn(data, rng, batch * shorter, CONTEXT // shorter), full)
        descend(loss)
        if step % 50 == 0 or step == steps - 1:
            seconds = time.perf_counter() - began
            print(f"step {step}: {loss.item() / math.log(2):.4f} bits per character, {seconds:.0f} s", flush=True)
    watch(steps, model)
    return model


Array = NDArray[np.float32]


def on_arrays(attend: Callable[[Array, Array, Array], Array]) -> Attend:
    """Return an attention for the model from one that takes NumPy arrays."""
    return lambda _layer, *parts: torch.from_numpy(attend(*(part.contiguous().numpy() for part in parts)))


class Study:
    """A trained model and windows of a part of the text, on which attentions are compared with full attention."""

    def __init__(self, args: argparse.Namespace, part: str) -> None:
        path = args.models / f"{args.name}.pt"
        if not path.exists():
            raise SystemExit(
                f"there is no {path}: run python experiments/small/training.py with the same options first"
            )
        saved = torch.load(path)
        self.text: KernelText = kernel_source(args.source)
        if saved["text"] != self.text.sha256:
            raise SystemExit(f"{path} was trained on another version of {PACKAGE}: train it anew")
        self.weights = saved["weights"]
        self.model = self.new_model()
        self.rows = windows(self.text, part, args.windows)
        self.full = bits(self.model, self.rows)
        self.about = {
            "seed": args.seed,
            "steps": args.steps,
            "part": part,
            "windows": args.windows,
            "full": round(float(self.full.mean()), 4),
            "text": text_description(self.text),
        }

    def new_model(self) -> Model:
        """Return a new copy of the trained model."""
        model = Model(len(self.text.vocabulary))
        model.load_state_dict(self.weights)
        return model

    def excess(self, attend: Callable[[Array, Array, Array], Array]) -> dict[str, float]:
        """Return by how many bits per character an attention is worse than full attention, and its standard error."""
        more = bits(self.model, self.rows, on_arrays(attend)) - self.full
        return {
            "excess": round(float(more.mean()), 4),
            "standard_error": round(float(more.std(ddof=1)) / math.sqrt(len(more)), 4),
        }


def text_description(text: Text) -> dict[str, Any]:
    """Return the description of a text for results, and list its files with their hashes in a file of its own."""
    name = f"texts/{text.sha256[:12]}"
    save(name, {"name": text.name, "bytes": len(text.data), "sha256": text.sha256, "files": text.files})
    return {"name": text.name, "bytes": len(text.data), "sha256": text.sha256, "files": f"{name}.json"}


def write(name: str, result: dict[str, Any]) -> None:
    """Write results with the machine, the versions and the date, so that every number of a table is in a file."""
    save(name, {"machine": describe_machine(hs.get_num_threads()), **result})


def save(name: str, result: dict[str, Any]) -> None:
    """Write a JSON file to the folder of results, atomically."""
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(result, indent=1) + "\n").encode())


def arguments(description: str, **defaults: int) -> argparse.Namespace:
    """Return the options that all programs have and further numbers, and set the number of threads."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--models", type=Path, default=Path("build/experiments"), help="folder of the trained models")
    parser.add_argument("--source", type=Path, default=Path("build/kernel"), help=f"folder of the unpacked {PACKAGE}")
    for name, default in {"steps": 16_000, "threads": 1, **defaults}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    args.name = f"steps{args.steps}_seed{args.seed}"
    torch.set_num_threads(args.threads)
    hs.set_num_threads(args.threads)
    return args
