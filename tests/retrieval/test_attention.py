"""A window and retrieved keys in one softmax, against the definition as dense matrices and its gradient."""

import headspan as hs
import numpy as np
import pytest
from cases import normals

autograd = pytest.importorskip("autograd", reason="needs autograd: pip install '.[demo]'")
xp = pytest.importorskip("autograd.numpy")

TEMPERATURES = np.linspace(0.5, 2, 26).reshape(1, 2, 13)
# name: (batch, heads, key heads, queries, keys, rows of the memory, k, head_dim, dims of value), options
CASES = {
    "as many of each": ((1, 1, 1, 40, 40, 40, 4, 8, 8), {"span": 7.5, "ramp": 4}),
    "grouped heads": ((2, 6, 3, 37, 51, 301, 5, 7, 9), {"span": [3.5, 9.5, 0.5, 20.5, 50.5, 11.5], "ramp": 5}),
    "no span": ((2, 2, 1, 33, 33, 130, 8, 8, 3), {}),
    "temperatures": ((2, 2, 2, 33, 70, 90, 7, 8, 8), {"temperature": [0.5, 2.0], "span": 30.5, "scale": 0.6}),
    "temperatures of tokens": ((1, 2, 2, 13, 17, 90, 7, 8, 8), {"temperature": TEMPERATURES}),
    "fewer rows than queries": ((1, 2, 1, 70, 70, 3, 5, 8, 8), {"span": 20.5}),
    "one row": ((1, 1, 1, 5, 5, 1, 1, 4, 4), {}),
    "no rows": ((1, 2, 1, 9, 9, 0, 3, 4, 4), {"span": 2.5}),
    "nothing retrieved": ((1, 2, 1, 9, 9, 20, 0, 4, 4), {"span": 2.5}),
    "one query": ((1, 4, 2, 1, 50, 1000, 32, 16, 16), {"span": 10.5}),
    "many rows": ((1, 2, 1, 130, 130, 5000, 9, 8, 8), {"span": 16.5, "ramp": 8}),
}  # fmt: skip
GATES = {"no gate": None, "one gate": np.array(0.7), "a gate a head": "heads", "a gate an item and head": "items"}


def draw(case, gate):
    (batch, heads, key_heads, queries, keys, rows, k, dim, value_dim), options = CASES[case]
    arrays = {
        "query": normals(0, batch, heads, queries, dim),
        "key": normals(1, batch, key_heads, keys, dim),
        "value": normals(2, batch, key_heads, keys, value_dim),
        "memory_key": normals(3, batch, key_heads, rows, dim),
        "memory_value": normals(4, batch, key_heads, rows, value_dim),
    }
    # Some queries have fewer, some none, some name a row twice.
    indices = np.random.default_rng(5).integers(-1, rows, (batch, heads, queries, k))
    indices[:, :, ::7] = -1
    shapes = {"heads": (heads,), "items": (batch, heads)}
    bias = normals(6, *shapes[GATES[gate]]) if isinstance(GATES[gate], str) else GATES[gate]
    return arrays, indices, {"gate": bias, **options}


def each_of(number, *shape):
    """A parameter in one of its forms as (batch, heads, tokens)."""
    array = number if xp.ndim(number) == len(shape) else xp.reshape(number, (*xp.shape(number), 1))
    return array * xp.ones(shape)


