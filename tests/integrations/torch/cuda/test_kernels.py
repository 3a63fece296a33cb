"""The kernels of Triton against the core: values and all gradients, for every option that the kernels take."""

import headspan as hs
import numpy as np
import pytest
import torch
from cases import seeds
from headspan.ops.arguments.options import DIFFERENTIABLE, options_in
from headspan.ops.arguments.rows import In
from headspan.patterns import Blockwise, Full, Window
from headspan.torch import attention
from option_cases import ARRAYS, OPTIONS, make_arrays

# NumPy warns of NaN and of products of 64-bit words in Triton's interpreter.
pytestmark = [pytest.mark.filterwarnings("ignore:invalid value"), pytest.mark.filterwarnings("ignore:overflow")]

TAKEN = options_in(In.CUDA)
SUPPORTED = {name: options for name, options in OPTIONS.items() if options.keys() <= set(TAKEN)} | {
    "positions per batch": {"query_positions": [[0, 1, 2, 3, 8], [0, 0, 3, 3, 3]], "causal": False, "span": 1.6},
    "positions": {"query_positions": [1, 2, 3, 3, 6], "span": 2.7, "ramp": 3, "alibi_slopes": 0.2},
    "window": {"pattern": Window(3), "span": 1.3, "ramp": 2},
    "window both ways": {"pattern": Window(2, ahead=2), "causal": False, "alibi_slopes": 0.2},
    "blocks and a window": {"pattern": Blockwise(3) | Window(2), "sinks": 0.5},
    "a pattern for each head": {"pattern": [Window(2), Full(), Blockwise(2, back=1), Window(4) & Blockwise(4)]},
    "a window and padding": {"pattern": Window(4), "key_start": [1, 0], "key_stop": [6, 7]},
    "segments and dropout": {"segment_ids": [[5, 5, 5, 1, 1, 1, 1], [0, 0, 1, 2, 2, 2, 2]], "dropout": 0.3, "seed": 1},
}
REFUSED = {name: options for name, options in OPTIONS.items() if not options.keys() <= set(TAKEN)}
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def to_tensor(x, dtype, device, needs_gradient):
    """Return an array as a leaf on the device, floats in the given type."""
    tensor = torch.as_tensor(np.asarray(x))
    if tensor.is_floating_point():
        tensor = tensor.to(dtype)
    return tensor.to(device).requires_grad_(needs_gradient)


def compare(arrays, options, device, dtype, layout=None):
    """Compare the output, the log-sum-exp and all gradients with those of the core in float64."""
    inputs = dict(zip(ARRAYS, arrays, strict=True)) | options
    # The type of arrays rounds numbers; options stay in float32 where these have 16 bits.
    of_option = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    tensors = {
        name: to_tensor(x, dtype if name in ARRAYS else of_option, device, name in (*ARRAYS, *DIFFERENTIABLE))
        if name in (*ARRAYS, *DIFFERENTIABLE)
        else x
        for name, x in inputs.items()
    }
    exact = {
        name: x.detach().cpu().double().numpy() if isinstance(x, torch.Tensor) else x for name, x in tensors.items()
    }
    passed = {name: layout(x) if layout and name in ARRAYS else x for name, x in tensors.items()}
    out, lse = attention(**passed, return_lse=True)
    (exact_out, exact_lse), vjp = hs.attention_vjp(**exact, return_lse=True)
    rng = np.random.default_rng(0)
    grad_out = torch.as_tensor(rng.standard_normal(out.shape)).to(dtype)
    grad_lse = torch.as_tensor(np.where(np.isfinite(exact_lse), rng.standard_normal(lse.shape), 0)).to(lse.dtype)
    exact_gradients = vjp(grad_out.double().numpy(), grad_lse.double().numpy())
    torch.autograd.backward([out, lse], [grad_out.to(device), grad_lse.to(device)])
    pairs = {"out": (out, exact_out), "lse": (lse, exact_lse)}
    pairs |= {name: (x.grad, getattr(exact_gradients, name)) for name, x in tensors.items() if torch.is_tensor(x)}
    for name, (result, expected) in pairs.items():
        assert result is not None, name
        # The gradient of an option sums over the rows that share a number; the error of a sum of float32 shows it.
        is_sum = name in DIFFERENTIABLE and dtype is torch.float32
        bound = TOLERANCES[dtype] * (max(1, lse.numel() / expected.size) ** 0.5 if is_sum else 1)
        scale = max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=0))
        np.testing.assert_allclose(
            result.detach().cpu().double().numpy(), expected, rtol=0, atol=bound * scale, err_msg=name
        )


