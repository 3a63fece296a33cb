"""Distributed tensors: heads and batch items and their gradients are computed on the ranks that hold them."""

import numpy as np
import ranks
from headspan.patterns import Global, Window
from helpers import run_python
from tensors import torch

import torch.distributed as dist  # isort: skip
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # isort: skip
from headspan.torch import attention  # isort: skip

BATCH, HEADS, TOKENS = 2, 4, 20
GENERATOR = torch.Generator().manual_seed(0)  # the same on all ranks


def draw(*shape):
    return torch.rand(shape, generator=GENERATOR)


# Options, the axis of heads of each option, and the axis of batch items.
CASES = {
    "spans": ({"span": torch.tensor([1.0, 5.0, 9.0, 0.0]), "ramp": 4}, {"span": 0}, {}),
    "spans of items": ({"span": draw(BATCH, HEADS) * 9, "ramp": 4}, {"span": 1}, {"span": 0}),
    "spans of tokens": (
        {"span": draw(BATCH, HEADS, TOKENS) * 9, "temperature": 1 + draw(BATCH, 1, TOKENS)},
        {"span": 1},
        {"span": 0, "temperature": 0},
    ),
    "a number": ({"span": 3.5, "softcap": 2.0, "causal": False}, {}, {}),
    "sinks and slopes": (
        {"sinks": draw(HEADS), "alibi_slopes": draw(BATCH, HEADS)},
        {"sinks": 0, "alibi_slopes": 1},
        {"alibi_slopes": 0},
    ),
    "memory": ({"persistent_key": draw(2, 3, 8), "persistent_value": draw(3, 5)}, {"persistent_key": 0}, {}),
    "biases": (
        {
            "key_bias": draw(HEADS, TOKENS),
            "distance_bias": draw(HEADS, 7),
            "pair_bias": draw(BATCH, 1, TOKENS, TOKENS),
        },
        {"key_bias": 0, "distance_bias": 0},
        {"pair_bias": 0},
    ),
    "gates": ({"block_gates": 0.1 + draw(HEADS, 4, 3), "gate_block_size": np.array([6, 7])}, {"block_gates": 0}, {}),
    "padding": ({"key_start": np.array([0, 3]), "key_stop": np.array([17, 20])}, {}, {}),
    "documents": ({"segment_ids": np.repeat([[0, 1], [2, 2]], 10, axis=1)}, {}, {}),
    "a pattern": ({"pattern": Window(6) | Global(0), "causal": True}, {}, {}),
}
ALONE = {
    "a pattern a head": {"pattern": [Window(head + 1) for head in range(HEADS)]},
    "dropout": {"dropout": 0.5, "seed": 1},
}


def computed(query, key, value, grad, options):
    """The result, and all gradients."""
    out, lse = attention(query, key, value, return_lse=True, **options)
    out.backward(grad)
    return (
        out,
        lse,
        [x.grad for x in (query, key, value, *options.values()) if isinstance(x, torch.Tensor) and x.is_leaf],
    )


def gathered(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def check(named, options, placements, *, axes=None, result=None, ndim=4, key_heads=2):
    """Compare results of distributed and of plain tensors; without axes, options are plain tensors."""
    shapes = [
        (BATCH, HEADS, TOKENS, 8),
        (BATCH, key_heads, TOKENS, 8),
        (BATCH, key_heads, TOKENS, 5),
        (BATCH, HEADS, TOKENS, 5),
    ]
    tensors = [draw(*shape[4 - ndim :]) - 0.5 for shape in shapes]
    mesh = dist.init_device_mesh("cpu", (1,) * (len(placements) - 1) + (2,))

    def leaf(x, placed):
        x = x.detach().clone() if placed is None else distribute_tensor(x, mesh, placed)
        return x.requires_grad_(x.is_floating_point())

    def shared(name, x):
        axis = axes.get(name) if axes else None
        placed = None if axes is None else [Replicate() if axis is None else Shard(axis)] * len(placements)
        return leaf(x, placed) if isinstance(x, torch.Tensor) else x

    *plain, grad = tensors
    expected = computed(
        *[leaf(x, None) for x in plain],
        grad,
        {n: leaf(x, None) if torch.is_tensor(x) else x for n, x in options.items()},
    )
    shards = [placements, *[placements if key_heads > 1 else [Replicate()] * len(placements)] * 2]
    arguments = [leaf(x, placed) for x, placed in zip(plain, shards, strict=True)]
    actual = computed(
        *arguments, distribute_tensor(grad, mesh, placements), {n: shared(n, x) for n, x in options.items()}
    )
    assert actual[0].placements == tuple(placements if result is None else result), (named, actual[0].placements)
    for ours, theirs in zip((*actual[:2], *actual[2]), (*expected[:2], *expected[2]), strict=True):
        torch.testing.assert_close(gathered(ours), theirs, rtol=1e-5, atol=1e-5, msg=lambda m: f"{named}: {m}")


def check_all():
    heads, items, both = [Shard(1)], [Shard(0)], [Replicate()]
    for name, (options, of_heads, of_items) in CASES.items():
        check(f"{name}, heads", options, heads, axes=of_heads)
        check(f"{name}, items", options, items, axes=of_items)
    for name in ("a number", "padding", "sinks and slopes"):
        check(f"{name}, plain options", CASES[name][0], heads)
    check("nothing is shared", CASES["spans"][0], both, axes={})
    check("a mesh of two axes", CASES["spans"][0], [Shard(0), Shard(1)], axes={})
    check("without a batch", CASES["spans"][0], [Shard(0)], axes={"span": 0}, ndim=3)
    check("one key head", CASES["spans"][0], heads, axes={"span": 0}, key_heads=1)
    # Gathered first, since every rank needs all of it.
    check("tokens", CASES["spans"][0], [Shard(2)], axes={}, result=both)
    for name, options in ALONE.items():
        check(name, options, heads, result=both)


def test_shards_have_the_numbers_and_gradients_of_plain_tensors():
    ranks.run(check_all, 2)


def test_distributed_tensors_are_imported_only_when_one_is_passed():
    code = "import sys, headspan.torch; print(*sys.modules)"
    loaded = run_python(code).split()
    assert "torch" in loaded
    assert not {"torch.distributed.tensor", "torch._dynamo", "transformers"} & set(loaded)