def defined(arrays, parameters, indices, options):
    """Out and lse of every row, from all weights of all pairs."""
    query, key, value, memory_key, memory_value = (arrays[name] for name in arrays)
    batch, heads, queries, dim = query.shape
    keys, rows, group = key.shape[2], memory_key.shape[2], heads // key.shape[1]
    scale = options.get("scale", dim**-0.5)
    temperature = each_of(parameters.get("temperature", 1.0), batch, heads, queries)
    gate = each_of(parameters.get("gate", 0.0), batch, heads, 1)
    span = each_of(parameters.get("span", float(keys)), batch, heads, queries)
    ramp = options.get("ramp", 32)
    x = np.arange(keys - queries, keys)[:, None] - np.arange(keys)
    outs, lses = [], []
    for b, h in np.ndindex(batch, heads):
        q = query[b, h] * scale / temperature[b, h][:, None]
        mask = xp.clip((ramp + span[b, h][:, None] - x) / ramp, 0, 1) * (x >= 0)
        local = mask * xp.exp(q @ key[b, h // group].T)
        seen = (indices[b, h][:, :, None] == np.arange(rows)).any(axis=1)
        far = seen * xp.exp(q @ memory_key[b, h // group].T + gate[b, h])
        total = local.sum(axis=1) + far.sum(axis=1)
        outs.append((local @ value[b, h // group] + far @ memory_value[b, h // group]) / total[:, None])
        lses.append(xp.log(total))
    return xp.reshape(xp.stack(outs), (batch, heads, queries, -1)), xp.reshape(xp.stack(lses), (batch, heads, queries))


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_the_definition(case, gate):
    arrays, indices, options = draw(case, gate)
    parameters = {name: options[name] for name in ("gate", "span", "temperature") if options.get(name) is not None}
    parameters = {name: np.asarray(value, np.float64) for name, value in parameters.items()}
    (out, lse), vjp = hs.memory.retrieval_attention_vjp(**arrays, indices=indices, **options, return_lse=True)
    expected = defined(arrays, parameters, indices, options)
    for result, right in zip((out, lse), expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=0, atol=1e-10)
    alone = hs.memory.retrieval_attention(**arrays, indices=indices, **options)
    assert np.array_equal(alone, out)

    grad_out, grad_lse = normals(7, *out.shape), normals(8, *lse.shape)

    def loss(arguments):
        results = defined({name: arguments[name] for name in arrays}, arguments, indices, options)
        return (grad_out * results[0]).sum() + (grad_lse * results[1]).sum()

    right = autograd.grad(loss)({**arrays, **parameters})
    gradients = vjp(grad_out, grad_lse)._asdict()
    for name in (*arrays, *parameters):
        assert gradients[name].shape == np.shape({**arrays, **options}[name])
        np.testing.assert_allclose(gradients[name], right[name], rtol=0, atol=1e-10, err_msg=name)
    assert {name for name, gradient in gradients.items() if gradient is not None} == {*arrays, *parameters}


def test_float32_is_near():
    arrays, indices, options = draw("grouped heads", "a gate a head")
    right, right_vjp = hs.memory.retrieval_attention_vjp(**arrays, indices=indices, **options)
    narrow = {name: array.astype(np.float32) for name, array in arrays.items()}
    out, vjp = hs.memory.retrieval_attention_vjp(**narrow, indices=indices, **options)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, right, rtol=0, atol=3e-6)
    for gradient, wanted in zip(vjp(np.ones_like(out)), right_vjp(np.ones_like(right)), strict=True):
        if wanted is not None:
            np.testing.assert_allclose(gradient, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("axes", [2, 3])
def test_leading_axes_may_be_left_out(axes):
    arrays, indices, options = draw("as many of each", "one gate")
    cut = {name: array.reshape(array.shape[4 - axes :]) for name, array in arrays.items()}
    full, full_vjp = hs.memory.retrieval_attention_vjp(**arrays, indices=indices, **options, return_lse=True)
    part, part_vjp = hs.memory.retrieval_attention_vjp(
        **cut, indices=indices.reshape(indices.shape[4 - axes :]), **options, return_lse=True
    )
    for result, right in zip(part, full, strict=True):
        assert np.array_equal(result, right.reshape(result.shape))
    gradients, expected = (v(np.ones_like(o[0])) for v, o in ((part_vjp, part), (full_vjp, full)))
    assert np.array_equal(gradients.gate, expected.gate)
    for name in arrays:
        gradient, right = getattr(gradients, name), getattr(expected, name)
        assert gradient.shape == cut[name].shape
        assert np.array_equal(gradient, right.reshape(gradient.shape))


@pytest.mark.parametrize(
    "options",
    [
        {"sinks": [0.5, -1.0], "key_bias": np.linspace(-1, 1, 60), "alibi_slopes": 0.1, "ramp": 8, "span": 20.5},
        {"pattern": hs.patterns.Strided, "softcap": 1.5, "dropout": 0.4, "seed": 3},
        {"segment_ids": np.arange(60) // 17, "distance_bias": np.linspace(-1, 1, 30)},
    ],
    ids=["scores", "pattern, dropout", "segments"],
)  # fmt: skip
def test_options_are_those_of_the_local_part(options):
    """These options change the local part of the softmax; the soft cap also changes scores of retrieved keys."""
    if "pattern" in options:  # a new dict, because pytest keeps its arguments until the process ends
        options = {**options, "pattern": options["pattern"](5)}
    query, key, value = normals(0, 3, 1, 2, 60, 8)
    memory = normals(1, 2, 1, 2, 40, 8)
    indices = np.random.default_rng(2).integers(0, 40, (1, 2, 60, 6))
    out, vjp = hs.memory.retrieval_attention_vjp(query, key, value, *memory, indices, gate=0.3, **options)
    gradients = vjp(np.ones_like(out))
    local, lse = hs.attention(query, key, value, return_lse=True, **options)
    cap = options.get("softcap")
    weights = np.zeros_like(out)
    total = np.exp(lse)
    for b, h, i in np.ndindex(1, 2, 60):
        rows = np.unique(indices[b, h, i])
        scores = memory[0][b, h, rows] @ query[b, h, i] * 8**-0.5
        far = np.exp((cap * np.tanh(scores / cap) if cap else scores) + 0.3)
        weights[b, h, i] = far @ memory[1][b, h, rows]
        total[b, h, i] += far.sum()
    np.testing.assert_allclose(out, (np.exp(lse)[..., None] * local + weights) / total[..., None], rtol=0, atol=1e-12)

    def moved(step):
        out = hs.memory.retrieval_attention(query, key, value, *memory, indices, gate=0.3 + step, **options)
        return out.sum()

    assert gradients.gate == pytest.approx((moved(1e-5) - moved(-1e-5)) / 2e-5, abs=1e-6)
    names = {name for name in gradients._fields if name in options}
    assert all(getattr(gradients, name) is not None for name in names)


@pytest.mark.parametrize("case", ["grouped heads", "one query", "many rows"])  # groups of many queries, and of one
def test_the_same_bits_for_every_number_of_threads(case):
    arrays, indices, options = draw(case, "a gate a head")
    many = {name: np.concatenate([array] * 3, axis=2).astype(np.float32) for name, array in arrays.items()}
    chosen = np.concatenate([indices] * 3, axis=2)
    before, results = hs.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 5):
            hs.set_num_threads(threads)
            out, vjp = hs.memory.retrieval_attention_vjp(**many, indices=chosen, **options)
            gradients = vjp(np.ones_like(out))
            results.append([out, *(gradient for gradient in gradients if gradient is not None)])
    finally:
        hs.set_num_threads(before)
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_rows_that_nobody_retrieved_are_not_read():
    arrays, indices, options = draw("many rows", "one gate")
    out = hs.memory.retrieval_attention(**arrays, indices=indices, **options)
    for name in ("memory_key", "memory_value"):
        others = np.setdiff1d(np.arange(5000), indices)
        arrays[name][:, :, others] = np.nan
    assert np.array_equal(hs.memory.retrieval_attention(**arrays, indices=indices, **options), out)


def test_nothing_from_later_tokens_reaches_a_query():
    """Queries retrieve from what lies before their window: what stands later changes neither result nor gradient."""
    tokens, window = 200, 16
    query, key, value = normals(0, 3, 2, tokens, 8)
    before = np.maximum(np.arange(tokens) - window, 0)

    def run(query, key, value):
        index = hs.memory.KeyIndex(2, 8, dtype="float64")
        index.add(key)
        indices = index.retrieve(query, 6, before=before)
        assert (indices < before[:, None]).all()
        out, vjp = hs.memory.retrieval_attention_vjp(query, key, value, key, value, indices, span=window, ramp=0)
        return out, vjp

    out, vjp = run(query, key, value)
    for at in (0, 1, 17, 100, 199):
        changed = [array.copy() for array in (query, key, value)]
        for array in changed:
            array[:, at:] = normals(at, 2, tokens - at, 8)
        other, _ = run(*changed)
        # Not to the bit: queries whose lists have enough in common are computed together.
        np.testing.assert_allclose(other[:, :at], out[:, :at], rtol=0, atol=1e-13)
        assert not np.array_equal(other[:, at:], out[:, at:])
        grad = np.zeros_like(out)
        grad[:, :at] = 1
        gradients = vjp(grad)
        for gradient in gradients[:3]:
            assert not gradient[:, at:].any()
        assert not gradients.memory_key[:, max(at - window, 0) :].any()
        assert not gradients.memory_value[:, max(at - window, 0) :].any()
