"""16-bit floats: bitwise equal to the NumPy function, and only 16-bit arrays saved for the backward pass."""

import headspan as hs
import numpy as np
import pytest
from option_cases import ARRAYS, OPTIONS, arguments_of
from tensors import same, torch, warnings_of_torch
from torch.func import grad, vmap

from headspan.torch import attention  # isort: skip

ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs ml_dtypes for arrays of bfloat16")
TYPES = {torch.float16: np.dtype(np.float16), torch.bfloat16: np.dtype(ml_dtypes.bfloat16)}
OF_TYPE = (*ARRAYS, "pair_bias", "persistent_key", "persistent_value")
types = pytest.mark.parametrize("dtype", TYPES, ids=str)


def narrow_arguments(case, dtype):
    arguments = arguments_of(case, np.float32)
    return {name: x.astype(TYPES[dtype]) if name in OF_TYPE else x for name, x in arguments.items()}


def as_tensor(array, **options):
    if array.dtype.itemsize != 2:
        return torch.tensor(array, **options)
    dtype = next(one for one, other in TYPES.items() if other == array.dtype)
    return torch.tensor(array.view(np.int16)).view(dtype).requires_grad_(options.get("requires_grad", False))


def bits(tensor):
    return tensor.detach().contiguous().view(torch.int16)


@types
@pytest.mark.parametrize("case", OPTIONS)
def test_equal_to_the_numpy_function_to_the_bit(case, dtype):
    arguments = narrow_arguments(case, dtype)
    tensors = {
        name: as_tensor(x, requires_grad=x.dtype.kind != "i") if isinstance(x, np.ndarray) else x
        for name, x in arguments.items()
    }
    out, lse = attention(**tensors, return_lse=True)
    (expected, expected_lse), vjp = hs.attention_vjp(**arguments, return_lse=True)
    assert out.dtype == dtype
    assert same(bits(out), expected.view(np.int16))
    assert same(lse, expected_lse)
    rng = np.random.default_rng(1)
    upstream = rng.standard_normal(expected.shape).astype(TYPES[dtype])
    seen = np.isfinite(expected_lse)  # the log-sum-exp of a query that sees nothing has no gradient
    upstream_lse = np.where(seen, rng.standard_normal(expected_lse.shape), 0).astype(np.float32)
    torch.autograd.backward([out, lse], [as_tensor(upstream), as_tensor(upstream_lse)])
    gradients = vjp(upstream, upstream_lse)
    for name, array in arguments.items():
        if isinstance(array, np.ndarray) and tensors[name].grad is not None:
            theirs = getattr(gradients, name)
            if name in OF_TYPE:
                assert tensors[name].grad.dtype == dtype
                assert same(bits(tensors[name].grad), theirs.astype(TYPES[dtype]).view(np.int16)), name
            else:
                assert same(tensors[name].grad, theirs), name


def qkv(dtype, *leading):
    torch.manual_seed(0)
    return [torch.randn(*leading, 2, 4, 9, 3, dtype=dtype, requires_grad=not leading) for _ in range(3)]


@types
@pytest.mark.parametrize("lse", [False, True])
def test_opcheck(dtype, lse):
    operator = torch.ops.headspan.attention.default
    span = torch.tensor([0.5, 1.5, 2.5, 3.25], dtype=dtype, requires_grad=True)
    torch.library.opcheck(operator, tuple(qkv(dtype)), {"span": span, "return_lse": lse})
    tensors = [x.detach() for x in qkv(dtype)]
    out, exact, statistics = operator(*tensors, return_statistics=True)
    assert (exact.dtype, statistics.dtype) == (torch.float32, torch.float32)
    saved = (torch.randn_like(out), None, exact, statistics)
    backward = torch.ops.headspan.attention_backward.default
    torch.library.opcheck(backward, (*saved, *tensors), {"needs": [True, True, True]})


@types
def test_saved_tensors_are_as_narrow_as_the_arguments(dtype):
    kept = []
    tensors = qkv(dtype)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        attention(*tensors, span=2.5)
    assert [x.dtype for x in kept].count(torch.float32) == 2  # the result and its statistics
    for tensor in tensors:
        assert any(x.data_ptr() == tensor.data_ptr() for x in kept)


@types
def test_compiled_mapped_and_the_gradients_of_each_call(dtype):
    def loss(query, key, value):
        return attention(query, key, value, span=2.5, ramp=3).float().square().sum()

    tensors = qkv(dtype)
    expected = torch.autograd.grad(loss(*tensors), tensors)
    with warnings_of_torch():
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        gradients = torch.autograd.grad(compiled(*tensors), tensors)
    mapped = vmap(grad(loss, (0, 1, 2)))(*(torch.stack([x.detach(), x.detach() / 2]) for x in tensors))
    for one, other, each in zip(expected, gradients, mapped, strict=True):
        assert torch.equal(one, other)
        assert each.dtype == dtype
        torch.testing.assert_close(each[0], one)
