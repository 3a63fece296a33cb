"""The operator of torch: the same numbers as headspan's own, and what torch asks of an operator."""

import headspan as hs
import numpy as np
import pytest
from headspan.ops.arguments.options import DIFFERENTIABLE
from headspan.patterns import Blockwise, Global, Window
from option_cases import ARRAYS, OPTIONS, arguments_of
from tensors import as_tensors, same, torch

# These imports need torch, so they follow the line that skips this file without it.
from headspan.torch import attention, schema  # isort: skip

CASES = [*OPTIONS]
OPERATOR = torch.ops.headspan.attention.default
PATTERN = {"pattern": Window(4, ahead=1) | Global(0), "causal": False, "span": np.array([1.2, 2.6, 3.3, 0.4])}
PATTERNS = {"pattern": [Window(3), Blockwise(2), Window(4, dilation=2), Window(2)], "causal": True}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_equal_to_the_numpy_functions_to_the_bit(case, dtype):
    arguments = arguments_of(case, dtype)
    tensors = as_tensors(arguments)
    out, lse = attention(**tensors, return_lse=True)
    (expected, expected_lse), vjp = hs.attention_vjp(**arguments, return_lse=True)
    assert same(out, expected)
    assert same(lse, expected_lse)
    rng = np.random.default_rng(1)
    upstream = [rng.standard_normal(x.shape).astype(dtype) for x in (expected, expected_lse)]
    seen = np.isfinite(expected_lse)  # the log-sum-exp of a query that sees nothing has no gradient
    upstream[1] = np.where(seen, upstream[1], 0).astype(dtype)
    torch.autograd.backward([out, lse], [torch.tensor(x) for x in upstream])
    gradients = vjp(*upstream)
    for name in (*ARRAYS, *DIFFERENTIABLE):
        if name in arguments:
            assert same(tensors[name].grad, getattr(gradients, name)), name


@pytest.mark.parametrize("options", [PATTERN, PATTERNS], ids=["pattern", "patterns"])
def test_patterns_are_those_of_the_numpy_function(options):
    arguments = arguments_of("plain") | options
    assert same(attention(**as_tensors(arguments)), hs.attention(**arguments))


@pytest.mark.parametrize("case", CASES)
def test_gradcheck(case):
    tensors = as_tensors(arguments_of(case))
    learned = {name: x for name, x in tensors.items() if name in (*ARRAYS, *DIFFERENTIABLE)}

    def out(*values):
        return attention(**tensors | dict(zip(learned, values, strict=True)))

    assert torch.autograd.gradcheck(out, tuple(learned.values()), fast_mode=True)


def test_the_cases_have_every_argument_with_a_gradient():
    assert {name for options in OPTIONS.values() for name in options} >= set(DIFFERENTIABLE)


def test_gradcheck_of_the_log_sum_exp():
    tensors = as_tensors(arguments_of("sinks"))

    def lse(query, key, sinks):
        return attention(query, key, tensors["value"], sinks=sinks, span=1.3, return_lse=True)[1]

    assert torch.autograd.gradcheck(lse, [tensors[name] for name in ("query", "key", "sinks")])


# Together, all arguments of the operator.
CHECKED = {
    "what has a gradient": {
        "span": np.linspace(0.15, 6.35, 40).reshape(2, 4, 5),
        "temperature": np.array([0.6, 1.0, 1.2, 3.0]),
        "alibi_slopes": np.array(0.2),
        "sinks": np.array([0.5, -1.0, 0.0, 2.0]),
        "persistent_key": np.linspace(-1, 2, 12).reshape(2, 2, 3),
        "persistent_value": np.linspace(3, -2, 8).reshape(2, 2, 2),
        "key_bias": np.linspace(-2, 2, 7),
        "distance_bias": np.array([0.5, -1.0]),
        "distance_buckets": np.array([1, 0, 0, 1, 0]),
        "pair_bias": np.linspace(-2, 3, 35).reshape(5, 7),
        "block_gates": np.linspace(0.2, 1, 12).reshape(4, 3),
        "gate_block_size": np.array([2, 3]),
        "scale": 0.3,
        "softcap": 1.5,
        "ramp": 2.5,
    },
    "who sees whom": {
        "query_positions": np.array([0, 1.5, 1.5, 4, 9.25]),
        "key_positions": np.array([0, 0, 1.5, 2, 3.75, 4, 11]),
        "key_start": np.array([1, 0]),
        "key_stop": np.array([7, 6]),
        "segment_ids": np.array([5, 5, 5, 1, 1, 1, 1]),
        "include_self": False,
        "dropout": 0.4,
        "seed": np.array(-1),
        "causal": True,
        "pattern": "Window(size=4, ahead=0, dilation=1)\n" * 4,
    },
    "prefixes": {"prefix_lengths": np.array([2, 4])},
    "ranges and segments": {
        "key_ranges": np.stack([np.arange(5), np.arange(5) + 3], axis=-1),
        "query_segments": np.array([0, 0, 1, 1, 1]),
        "key_segments": np.array([0, 0, 0, 1, 1, 1, 1]),
    },
}


