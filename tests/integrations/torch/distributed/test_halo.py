"""Attention over tokens on several ranks: the numbers of one process, and the bytes that `cost` states."""

import headspan as hs
import numpy as np
import pytest
import ranks
from headspan.patterns import Blockwise, Fixed, Full, Global, Random, Strided, Window
from tensors import torch

import torch.distributed as dist  # isort: skip
from torch.utils.checkpoint import checkpoint  # isort: skip
from headspan.torch import attention, halo_attention  # isort: skip

HEADS = 4
# The numbers of tokens on three ranks; two ranks have the first two.
LENGTHS = {
    "even": (64, 64, 64),
    "uneven": (70, 51, 79),
    "reach over several": (90, 3, 40),
    "an empty slice": (0, 75, 30),
    "a short text": (7, 5, 9),
}
CASES = {
    "spans": {"span": [0.0, 2.5, 20.0, 100.0]},
    "both ways": {"span": [0.0, 2.5, 20.0, 100.0], "causal": False, "alibi_slopes": [0.1, 0.2, 0.0, 0.3]},
    "no halo": {"span": 0.0, "ramp": 0.0},
    "no limit": {"softcap": 3.0},
    "all see all": {"causal": False},
    "not itself": {"span": 9.0, "ramp": 7.5, "include_self": False, "sinks": [0.0, 1.0, 2.0, -1.0]},
    "shared keys": {"span": [0.0, 9.0, 30.0, 1.0], "ramp": 1.0, "key_heads": 2, "causal": False},
    "batch items": {"span": [[1.0, 2.0, 3.0, 4.0], [50.0, 0.0, 7.0, 9.0]], "ramp": 3.0, "key_heads": 1},
    "spans of tokens": {"span": "drawn", "ramp": 5.0, "temperature": "drawn"},
    "spans of tokens, both ways": {"span": "drawn", "ramp": 0.0, "causal": False, "key_heads": 2},
    "a table": {"span": 15.0, "ramp": 4.0, "distance_bias": np.linspace(-1, 1, 17), "causal": False},
    "a window": {"pattern": Window(21, 10), "span": [9.0, 99.0, 99.0, 0.0], "ramp": 2.0, "causal": False},
    "a window in steps": {"pattern": Window(10, 4, dilation=2), "causal": True},
    "small blocks": {"pattern": Blockwise(20, 1, 1), "span": 30.0, "causal": False},
    "large blocks": {"pattern": Blockwise(50, back=1) & Window(31), "distance_bias": np.linspace(-1, 1, 9)},
    "strides": {"pattern": Window(6) | Strided(3) | Strided(4, 1), "span": 40.0},
    "columns": {"pattern": Fixed(16, 3) | Window(9), "span": 60.0},
    "a pattern a head": {"pattern": [Window(4), Window(41), Full(), Blockwise(33)], "span": 25.0},
    "in float64": {"span": [0.0, 2.5, 20.0, 100.0], "dtype": torch.float64},
    "in bfloat16": {"span": [0.0, 2.5, 20.0, 100.0], "dtype": torch.bfloat16},
}


# Errors of gradients, which are summed in another order.
ERRORS = {torch.float32: 2e-6, torch.float64: 1e-13, torch.bfloat16: 0.02}


def drawn(lengths, *, key_heads=HEADS, dtype=torch.float32, **options):
    """The arguments of all tokens, and the gradient of the output."""
    generator = torch.Generator().manual_seed(0)
    tokens = sum(lengths)
    tensors = {
        name: torch.randn(2, heads, tokens, dim, generator=generator).to(dtype)
        for name, heads, dim in (
            *(("query", HEADS, 8), ("key", key_heads, 8)),
            *(("value", key_heads, 5), ("grad", HEADS, 5)),
        )
    }
    for name in options:
        if isinstance(options[name], str):
            options[name] = 1 + 40 * torch.rand(2, HEADS, tokens, generator=generator) ** 3
    return tensors.pop("grad"), tensors | options


