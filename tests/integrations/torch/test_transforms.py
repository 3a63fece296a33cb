"""torch.func on attention: gradients of single calls and of mapped ones, and what is refused."""

import pytest
from headspan.ops.arguments.options import DIFFERENTIABLE
from option_cases import MAPPED
from tensors import qkv, torch, warnings_of_torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacrev, vmap

from headspan.torch import attention, operator  # isort: skip


def loss(query, key, value, span, **options):
    return attention(query, key, value, span=span, ramp=3, **options).square().sum()


SPAN = torch.tensor([0.5, 1.5, 2.5, 3.25], dtype=torch.float64)


def test_func_grad_is_that_of_backward():
    tensors = [*qkv(), SPAN.clone().requires_grad_()]
    expected = torch.autograd.grad(loss(*tensors), tensors)
    gradients = grad(loss, (0, 1, 2, 3))(*(x.detach() for x in tensors))
    assert all(torch.equal(one, other) for one, other in zip(gradients, expected, strict=True))


def each(function, size, tensors, mapped):
    """The calls one after another, with their results stacked."""
    calls = [function(*(x[i] if varies else x for x, varies in zip(tensors, mapped, strict=True))) for i in range(size)]
    return [torch.stack(parts) for parts in zip(*calls, strict=True)]