@pytest.mark.parametrize("lse", [False, True])
@pytest.mark.parametrize("options", CHECKED.values(), ids=CHECKED)
def test_opcheck(options, lse):
    tensors = as_tensors(arguments_of("plain") | options)
    query, key, value = (tensors.pop(name) for name in ARRAYS)
    torch.library.opcheck(OPERATOR, (query, key, value), tensors | {"return_lse": lse})


@pytest.mark.parametrize("options", CHECKED.values(), ids=CHECKED)
def test_opcheck_of_the_backward_operator(options):
    arguments = as_tensors(arguments_of("plain") | options, needs=())
    tensors = [arguments.get(name) for name in schema.TENSORS]
    plain = {name: arguments[name] for name in schema.PLAIN if name in arguments}
    with torch.no_grad():
        out, lse, statistics = OPERATOR(*tensors, **plain, return_lse=True, return_statistics=True)
    needs = [tensors[schema.WITH_GRADIENT.index(name)] is not None for name in schema.WITH_GRADIENT]
    saved = (torch.randn_like(out), torch.zeros_like(lse), out, statistics)
    backward = torch.ops.headspan.attention_backward.default
    torch.library.opcheck(backward, (*saved, *tensors), plain | {"needs": needs})


def test_opcheck_sees_every_argument():
    names = {name for options in CHECKED.values() for name in options}
    assert names | set(ARRAYS) == {*schema.TENSORS, *schema.PLAIN}


SDPA = {
    "causal": ({"causal": True}, {"is_causal": True}),
    "both directions": ({"causal": False}, {}),
    "a mask": ({"causal": False, "pair_bias": "mask"}, {"attn_mask": "mask"}),
    "a scale": ({"causal": True, "scale": 0.3}, {"is_causal": True, "scale": 0.3}),
    "shared keys": ({"causal": True}, {"is_causal": True, "enable_gqa": True}),
}


@pytest.mark.parametrize("ours", SDPA)
def test_equal_to_scaled_dot_product_attention(ours):
    """Values and gradients in float32, of views as models make them."""
    options, theirs = SDPA[ours]
    key_heads = 2 if "enable_gqa" in theirs else 6
    torch.manual_seed(0)
    mask = torch.randn(150, 150).masked_fill(torch.rand(150, 150) < 0.3, float("-inf"))
    results = []
    for function, arguments in ((attention, options), (torch.nn.functional.scaled_dot_product_attention, theirs)):
        torch.manual_seed(1)
        made = [torch.randn(2, 150, heads, 32, requires_grad=True) for heads in (6, key_heads, key_heads)]
        arguments = {name: mask if x == "mask" else x for name, x in arguments.items()}
        out = function(*(x.transpose(1, 2) for x in made), **arguments)
        upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
        results.append([out, *torch.autograd.grad(out, made, upstream)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6 * float(other.detach().abs().max() + 1))


@pytest.mark.parametrize("shape", [(5, 3), (4, 5, 3), (0, 4, 5, 3), (2, 4, 0, 3)])
def test_fewer_axes_and_empty_tensors(shape):
    query = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    key = torch.randn((*shape[:-2], 6, 3), dtype=torch.float64, requires_grad=True)
    out, lse = attention(query, key, key, span=2.5, ramp=3, return_lse=True)
    expected = hs.attention(query.detach(), key.detach(), key.detach(), span=2.5, ramp=3, return_lse=True)
    assert same(out, expected[0])
    assert same(lse, expected[1])
    (out.sum() + lse.sum()).backward()
    assert query.grad.shape == shape
    assert torch.isfinite(key.grad).all()


def test_one_tensor_as_query_key_and_value():
    x = torch.randn(1, 2, 9, 4, dtype=torch.float64, requires_grad=True)
    attention(x, x, x, span=2.5, ramp=3).square().sum().backward()
    parts = [x.detach().clone().requires_grad_() for _ in range(3)]
    attention(*parts, span=2.5, ramp=3).square().sum().backward()
    torch.testing.assert_close(x.grad, parts[0].grad + parts[1].grad + parts[2].grad)
    assert torch.autograd.gradcheck(lambda x: attention(x, x, x, span=2.5, ramp=3), x)