def learned(arguments):
    """Copies of arguments; those that can have a gradient require one."""
    copies = {}
    for name, value in arguments.items():
        has_gradient = name in (
            "query",
            "key",
            "value",
            "span",
            "alibi_slopes",
            "sinks",
            "temperature",
            "distance_bias",
        )
        tensor = value if torch.is_tensor(value) or not has_gradient else torch.tensor(value, dtype=torch.float64)
        copies[name] = tensor.detach().clone().requires_grad_() if has_gradient else value
    return copies


def check_case(named, lengths, case):
    """One rank's part of the test."""
    grad, arguments = drawn(lengths, **case)
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    rank = dist.get_rank()
    start = sum(lengths[:rank])

    def local_part(x):
        return x[:, :, start : start + lengths[rank]] if torch.is_tensor(x) and x.ndim >= 3 else x

    alone, shared = learned(arguments), learned({name: local_part(x) for name, x in arguments.items()})
    expected = attention(**alone)
    expected.backward(grad)
    sent = []
    out = halo_attention(**shared)
    assert torch.equal(out, local_part(expected)), named
    original, dist.all_to_all_single = dist.all_to_all_single, counted(sent)
    try:
        halo_attention(**shared).backward(local_part(grad))
    finally:
        dist.all_to_all_single = original
    for name, tensor in shared.items():
        if torch.is_tensor(tensor) and tensor.requires_grad:
            gradient, expected_gradient = tensor.grad, local_part(alone[name].grad)
            if tensor.ndim < 3:
                dist.all_reduce(gradient)
            scale = max(1.0, alone[name].grad.abs().max().item())
            error = (gradient - expected_gradient).abs().max().item() if expected_gradient.numel() else 0.0
            assert error <= ERRORS[query.dtype] * scale, (named, name, error)
    sizes = {"tokens": sum(lengths), "num_heads": HEADS, "batch": 2, "ranks": lengths, "num_key_heads": key.shape[1]}
    sizes["dtype"] = str(query.dtype).removeprefix("torch.")
    options = {name: x for name, x in arguments.items() if name not in ("query", "key", "value")}
    # A cost has one head_dim; here keys and values differ.
    costs = [hs.cost(**sizes, head_dim=x.shape[3], **options).sent_bytes for x in (key, value)]
    for ours in sent[-2:]:  # forward and backward
        of_all = torch.tensor(ours)
        dist.all_reduce(of_all)
        assert 2 * of_all == sum(costs), named


def counted(sent):
    """A function that sends as torch does and notes the number of bytes."""
    original = dist.all_to_all_single

    def send(into, x, into_sizes, sizes, group):
        assert sizes[dist.get_rank()] == 0
        assert x.dtype == torch.uint8
        sent.append(sum(sizes))
        return original(into, x, into_sizes, sizes, group=group)

    return send


def check_all():
    count = dist.get_world_size()
    for lengths_name, lengths in LENGTHS.items():
        if count == 3 or lengths_name in ("uneven", "an empty slice"):
            for name, case in CASES.items():
                check_case(f"{name}, {lengths_name}", lengths[:count], case)
    check_mesh_checkpoint_and_group()
    check_mismatched_ranks()


def check_mesh_checkpoint_and_group():
    """Check a mesh, a checkpoint under autocast, and a group of some of the ranks."""
    _, arguments = drawn((70, 51), span=30.0)
    rank = dist.get_rank()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    parts = {name: arguments[name].tensor_split(dist.get_world_size(), 2)[rank] for name in ("query", "key", "value")}
    expected = attention(**arguments)
    out = halo_attention(**parts, span=30.0, group=mesh)
    assert torch.equal(out, expected.tensor_split(dist.get_world_size(), 2)[rank])
    with torch.autocast("cpu", torch.bfloat16):
        narrow = parts | {"value": parts["value"].bfloat16().requires_grad_()}
        checkpoint(halo_attention, *narrow.values(), span=30.0, seed=1, use_reentrant=False).sum().backward()
        wide = arguments | {"value": arguments["value"].bfloat16().requires_grad_()}
        attention(**wide).sum().backward()
    expected_gradient = wide["value"].grad.tensor_split(dist.get_world_size(), 2)[rank]
    torch.testing.assert_close(narrow["value"].grad, expected_gradient, rtol=0.02, atol=0.02)
    pair = dist.new_group([0, 1])
    if rank < 2:
        parts = {name: arguments[name].tensor_split(2, 2)[rank] for name in ("query", "key", "value")}
        assert torch.equal(halo_attention(**parts, span=30.0, group=pair), expected.tensor_split(2, 2)[rank])