@pytest.mark.parametrize("name", SUPPORTED)
def test_option(name, device):
    compare(make_arrays(), SUPPORTED[name], device, torch.float64)


@pytest.mark.parametrize("name", REFUSED)
def test_other_options_are_refused_by_name(name, device):
    query, key, value = (torch.from_numpy(x).to(device) for x in make_arrays())
    with pytest.raises(NotImplementedError, match=r"\w+ (is not supported|must be integers) on"):
        attention(query, key, value, **REFUSED[name])


LENGTHS = (1, 63, 64, 65, 129, 200)


def draw(seed):
    """Return arrays and options of a random call."""
    rng = np.random.default_rng(seed)
    batch, group, key_heads = (int(rng.integers(1, 3)) for _ in range(3))
    heads, dims = group * key_heads, [int(n) for n in rng.choice([8, 16, 24, 64, 80, 128], 2)]
    keys = int(rng.choice(LENGTHS))
    queries = keys if rng.random() < 0.6 else int(rng.choice([n for n in LENGTHS if n <= keys]))
    arrays = [
        rng.standard_normal(shape)
        for shape in (
            (batch, heads, queries, dims[0]),
            (batch, key_heads, keys, dims[0]),
            (batch, key_heads, keys, dims[1]),
        )
    ]
    options = {}
    if rng.random() < 0.75:
        shape = [(), (heads,), (batch, heads), (batch, heads, queries), (batch, 1, queries)][rng.integers(5)]
        options["span"] = np.round(4 * rng.random(shape) * keys * rng.choice([0.1, 1.2])) / 4
        options["ramp"] = float(rng.choice([0, 1, 8, 32, 50.5]))
    causal = bool(rng.random() < 0.7)
    options["causal"] = causal
    if rng.random() < 0.2:
        options["include_self"] = False
    if rng.random() < 0.3:
        options["temperature"] = rng.uniform(0.5, 2, [(heads,), (batch, heads, queries)][rng.integers(2)])
    if rng.random() < 0.3:
        options["alibi_slopes"] = rng.uniform(0, 0.1, (heads,))
    if rng.random() < 0.3:
        options["softcap"] = float(rng.uniform(1, 20))
    if rng.random() < 0.3:
        options["sinks"] = rng.standard_normal(heads)
    if rng.random() < 0.2:
        options["scale"] = float(rng.uniform(0.05, 0.3))
    if rng.random() < 0.25:
        options |= {"dropout": float(rng.uniform(0.05, 0.5)), "seed": int(rng.integers(2**62))}
    limit = rng.random()
    if limit < 0.15:
        options["key_stop"] = rng.integers(0, keys + 1, batch)
    elif limit < 0.3:
        options["key_start"] = rng.integers(0, keys + 1, batch)
    elif limit < 0.45:
        ends = np.sort(rng.integers(0, keys + 1, (batch, queries, 2)), axis=-1)
        options["key_ranges"] = ends
    elif limit < 0.6:
        options["segment_ids"] = np.sort(rng.integers(0, 4, (batch, keys)), axis=-1)
    elif limit < 0.7 and causal:
        options["prefix_lengths"] = int(rng.integers(0, keys + 1))
    elif limit < 0.85:
        options["pattern"] = [Window(int(rng.integers(0, 70)) + 1), Blockwise(int(rng.integers(1, 70)), back=1)][
            rng.integers(2)
        ]
    return arrays, options


@pytest.mark.parametrize("seed", seeds("HEADSPAN_GPU_CASES", 200, few=4))
def test_random_call(seed, device):
    arrays, options = draw(seed)
    compare(arrays, options, device, torch.float32 if seed % 4 else torch.float64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(200, 202))
