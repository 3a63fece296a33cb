"""Retrieval of tensors: the numbers of the function for arrays, and gradients of everything that has one."""

import headspan as hs
import numpy as np
import pytest
from tensors import same, torch, warnings_of_torch

from headspan.torch import retrieval_attention  # isort: skip

NAMES = ("query", "key", "value", "memory_key", "memory_value")


def drawn(dtype=torch.float64, tokens=41, rows=70, k=5):
    torch.manual_seed(0)
    sizes = ((4, tokens, 6), (2, tokens, 6), (2, tokens, 3), (2, rows, 6), (2, rows, 3))
    tensors = [torch.randn(2, *size, dtype=dtype, requires_grad=True) for size in sizes]
    return tensors, torch.randint(-1, rows, (2, 4, tokens, k))


OPTIONS = {
    "nothing else": {},
    "a gate": {"gate": torch.tensor(0.7)},
    "a gate a head": {"gate": torch.tensor([0.5, -1.0, 0.0, 2.0]), "softcap": 3.0, "scale": 0.4},
    "a gate an item and head": {"gate": torch.linspace(-2, 2, 8).reshape(2, 4)},
    "temperature and spans": {
        "gate": torch.tensor([0.5, -1.0, 0.0, 2.0]),
        "temperature": torch.tensor([0.5, 1.0, 2.0, 1.5]),
        "span": torch.tensor([3.25, 10.0, 1.0, 50.0]),
        "ramp": 4,
    },
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", OPTIONS)
def test_equal_to_the_function_for_arrays_to_the_bit(case, dtype):
    tensors, indices = drawn(dtype)
    options = {
        name: x.detach().clone().to(dtype).requires_grad_() if isinstance(x, torch.Tensor) else x
        for name, x in OPTIONS[case].items()
    }
    out, lse = retrieval_attention(*tensors, indices, **options, return_lse=True)
    arrays = [x.detach().numpy() for x in tensors]
    plain = {name: x.detach().numpy() if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    (right, right_lse), vjp = hs.memory.retrieval_attention_vjp(*arrays, indices.numpy(), **plain, return_lse=True)
    assert same(out, right)
    assert same(lse, right_lse)
    upstream = [torch.randn(x.shape, dtype=dtype) for x in (out, lse)]
    torch.autograd.backward([out, lse], upstream)
    gradients = vjp(*(x.numpy() for x in upstream))
    close = {torch.float32: 3e-6, torch.float64: 1e-13}[dtype]
    for name, tensor in zip(NAMES, tensors, strict=True):
        np.testing.assert_allclose(tensor.grad, getattr(gradients, name), rtol=0, atol=close, err_msg=name)
    for name in ("span", "temperature"):
        if name in options:
            expected = getattr(gradients, name)
            np.testing.assert_allclose(options[name].grad, expected, rtol=10 * close, atol=10 * close, err_msg=name)
    if "gate" in options:
        np.testing.assert_allclose(options["gate"].grad, gradients.gate, rtol=10 * close, atol=10 * close)


def test_gradcheck():
    tensors, indices = drawn(tokens=7, rows=11, k=3)
    gate = torch.tensor([0.5, -1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)

    def results(*inputs):
        return retrieval_attention(*inputs[:5], indices, gate=inputs[5], span=3.25, ramp=2, return_lse=True)

    assert torch.autograd.gradcheck(results, [*tensors, gate], fast_mode=True)


@pytest.mark.parametrize("shape", [(9, 6), (2, 9, 6)])
def test_fewer_axes_and_queries_that_see_nothing(shape):
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    memory = torch.randn(*shape[:-2], 20, 6, dtype=torch.float64, requires_grad=True)
    indices = np.full((*shape[:-1], 2), -1)
    out = retrieval_attention(*tensors, memory, memory, indices, gate=1.0, include_self=False, span=0, ramp=0)
    assert not out.any()
    out.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in (*tensors, memory))


def test_narrow_types_are_those_of_float32_rounded():
    tensors, indices = drawn(torch.float32)
    narrow = [x.detach().bfloat16().requires_grad_() for x in tensors]
    out = retrieval_attention(*narrow, indices, gate=0.5)
    wide = retrieval_attention(*(x.detach().float() for x in narrow), indices, gate=0.5)
    assert out.dtype is torch.bfloat16
    np.testing.assert_allclose(out.detach().float(), wide, rtol=0, atol=0.02)
    out.sum().backward()
    assert all(x.grad.dtype is torch.bfloat16 for x in narrow)


def test_the_gate_learns_whether_the_memory_helps():
    """If only the memory has the wanted value, the gate opens; if the memory is noise, the gate closes."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 40, 8)
    memory = torch.randn(1, 30, 8)
    indices = torch.randint(30, (1, 40, 2))
    for wanted, grows in ((memory[:, indices[0, :, 0]], True), (value, False)):
        gate = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([gate], lr=1.0)
        for _ in range(20):
            optimizer.zero_grad()
            out = retrieval_attention(query, key, value, memory, memory, indices, gate=gate, span=0, ramp=0)
            ((out - wanted) ** 2).mean().backward()
            optimizer.step()
        assert (gate.item() > 0.5) == grows
        assert (gate.item() < -0.5) != grows


def test_compiled_around():
    """The compiler does not trace the function that reads the memory."""
    tensors, indices = drawn(torch.float32)

    def doubled(*inputs):
        return 2 * retrieval_attention(*inputs, indices, gate=0.5)

    with warnings_of_torch():
        compiled = torch.compile(doubled)(*tensors)
        followed = torch._dynamo.explain(doubled)(*tensors)
    torch.testing.assert_close(compiled, doubled(*tensors))
    results = [torch.autograd.grad(out.square().sum(), tensors) for out in (compiled, doubled(*tensors))]
    torch.testing.assert_close(*results)
    assert followed.graph_break_count <= 2  # to leave the compiler and to come back


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"memory_key": np.zeros((2, 2, 70, 6))}, TypeError, "memory_key must be a tensor of torch"),
        ({"memory_value": torch.zeros(2, 2, 70, 3)}, TypeError, "memory_value is torch.float32 but key is"),
        ({"memory_value": torch.zeros(2, 2, 7, 3, dtype=torch.float64)}, ValueError, "memory_value must be of shape"),
        ({"indices": torch.zeros(2, 4, 41, 5)}, TypeError, "indices must be"),
        ({"indices": torch.full((2, 4, 41, 5), 70)}, ValueError, "indices must be -1 for none, or between"),
        ({"gate": torch.zeros(3)}, ValueError, "gate must"),
        ({"query": np.zeros((2, 4, 41, 6))}, TypeError, "headspan.memory.retrieval_attention takes arrays"),
    ],
)
def test_bad_calls_say_what_is_wrong(change, error, message):
    tensors, indices = drawn()
    arguments = dict(zip((*NAMES, "indices"), (*tensors, indices), strict=True)) | change
    with pytest.raises(error, match=message):
        retrieval_attention(**arguments)