def check_mismatched_ranks():
    """If tensors differ between ranks, all ranks raise an error, and none waits for the others."""
    query, key, value = torch.randn(3, 1, 2 + dist.get_rank(), 9, 4)
    with pytest.raises(
        ValueError, match=r"batch, heads, .* must be the same on all ranks, not \[1, 2, 2, 4, 4, 4\] and"
    ):
        halo_attention(query, key, value)


@pytest.mark.parametrize("count", [2, 3])
def test_slices_have_the_numbers_of_all_tokens_and_send_only_the_halo(count):
    ranks.run(check_all, count)


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


WRONG = {
    "key_positions": (
        np.arange(9),
        "key_positions has no halo; omit it if tokens are distributed over ranks, or gather",
    ),
    "segment_ids": (np.zeros(9, int), "segment_ids has no halo"),
    "key_stop": (9, "key_stop has no halo"),
    "key_bias": (np.zeros(9), "key_bias has no halo"),
    "pair_bias": (np.zeros((9, 9)), "pair_bias has no halo"),
    "dropout": (0.5, "dropout has no halo"),
    "pattern": (
        Window(4) | Global(0),
        "pattern must consist of Full, Window, Strided, Fixed, Blockwise, not Global, which has no halo",
    ),
    "pattern of one's own": (
        Random(2, 4),
        "pattern must consist of Full, Window, Strided, Fixed, Blockwise, not Random",
    ),
    "span": (-1.0, "span must be non-negative, got -1"),
    "causal": (1, "causal must be True or False, not 1"),
    "ramp": (-1, "ramp must be at least 0, not -1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_without_a_halo_are_refused(name, one_rank):
    wrong, says = WRONG[name]
    query, key, value = torch.randn(3, 1, 2, 9, 4)
    with pytest.raises((ValueError, TypeError)) as raised:
        halo_attention(query, key, value, **{name.split()[0]: wrong})
    assert str(raised.value).startswith(says)


def test_a_call_without_ranks_says_how_to_start_them():
    with pytest.raises(
        ValueError, match=r"halo_attention requires ranks; call torch\.distributed\.init_process_group first"
    ):
        halo_attention(*torch.randn(3, 1, 2, 9, 4))


def test_mismatched_tensors(one_rank):
    query, key, value = torch.randn(3, 1, 2, 9, 4)
    for wrong, says in (
        (
            (query[0], key[0], value[0]),
            r"query must have the axes \(batch, heads, tokens, head_dim\), not shape \(2, 9, 4\)",
        ),
        (
            (query, key.double(), value),
            r"key is torch\.float64 but query is torch\.float32; key\.to\(torch\.float32\) makes",
        ),
        ((query, key[:, :, 1:], value), r"query, key and value must have the same tokens of this rank, and key"),
        (
            (query, key, value[:, :1]),
            r"query, key and value must have the same tokens of this rank, and key and value the same heads",
        ),
        ((query[:, :1], key, value), r"num_heads must be a multiple of num_key_heads, not 1 and 2"),
        ((query, key, value.numpy()), r"value must be a tensor of torch, not ndarray"),
    ):
        with pytest.raises((ValueError, TypeError), match=says):
            halo_attention(*wrong)
    with pytest.raises(
        ValueError, match=r"group must be a mesh of one dimension, such as mesh\['sequence'\], not of 2"
    ):
        halo_attention(query, key, value, group=dist.init_device_mesh("cpu", (1, 1)))
    with pytest.raises(TypeError, match=r"unknown option 'spam'; did you mean 'span'\?"):
        halo_attention(query, key, value, spam=3)
