"""Hierarchical attention of tensors: the numbers of the function for arrays, and what torch does with it."""

import re

import headspan as hs
import numpy as np
import pytest
from bad_calls import QKV, TABLE
from bad_values import check_sentence
from tensors import same, torch, warnings_of_torch, with_conversions_of_torch
from torch.utils.checkpoint import checkpoint

from headspan.torch import hierarchical_attention  # isort: skip

ARRAYS = ("query", "key", "value")


def drawn(queries=41, tokens=90, dtype=torch.float64, grad=True):
    torch.manual_seed(0)
    sizes = ((4, queries, 6), (2, tokens, 6), (2, tokens, 5))
    return [torch.randn(2, *size, dtype=dtype, requires_grad=grad) for size in sizes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("tokens", "queries"), [(1, 1), (90, 90), (90, 41), (333, 1)])
@pytest.mark.parametrize("side", [1, 7, 16, 400])
def test_equal_to_the_function_for_arrays_to_the_bit(side, tokens, queries, dtype):
    tensors = drawn(queries, tokens, dtype)
    sinks = torch.tensor([0.5, -1, 0, 2], dtype=dtype, requires_grad=True)
    options = {"block_size": side, "scale": 0.5, "softcap": 3.0, "return_lse": True}
    out, lse = hierarchical_attention(*tensors, sinks=sinks, **options)
    arrays = [x.detach().numpy() for x in tensors]
    (expected, expected_lse), vjp = hs.sparse.hierarchical_attention_vjp(
        *arrays, sinks=sinks.detach().numpy(), **options
    )
    assert same(out, expected)
    assert same(lse, expected_lse)
    upstream = [torch.randn(x.shape, dtype=dtype) for x in (out, lse)]
    torch.autograd.backward([out, lse], upstream)
    gradients = vjp(*(x.numpy() for x in upstream))
    for name, tensor in zip((*ARRAYS, "sinks"), (*tensors, sinks), strict=True):
        assert same(tensor.grad, getattr(gradients, name)), name


def test_gradcheck():
    tensors = drawn(9, 40)
    sinks = torch.tensor([0.5, -1, 0, 2], dtype=torch.float64, requires_grad=True)

    def results(*tensors):
        return hierarchical_attention(*tensors[:3], sinks=tensors[3], block_size=3, return_lse=True)

    assert torch.autograd.gradcheck(results, [*tensors, sinks], fast_mode=True)


@pytest.mark.parametrize("shape", [(30, 6), (2, 30, 6)])
def test_fewer_axes(shape):
    tensors = [torch.randn(shape, dtype=torch.float64) for _ in range(3)]
    assert same(
        hierarchical_attention(*tensors, block_size=4), hs.sparse.hierarchical_attention(*tensors, block_size=4)
    )


@pytest.mark.parametrize("dynamic", [None, True])
def test_compiled_as_one_graph_for_each_length(dynamic):
    with warnings_of_torch():
        compiled = torch.compile(hierarchical_attention, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        for tokens in (90, 91, 40):
            results = []
            for function in (hierarchical_attention, compiled):
                tensors = drawn(41 if tokens > 41 else 1, tokens)
                out = function(*tensors, block_size=7)
                results.append([out, *torch.autograd.grad(out.square().sum(), tensors)])
            for ours, theirs in zip(*results, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_checkpointed_exported_and_mapped():
    tensors = drawn()
    expected = hierarchical_attention(*tensors, block_size=7)
    wanted = torch.autograd.grad(expected.square().sum(), tensors)
    again = checkpoint(lambda *x: hierarchical_attention(*x, block_size=7), *tensors, use_reentrant=False)
    for ours, theirs in zip(torch.autograd.grad(again.square().sum(), tensors), wanted, strict=True):
        assert torch.equal(ours, theirs)

    class Model(torch.nn.Module):
        def forward(self, query, key, value):
            return hierarchical_attention(query, key, value, block_size=7)

    plain = [x.detach() for x in tensors]
    with warnings_of_torch():
        exported = torch.export.export(Model(), tuple(plain))
    torch.testing.assert_close(exported.module()(*plain), expected.detach())

    def loss(*tensors):
        return hierarchical_attention(*tensors, block_size=7).square().sum()

    stacked = [torch.stack([x, x / 2]) for x in plain]
    gradients = torch.func.vmap(torch.func.grad(loss, (0, 1, 2)))(*stacked)
    for ours, theirs in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(ours[0], theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_means_of_narrow_types_are_rounded_once(dtype):
    """As if all keys and means were stored in that type."""
    narrow = [x.detach().to(dtype).requires_grad_() for x in drawn(200, 200)]
    out = hierarchical_attention(*narrow, block_size=4)
    wide = [x.detach().float() for x in narrow]
    exact = hierarchical_attention(*wide, block_size=4)
    assert out.dtype == dtype
    assert (out - exact).abs().max() < 4 * torch.finfo(dtype).eps * exact.abs().max()
    out.float().sum().backward()
    assert all(x.grad.dtype == dtype and torch.isfinite(x.grad).all() for x in narrow)


def test_shapes_on_meta():
    query, key, value = (torch.empty(2, 4, tokens, 6, device="meta") for tokens in (41, 90, 90))
    out, lse = hierarchical_attention(query, key, value, block_size=7, return_lse=True)
    assert (out.shape, lse.shape, out.device.type) == ((2, 4, 41, 6), (2, 4, 41), "meta")


ROWS = [
    pytest.param(argument, value, id=f"{argument}-{what}")
    for argument, rows in TABLE["sparse.hierarchical_attention"].items()
    for what, _, value in rows
    if (argument, what) != ("query", "float16")  # float16 is supported if key and value have it, too
]


@pytest.mark.parametrize(("argument", "value"), ROWS)
def test_errors_are_those_for_arrays_with_the_conversions_of_torch(argument, value):
    of_arrays = type(value) is np.ndarray and value.dtype.kind in "biuf" and value.dtype != np.longdouble
    spoilt = torch.tensor(value) if of_arrays and argument in (*ARRAYS, "sinks") else value
    tensors = {name: torch.tensor(x) for name, x in QKV.items()} | {argument: spoilt}
    with pytest.raises((ValueError, TypeError)) as caught:
        hierarchical_attention(**tensors)
    check_sentence(caught.value, argument)
    if argument in QKV and not of_arrays:
        assert "must be a tensor of torch" in str(caught.value)
        return
    with pytest.raises((ValueError, TypeError)) as expected:
        hs.sparse.hierarchical_attention(**QKV | {argument: value})
    assert type(caught.value) is type(expected.value)
    assert str(caught.value) == with_conversions_of_torch(str(expected.value))


def test_the_error_for_arrays_names_the_function_for_arrays():
    sentence = "query must be a tensor of torch, not ndarray; headspan.sparse.hierarchical_attention takes arrays"
    with pytest.raises(TypeError, match=re.escape(sentence)):
        hierarchical_attention(**QKV)