def test_random_call_in_16_bits(seed, dtype, device):
    if dtype is torch.bfloat16 and device.type == "cpu":
        pytest.skip("Triton's interpreter multiplies the bits of bfloat16 as integers")
    arrays, options = draw(seed)
    compare(arrays, options, device, dtype)


@pytest.mark.parametrize("dim", [1, 16, 256])
def test_head_dims(dim, device):
    arrays = np.random.default_rng(0).standard_normal((3, 1, 2, 40, dim))
    compare(arrays, {"span": 9.3, "ramp": 4}, device, torch.float32)


def test_strides_are_arbitrary(device):
    rng = np.random.default_rng(0)
    layouts = {
        "heads adjacent": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        "last axis strided": lambda x: x.repeat_interleave(2, -1)[..., ::2],
        "part of a longer array": lambda x: torch.cat([x, x], 2)[:, :, : x.shape[2]],
    }
    for layout in layouts.values():
        compare(rng.standard_normal((3, 2, 2, 70, 16)), {"span": [3.0, 50.0]}, device, torch.float32, layout=layout)


@pytest.mark.parametrize("shape", [(20, 8), (3, 20, 8)])
def test_leading_axes_may_be_omitted(shape, device):
    arrays = np.random.default_rng(0).standard_normal((3, *shape))
    compare(
        arrays, {"span": 5.5, "temperature": np.linspace(1, 2, 20 if len(shape) == 2 else 3)}, device, torch.float64
    )


def test_queries_without_keys_are_zero(device):
    query, key, value = torch.randn(3, 1, 2, 70, 16, device=device).requires_grad_()
    out, lse = attention(query, key, value, key_start=65, return_lse=True)
    assert (out[:, :, :65] == 0).all()
    assert (lse[:, :, :65] == -torch.inf).all()
    (gradient,) = torch.autograd.grad(out.sum(), query)
    assert (gradient[:, :, :65] == 0).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_keys_out_of_reach_are_not_read(poison, device):
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((3, 1, 2, 150, 16))
    clean = [torch.tensor(x, dtype=torch.float32, device=device) for x in arrays]
    dirty = [x.clone() for x in clean]
    dirty[1][:, :, 100:], dirty[2][:, :, 100:] = poison, poison
    dirty[0][:, :, :30] = poison  # queries that see no key
    options = {"key_start": 30, "key_stop": 100, "span": 40.0}
    results = []
    for tensors in (clean, dirty):
        leaves = [x.requires_grad_() for x in tensors]
        out = attention(*leaves, **options)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for expected, result in zip(*results, strict=True):
        assert torch.equal(expected, result)


def test_every_run_has_the_same_bits(device):
    torch.manual_seed(0)
    leaves = [torch.randn(2, 4, 300, 32, device=device, requires_grad=True) for _ in range(3)]
    leaves.append(torch.rand(4, device=device).mul(200).requires_grad_())
    runs = []
    for _ in range(3):
        out = attention(*leaves[:3], span=leaves[3], dropout=0.1, seed=1)
        runs.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], run, strict=True))


def test_no_keys_and_no_queries(device):
    value = torch.randn(2, 3, 4, 8, device=device, requires_grad=True)
    out = attention(value[:, :, :0], value, value)
    assert out.shape == (2, 3, 0, 8)
    out.sum().backward()
    assert (value.grad == 0).all()


def test_wrong_arguments_get_the_sentences_of_the_cpu(device):
    value = torch.randn(2, 4, 8, 16, device=device)
    with pytest.raises(ValueError, match="span must be a number or of shape"):
        attention(value, value, value, span=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="key_ranges must be of shape"):
        attention(value, value, value, key_ranges=np.zeros((3, 2), int))
    with pytest.raises(ValueError, match="dropout requires a seed"):
        attention(value, value, value, dropout=0.1)
    with pytest.raises(NotImplementedError, match="one range of keys for each query"):
        attention(value, value, value, pattern=hs.patterns.Strided(2))
    wide = torch.zeros(1, 1, 2, 300, device=device)
    with pytest.raises(NotImplementedError, match="head_dim must be at most 256"):
        attention(wide, wide, wide)
