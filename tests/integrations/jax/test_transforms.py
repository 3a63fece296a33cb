"""Transformations of JAX: compiled, differentiated, mapped and sharded functions, and what is refused."""

import functools

import numpy as np
import pytest
from headspan.ops.arguments.options import DIFFERENTIABLE
from headspan.patterns import Window
from jax_arrays import _float64, jax, same  # noqa: F401
from option_cases import MAPPED

from headspan.jax import attention, run  # isort: skip

jnp = jax.numpy
P = jax.P


def loss(query, key, value, span, **options):
    return (attention(query, key, value, span=span, ramp=3, **options) ** 2).sum()


def qkv(*shape):
    return list(np.random.default_rng(0).standard_normal((3, *(shape or (2, 4, 9, 3)))))


SPAN = np.array([0.5, 1.5, 2.5, 3.25])


def each(function, size, arrays, mapped):
    """The calls one after another, with their results stacked."""
    calls = [function(*(x[i] if varies else x for x, varies in zip(arrays, mapped, strict=True))) for i in range(size)]
    return [np.stack(parts) for parts in zip(*calls, strict=True)]


@pytest.mark.parametrize("mapped", [(True, True, True, True), (True, False, False, True), (False, True, True, False)])
@pytest.mark.parametrize("case", MAPPED)
def test_vmap_of_values_and_gradients_equals_single_calls(case, mapped):
    """Arguments that are not mapped are shared, but have a gradient for each call, too."""
    name = case.partition(" ")[0]
    assert {label.partition(" ")[0] for label in MAPPED} == set(DIFFERENTIABLE)
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((3, 2, 4, 9, 3) if varies else (2, 4, 9, 3)) for varies in mapped[:3]]
    option = rng.random(MAPPED[case] if mapped[3] else MAPPED[case][1:]) + 0.3
    others = {"persistent_key": "persistent_value", "persistent_value": "persistent_key"}
    more = {others[name]: rng.standard_normal((2, 3))} if name in others else {}
    more |= {"gate_block_size": (3, 5)} if name == "block_gates" else {}

    def result(*arguments):
        query, key, value, option = arguments
        return attention(query, key, value, **{"ramp": 3, "sinks": 0.3, name: option}, **more, return_lse=True)

    @functools.partial(jax.grad, argnums=(0, 1, 2, 3))
    def gradients(*arguments):
        return sum((x**2).sum() for x in result(*arguments))

    for function in (result, gradients):
        results = jax.vmap(function, tuple(0 if varies else None for varies in mapped))(*arrays, option)
        for ours, theirs in zip(results, each(jax.jit(function), 3, [*arrays, option], mapped), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", [(9, 3), (4, 9, 3)])
def test_vmap_of_fewer_axes_along_any_of_them(shape):
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((3, *shape[:1], 5, *shape[1:]))
    span = rng.random((5, *shape[:-1])) * 5
    out = jax.vmap(lambda *x: attention(*x[:3], span=x[3]), (1, 1, -2 if len(shape) == 2 else 1, 0), 1)(*arrays, span)
    expected = [attention(*(x.take(i, 1) for x in arrays), span=span[i]) for i in range(5)]
    assert same(out, np.stack(expected, 1))


def test_vmap_of_padding_documents_positions_and_dropout():
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((3, 3, 2, 4, 9, 3))
    options = {
        "key_stop": np.array([[9, 5], [4, 8], [7, 7]]),
        "key_start": np.array([0, 1, 2]),
        "segment_ids": np.array([[0] * 4 + [1] * 5, [0] * 2 + [1] * 7, [0] * 9]),
        "query_positions": rng.random((3, 2, 9)).cumsum(-1),
    }

    def limited(*arguments):
        return (attention(*arguments[:3], **dict(zip(options, arguments[3:], strict=True)), causal=False),)

    def dropped(*arguments):
        return (attention(*arguments[:3], dropout=0.5, seed=jnp.asarray(arguments[3])),)

    for function, arguments in ((limited, [*arrays, *options.values()]), (dropped, [*arrays, np.arange(3)])):
        (out,), (expected,) = jax.vmap(function)(*arguments), each(function, 3, arguments, [True] * len(arguments))
        assert same(out, expected)


def test_vmap_is_one_call(monkeypatch):
    calls = []
    original = run.forward
    monkeypatch.setattr(run, "forward", lambda *a, **k: calls.append(1) or original(*a, **k))
    jax.block_until_ready(jax.vmap(attention)(*qkv(5, 2, 4, 9, 3)))
    assert calls == [1]


def test_maps_within_maps():
    query, key, value = np.random.default_rng(0).standard_normal((3, 2, 3, 2, 4, 9, 3))
    inner = jax.vmap(lambda *arrays: attention(*arrays, span=SPAN), (None, 0, 0))
    out = jax.vmap(inner, (0, None, None))(query[:, 0], key[0], value[0])
    for i in range(2):
        for j in range(3):
            assert same(out[i, j], attention(query[i, 0], key[0, j], value[0, j], span=SPAN))
    gradient = jax.vmap(jax.vmap(jax.grad(loss, 3), (None, 0, 0, None)), (0, None, None, None))
    grads = gradient(query[:, 0], key[0], value[0], SPAN)
    np.testing.assert_allclose(grads[1, 2], jax.grad(loss, 3)(query[1, 0], key[0, 2], value[0, 2], SPAN), rtol=1e-11)


def test_only_gradients_that_are_needed_are_computed(monkeypatch):
    asked = []
    original = run.backward
    monkeypatch.setattr(run, "backward", lambda *a, needs, **k: asked.append(needs) or original(*a, needs=needs, **k))
    arrays = qkv(1, 4, 7, 3)
    for argnums, names in ((3, ("span",)), ((1, 3), ("key", "span")), ((0, 1, 2), ("query", "key", "value"))):
        jax.block_until_ready(jax.jit(jax.grad(loss, argnums))(*arrays, SPAN))
        assert asked.pop() == names
    out, vjp = jax.vjp(lambda span: attention(*arrays, span=span, return_lse=True)[1], SPAN)
    jax.block_until_ready(vjp(jnp.ones_like(out)))
    assert asked == [("span",)]


def test_integers_and_positions_have_no_gradient():
    arrays, places = qkv(), np.arange(9.0)
    gradient = jax.grad(lambda places: attention(*arrays, query_positions=places, span=SPAN).sum())(places)
    assert not gradient.any()
    spans = np.array([1, 2, 3, 4])
    gradient = jax.grad(lambda query, spans: loss(query, *arrays[1:], spans), (0, 1), allow_int=True)(arrays[0], spans)
    assert gradient[0].any()
    assert gradient[1].dtype == jax.dtypes.float0


def test_scan_and_checkpoint():
    query, key, value = qkv()

    def scanned(span):
        layer = jax.checkpoint(lambda x: attention(x, key, value, span=span, ramp=3))
        return (jax.lax.scan(lambda x, _: (layer(x), None), query, None, length=3)[0] ** 2).sum()

    def unrolled(span):
        x = query
        for _ in range(3):
            x = attention(x, key, value, span=span, ramp=3)
        return (x**2).sum()

    for wrap in (lambda f: f, jax.jit):
        ours, theirs = (wrap(jax.value_and_grad(f))(SPAN) for f in (scanned, unrolled))
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-12)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-11)


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
@pytest.mark.parametrize("along", ["items", "heads"])
@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map_over_devices(along, kind, check_vma):
    mesh = jax.make_mesh((2,), ("of",), axis_types=(getattr(jax.sharding.AxisType, kind),))
    where = P("of") if along == "items" else P(None, "of")
    specs = (where, where, where, P() if along == "items" else P("of"), P())
    arrays = [*qkv(), SPAN, np.array(0.3)]
    sharded = [jax.device_put(x, jax.NamedSharding(mesh, spec)) for x, spec in zip(arrays, specs, strict=True)]

    def parts(query, key, value, span, sinks):
        return attention(query, key, value, span=span, sinks=sinks, ramp=3)

    call = jax.shard_map(parts, mesh=mesh, in_specs=specs, out_specs=where, check_vma=check_vma)
    expected = parts(*arrays)
    for function in (call, jax.jit(call)):
        assert same(function(*sharded), expected)
        assert function(*sharded).sharding.is_equivalent_to(jax.NamedSharding(mesh, where), 4)

    def total(function, *arguments):
        return (function(*arguments) ** 2).sum()

    ours = jax.jit(jax.grad(functools.partial(total, call), range(5)))(*sharded)
    for one, other in zip(ours, jax.grad(functools.partial(total, parts), range(5))(*arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


def test_gradients_within_shard_map_are_summed_over_devices():
    mesh = jax.make_mesh((2,), ("of",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = (P("of"), P("of"), P("of"), P())
    call = jax.shard_map(jax.grad(loss, 3), mesh=mesh, in_specs=specs, out_specs=P())
    np.testing.assert_allclose(call(*qkv(), SPAN), jax.grad(loss, 3)(*qkv(), SPAN), rtol=1e-11)


def test_jacobians():
    arrays = qkv(1, 2, 4, 3)
    span = np.array([0.5, 1.5])
    rows = jax.jacrev(lambda span: attention(*arrays, span=span, ramp=3))(span)
    step = 1e-6
    for head in range(2):
        moved = [attention(*arrays, span=span + sign * step * np.eye(2)[head], ramp=3) for sign in (1, -1)]
        np.testing.assert_allclose(rows[..., head], (moved[0] - moved[1]) / (2 * step), atol=1e-8)


def test_second_derivatives_and_forward_mode_are_refused():
    arrays = qkv(1, 4, 5, 3)
    for twice in (jax.hessian(loss, 3), jax.grad(lambda *arguments: jax.grad(loss, 3)(*arguments).sum())):
        with pytest.raises(NotImplementedError, match=r"^attention has no second derivatives"):
            twice(*arrays, SPAN)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda span: loss(*arrays, span), (SPAN,), (SPAN,))


def test_a_new_seed_and_new_arrays_do_not_compile_again():
    traced = []

    @jax.jit
    def step(query, key, value, seed):
        traced.append(1)
        return attention(query, key, value, dropout=0.5, seed=seed, pattern=Window(4))

    outs = [step(*qkv(), seed) for seed in range(3)]
    assert traced == [1]
    assert not (outs[0] == outs[1]).all()