@pytest.mark.parametrize("mapped", [(True, True, True, True), (True, False, False, True), (False, True, True, False)])
@pytest.mark.parametrize("case", MAPPED)
def test_vmap_of_values_and_gradients_equals_single_calls(case, mapped):
    """Arguments that are not mapped are shared, but have a gradient for each call, too."""
    name = case.partition(" ")[0]
    assert {label.partition(" ")[0] for label in MAPPED} == set(DIFFERENTIABLE)
    torch.manual_seed(1)
    arrays = [torch.randn((3, 2, 4, 9, 3) if varies else (2, 4, 9, 3), dtype=torch.float64) for varies in mapped[:3]]
    option = torch.rand(MAPPED[case] if mapped[3] else MAPPED[case][1:], dtype=torch.float64) + 0.3
    others = {"persistent_key": "persistent_value", "persistent_value": "persistent_key"}
    more = {others[name]: torch.randn(2, 3, dtype=torch.float64)} if name in others else {}
    more |= {"gate_block_size": (3, 5)} if name == "block_gates" else {}

    def result(*tensors):
        query, key, value, option = tensors
        return attention(query, key, value, **{"ramp": 3, "sinks": 0.3, name: option}, **more, return_lse=True)

    def gradients(*tensors):
        return grad(lambda *tensors: sum(x.square().sum() for x in result(*tensors)), (0, 1, 2, 3))(*tensors)

    for function in (result, gradients):
        results = vmap(function, tuple(0 if varies else None for varies in mapped))(*arrays, option)
        for ours, theirs in zip(results, each(function, 3, [*arrays, option], mapped), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", [(9, 3), (4, 9, 3)])
def test_vmap_of_fewer_axes_along_any_of_them(shape):
    tensors = [torch.randn(*shape[:1], 5, *shape[1:], dtype=torch.float64) for _ in range(3)]
    span = torch.rand(5, *shape[:-1], dtype=torch.float64)
    out = vmap(lambda *x: attention(*x[:3], span=x[3]), (1, 1, 1, 0))(*tensors, span)
    expected = [attention(*(x.select(1, i) for x in tensors), span=span[i]) for i in range(5)]
    torch.testing.assert_close(out, torch.stack(expected))


def test_vmap_of_padding_documents_positions_and_dropout():
    torch.manual_seed(0)
    arrays = torch.randn(3, 3, 2, 4, 9, 3, dtype=torch.float64)
    options = {
        "key_stop": torch.tensor([[9, 5], [4, 8], [7, 7]]),
        "key_start": torch.tensor([0, 1, 2]),
        "segment_ids": torch.tensor([[0] * 4 + [1] * 5, [0] * 2 + [1] * 7, [0] * 9]),
        "query_positions": torch.rand(3, 2, 9, dtype=torch.float64).cumsum(-1),
    }

    def dropped(*tensors):
        return (attention(*tensors, dropout=0.5, seed=3),)

    def limited(*tensors):
        return (attention(*tensors[:3], **dict(zip(options, tensors[3:], strict=True)), causal=False),)

    for function, arguments in ((limited, [*arrays, *options.values()]), (dropped, [*arrays])):
        results, expected = vmap(function)(*arguments), each(function, 3, arguments, [True] * len(arguments))
        torch.testing.assert_close(results[0], expected[0], rtol=1e-11, atol=1e-11)


def test_vmap_is_one_call(monkeypatch):
    calls = []
    original = operator.forward
    monkeypatch.setattr(operator, "forward", lambda *a, **k: calls.append(1) or original(*a, **k))
    vmap(attention)(*(torch.randn(5, 2, 4, 9, 3) for _ in range(3)))
    assert calls == [1]


def test_maps_within_maps():
    query, key, value = torch.randn(3, 2, 3, 2, 4, 9, 3, dtype=torch.float64)
    out = vmap(vmap(attention, (None, 0, 0)), (0, None, None))(query[:, 0], key[0], value[0])
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(out[i, j], attention(query[i, 0], key[0, j], value[0, j]))


def test_transforms_are_compiled():
    tensors = [*qkv(grad=False), SPAN]
    stacked = [torch.stack([x, x / 2, x / 3]) for x in tensors]
    with warnings_of_torch():
        for function, arguments in ((grad(loss, 3), tensors), (vmap(loss), stacked), (vmap(grad(loss, 3)), stacked)):
            compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
            torch.testing.assert_close(compiled(*arguments), function(*arguments))


def test_jacobians_and_ensembles():
    tensors = qkv(1, 2, 4, 3, grad=False)
    span = torch.tensor([0.5, 1.5], dtype=torch.float64)
    rows = jacrev(lambda span: attention(*tensors, span=span, ramp=3))(span)
    one = torch.autograd.functional.jacobian(lambda span: attention(*tensors, span=span, ramp=3), span)
    torch.testing.assert_close(rows, one)

    layer = torch.nn.Linear(3, 3, bias=False).double()
    stacked = {"weight": torch.randn(3, 3, 3, dtype=torch.float64)}

    def model(parameters, x):
        return attention(functional_call(layer, parameters, x), x, x, span=1.5)

    out = vmap(model, (0, None))(stacked, tensors[0])
    expected = [model({"weight": weight}, tensors[0]) for weight in stacked["weight"]]
    torch.testing.assert_close(out, torch.stack(expected))


def along(function, at):
    with forward_ad.dual_level():
        return function(forward_ad.make_dual(at, torch.ones_like(at)))


FORWARD_MODE = {
    "a dual query": lambda q, k, v: along(lambda q: attention(q, k, v), q),
    "a dual span": lambda q, k, v: along(lambda span: attention(q, k, v, span=span), SPAN),
    "jvp": lambda q, k, v: torch.func.jvp(lambda x: attention(x, k, v), (q,), (q,)),
    "jacfwd": lambda q, k, v: torch.func.jacfwd(lambda x: attention(x, k, v))(q),
    "hessian": lambda q, k, v: torch.func.hessian(lambda x: attention(x, k, v).sum())(q),
}


# torch warns of its code when the first tangent is made.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("case", FORWARD_MODE)
def test_forward_mode_is_refused_by_name(case, needs):
    with pytest.raises(NotImplementedError, match="attention has no forward-mode derivatives"):
        FORWARD_MODE[case](*(x.detach().requires_grad_(needs) for x in qkv()))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_other_forward_mode_derivatives_are_ignored():
    tensors = qkv()
    with forward_ad.dual_level():
        forward_ad.make_dual(tensors[0], tensors[0])
        assert torch.equal(attention(*tensors), attention(*(x.detach() for x in tensors)))


def twice(query, key, value):
    (first,) = torch.autograd.grad(loss(query, key, value, SPAN), query, create_graph=True)
    first.sum().backward()


SECOND = {
    "create_graph": twice,
    "grad of grad": lambda q, k, v: grad(lambda q: grad(loss)(q, k, v, SPAN).sum())(q.detach()),
    "jacrev of grad": lambda q, k, v: jacrev(grad(loss))(q.detach(), k.detach(), v.detach(), SPAN),
    "through the gradient of the result": lambda q, k, v: grad(
        lambda scale: grad(lambda q: attention(q, k, v).sum() * scale)(q.detach()).sum()
    )(torch.tensor(2.0, dtype=torch.float64)),
}


@pytest.mark.parametrize("case", SECOND)
def test_second_derivatives_are_refused_by_name(case):
    with pytest.raises(NotImplementedError, match="attention has no second derivatives"):
        SECOND[case](*qkv())


def test_a_graph_of_the_gradient_may_be_made_if_it_is_not_used():
    query, key, value = qkv()
    (first,) = torch.autograd.grad(loss(query, key, value, SPAN), query, create_graph=True)
    (plain,) = torch.autograd.grad(loss(query, key, value, SPAN), query)
    assert torch.equal(first, plain)
