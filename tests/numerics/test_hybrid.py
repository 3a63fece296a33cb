"""The hybrid layer against a dense definition, its gradient by differences, and a span that is learned."""

import re

import headspan as hs
import numpy as np
import oracle
import pytest
from cases import DTYPES
from helpers import ROOT

PAGE = ROOT / "docs" / "explain" / "hybrid.md"
HEADS, DIM, TOKENS, BATCH = 2, 6, 9, 2
COMMON = {"num_heads": HEADS, "max_span": 7.3, "ramp": 2.6}
FORMS = {
    "batch": {"per": "batch"},
    "head": {"per": "head"},
    "token": {"per": "token"},
    "causal": {"per": "token", "causal": True},
    "without self": {"per": "head", "include_self": False},
    "epsilon": {"per": "batch", "epsilon": 0.3},
}
TEMPERATURES = {
    "sharpen longer": {"temperature_range": 0.7},
    "sharpen shorter": {"temperature_range": 0.7, "sharpen_longer": False},
    "learned": {},
}
every_form = pytest.mark.parametrize("form", FORMS)
every_temperature = pytest.mark.parametrize("temperature", TEMPERATURES)


def problem(form, temperature, dtype=np.float64, seed=0):
    """x, parameters of no special value, and options."""
    rng = np.random.default_rng([seed, 7])
    options = COMMON | FORMS[form] | TEMPERATURES[temperature]
    parameters = hs.hybrid.hybrid_parameters(
        DIM, HEADS, per=options["per"], learn_temperature=temperature == "learned", dtype=dtype
    )
    parameters = hs.hybrid.HybridParameters(
        *(None if p is None else p + rng.normal(0, 0.4, p.shape).astype(dtype) for p in parameters)
    )
    return rng.standard_normal((BATCH, TOKENS, DIM)).astype(dtype), parameters, options


def softmax_rows(score, mask):
    weight = mask * np.exp(score - np.where(mask > 0, score, -np.inf).max(axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)


def dense(
    x,
    parameters,
    *,
    num_heads,
    max_span,
    ramp,
    per,
    sharpen_longer=True,
    temperature_range=0.01,
    causal=False,
    include_self=True,
    epsilon=1e-5,
):
    """The layer written out for one batch item after the other, in float64; nothing of the package."""
    p = {name: None if a is None else np.float64(a) for name, a in parameters._asdict().items()}
    outs, spans, temperatures = [], [], []
    for item in np.float64(x):
        tokens = len(item)
        distance = np.arange(tokens)[:, None] - np.arange(tokens)
        allowed = np.ones((tokens, tokens)) if not causal else (distance >= 0) * 1.0
        if not include_self:
            allowed[np.arange(tokens), np.arange(tokens)] = 0
        normed = (item - item.mean(1)[:, None]) / np.sqrt(item.var(1) + epsilon)[:, None]
        normed = normed * p["norm_weight"] + p["norm_bias"]

        def attend(matrix, span, temperature, normed=normed, distance=distance, allowed=allowed):
            results = []
            width = normed.shape[1] // num_heads
            for head in range(num_heads):
                columns = slice(head * width, (head + 1) * width)
                q, k, v = (normed @ part[:, columns] for part in np.split(matrix, 3, axis=1))
                z, t = (np.broadcast_to(a, (num_heads, len(normed)))[head][:, None] for a in (span, temperature))
                mask = allowed * np.clip((ramp + z - abs(distance)) / ramp, 0, 1)
                results.append(softmax_rows(q @ k.T / np.sqrt(width) / t, mask) @ v)
            return np.concatenate(results, axis=1)

        wide = attend(p["global_qkv"], 1e9, 1.0)
        read = wide if per == "token" else wide.mean(axis=0)
        share = (1 / (1 + np.exp(-(read @ p["predictor_weight"].T + p["predictor_bias"])))).T
        by_token = share if per == "token" else share[:, None]
        temperature = 1 + temperature_range * (1 - by_token) if sharpen_longer else 0.5 + temperature_range * by_token
        if p["log_temperature"] is not None:
            temperature = np.exp(p["log_temperature"])[:, None]
        near = attend(p["local_qkv"], max_span * by_token, temperature)
        outs.append(np.concatenate((near, wide), axis=1) @ p["projection"] + p["projection_bias"])
        spans.append(max_span * share)
        temperatures.append(temperature if per == "token" else temperature[:, 0])
    shown = temperatures[0].ravel() if p["log_temperature"] is not None else np.array(temperatures)
    return np.array(outs), np.array(spans), shown


@every_temperature
@every_form
def test_dense_definition(form, temperature):
    x, parameters, options = problem(form, temperature)
    expected = dense(x, parameters, **options)
    actual = hs.hybrid.hybrid_attention(x, parameters, **options, return_span=True)
    for name, one, two in zip(("out", "span", "temperature"), actual, expected, strict=True):
        assert one.shape == two.shape, name
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-10, err_msg=name)
    np.testing.assert_array_equal(hs.hybrid.hybrid_attention(x, parameters, **options), actual[0])
    assert np.ptp(actual[1]) > 0.01  # spans differ


@pytest.mark.unsanitized
@every_temperature
@every_form
def test_gradient_by_central_differences(form, temperature):
    """Through the whole layer, for x and every parameter, of a loss of out and of the span."""
    x, parameters, options = problem(form, temperature)
    (out, span, _), vjp = hs.hybrid.hybrid_attention_vjp(x, parameters, **options, return_span=True)
    rng = np.random.default_rng(3)
    grad_out, grad_span = rng.standard_normal(out.shape), rng.standard_normal(span.shape)

    def loss(x, parameters):
        out, span, _ = hs.hybrid.hybrid_attention(x, parameters, **options, return_span=True)
        return (out * grad_out).sum() + (span * grad_span).sum()

    grad_x, gradients = vjp(grad_out, grad_span)
    expected = oracle.central_difference(lambda a: loss(a, parameters), x)
    np.testing.assert_allclose(grad_x, expected, rtol=1e-6, atol=1e-7, err_msg="x")
    for name, parameter in parameters._asdict().items():
        actual = getattr(gradients, name)
        if parameter is None:
            assert actual is None
            continue
        expected = oracle.central_difference(lambda a, n=name: loss(x, parameters._replace(**{n: a})), parameter)
        assert actual.shape == parameter.shape
        assert np.abs(expected).max() > 1e-3, f"nothing depends on {name}"
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-7, err_msg=name)


def test_gradient_without_that_of_the_span():
    x, parameters, options = problem("head", "sharpen longer")
    (out, span, _), vjp = hs.hybrid.hybrid_attention_vjp(x, parameters, **options, return_span=True)
    one, two = vjp(np.ones_like(out)), vjp(np.ones_like(out), np.zeros_like(span))
    np.testing.assert_array_equal(one[0], two[0])
    for a, b in zip(one[1], two[1], strict=True):
        np.testing.assert_array_equal(a, b)


@every_temperature
@every_form
def test_float32(form, temperature):
    x, parameters, options = problem(form, temperature, dtype=np.float32)
    results, vjp = hs.hybrid.hybrid_attention_vjp(x, parameters, **options, return_span=True)
    assert [a.dtype for a in results] == [np.float32] * 3
    for one, two in zip(results, dense(x, parameters, **options), strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=2e-5)
    wide = hs.hybrid.HybridParameters(*(None if p is None else np.float64(p) for p in parameters))
    wide_out, wide_vjp = hs.hybrid.hybrid_attention_vjp(np.float64(x), wide, **options)
    grad_x, gradients = vjp(np.ones_like(results[0]))
    wide_x, wide_gradients = wide_vjp(np.ones_like(wide_out))
    for one, two in zip((grad_x, *gradients), (wide_x, *wide_gradients), strict=True):
        if one is not None:
            assert one.dtype == np.float32
            np.testing.assert_allclose(one, two, rtol=0, atol=2e-5 * max(1, np.abs(two).max()))


@every_temperature
@pytest.mark.parametrize("form", ["batch", "head", "token"])
def test_without_a_batch_axis(form, temperature):
    x, parameters, options = problem(form, temperature)
    results, vjp = hs.hybrid.hybrid_attention_vjp(x[:1], parameters, **options, return_span=True)
    flat, flat_vjp = hs.hybrid.hybrid_attention_vjp(x[0], parameters, **options, return_span=True)
    assert flat[0].shape == x[0].shape
    for one, two in zip(flat[:2], results[:2], strict=True):
        np.testing.assert_array_equal(one, two[0])
    np.testing.assert_array_equal(flat[2], results[2] if temperature == "learned" else results[2][0])
    grad_x, gradients = vjp(np.ones_like(results[0]), np.ones_like(results[1]))
    flat_x, flat_gradients = flat_vjp(np.ones_like(flat[0]), np.ones_like(flat[1]))
    np.testing.assert_array_equal(flat_x, grad_x[0])
    np.testing.assert_array_equal(flat_gradients.predictor_weight, gradients.predictor_weight)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_threads(dtype):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 301, 24)).astype(dtype)
    parameters = hs.hybrid.hybrid_parameters(24, 3, per="token", learn_temperature=True, dtype=dtype)
    before, bits = hs.get_num_threads(), []
    for count in (1, 2):
        hs.set_num_threads(count)
        out, vjp = hs.hybrid.hybrid_attention_vjp(x, parameters, num_heads=3, max_span=90, per="token")
        grad_x, gradients = vjp(np.ones_like(out))
        bits.append([a.tobytes() for a in (out, grad_x, *gradients)])
    hs.set_num_threads(before)
    assert bits[0] == bits[1]


def test_batch_items_do_not_meet():
    """The span of an item is its own, so that its result does not depend on its company."""
    x, parameters, options = problem("batch", "sharpen longer")
    together = hs.hybrid.hybrid_attention(x, parameters, **options)
    for item, expected in zip(x, together, strict=True):
        np.testing.assert_allclose(
            hs.hybrid.hybrid_attention(item, parameters, **options), expected, rtol=0, atol=1e-13
        )


def test_causal_never_looks_ahead():
    x, parameters, options = problem("causal", "sharpen longer")
    changed = x.copy()
    changed[:, 5:] = 3.0 - changed[:, 5:]
    one, two = (hs.hybrid.hybrid_attention(a, parameters, **options, return_span=True) for a in (x, changed))
    np.testing.assert_array_equal(one[0][:, :5], two[0][:, :5])
    np.testing.assert_array_equal(one[1][..., :5], two[1][..., :5])
    assert not np.array_equal(one[0][:, 5:], two[0][:, 5:])


def test_inputs_stay_and_strides_do_not_matter():
    x, parameters, options = problem("token", "learned")
    wide = np.full((BATCH, TOKENS, 2 * DIM), np.nan)
    wide[..., ::2] = x
    fortran = hs.hybrid.HybridParameters(*(np.asfortranarray(p) for p in parameters))
    copies = [p.copy() for p in parameters]
    expected, vjp = hs.hybrid.hybrid_attention_vjp(x, parameters, **options)
    grads = vjp(np.ones_like(expected))
    actual, strided_vjp = hs.hybrid.hybrid_attention_vjp(wide[..., ::2], fortran, **options)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(strided_vjp(np.ones_like(actual))[0], grads[0], rtol=0, atol=1e-12)
    for one, two in zip(parameters, copies, strict=True):
        np.testing.assert_array_equal(one, two)


def test_results_may_be_changed_before_the_gradient_is_taken():
    x, parameters, options = problem("head", "learned")
    results, vjp = hs.hybrid.hybrid_attention_vjp(x, parameters, **options, return_span=True)
    grad_out, grad_span = np.ones_like(results[0]), np.ones_like(results[1])
    expected = vjp(grad_out, grad_span)
    for result in results:
        result[...] = np.nan
    actual = vjp(grad_out, grad_span)
    for one, two in zip((actual[0], *actual[1]), (expected[0], *expected[1]), strict=True):
        np.testing.assert_array_equal(one, two)


def test_parameters_at_first():
    one, two, other = (hs.hybrid.hybrid_parameters(8, 2, per="head", seed=seed) for seed in (1, 1, 2))
    assert one.log_temperature is None
    for a, b, c, name in zip(one[:-1], two[:-1], other[:-1], one._fields, strict=False):
        np.testing.assert_array_equal(a, b)
        assert np.array_equal(a, c) == (name.startswith("norm") or name.endswith("bias")), name
    learned = hs.hybrid.hybrid_parameters(8, 2, learn_temperature=True, dtype="float32")
    assert {p.dtype for p in learned} == {np.dtype(np.float32)}
    x = np.random.default_rng(0).standard_normal((2, 40, 8)).astype(np.float32)
    _, span, temperature = hs.hybrid.hybrid_attention(x, learned, num_heads=2, max_span=20, return_span=True)
    np.testing.assert_array_equal(temperature, [1, 1])
    assert np.all(abs(span - 10) < 5)


# A task with a planted distance. Tokens are random signs; those to be given back are the means of the signs around each
# token, up to a distance that is 3 in the items of one kind and 20 in those of the other. The kind is told by a second
# channel. The third and fourth channel mirror the first two, which makes the layer norm do nothing.
PLANTED = {1: 3.0, -1: 20.0}
RAMP = 4.0
LAYER = {"num_heads": 1, "max_span": 40.0, "ramp": RAMP, "temperature_range": 0.0}
DOWNSTREAM = ("local_qkv", "projection", "projection_bias")  # the predicted span does not depend on these
PREDICTOR = ("predictor_weight", "predictor_bias")


def planted_batch(rng, items=8, tokens=96):
    kinds = np.resize([1, -1], items)
    signs = rng.choice([-1.0, 1.0], (items, tokens))
    marks = np.repeat(kinds[:, None], tokens, axis=1)
    distance = abs(np.arange(tokens)[:, None] - np.arange(tokens))
    mask = np.array([np.clip((RAMP + PLANTED[kind] - distance) / RAMP, 0, 1) for kind in kinds])
    target = np.einsum("bij,bj->bi", mask / mask.sum(axis=2, keepdims=True), signs)
    return np.stack((signs, marks, -signs, -marks), axis=2), target, kinds


def planted_parameters(start):
    """Both branches average the tokens as they are, the output is the local branch, and every span is `start`."""
    qkv = np.concatenate((np.zeros((4, 8)), np.eye(4)), axis=1)
    parameters = hs.hybrid.hybrid_parameters(4, 1)
    return parameters._replace(
        global_qkv=qkv,
        local_qkv=qkv,
        predictor_weight=np.zeros((1, 4)),
        predictor_bias=np.array([np.log(start / (LAYER["max_span"] - start))]),
        projection=np.eye(8, 4),
    )


def train(start, trained, steps=200, rate=0.05):
    """Adam on the mean square error; returns the spans of both kinds before and after, and the last losses."""
    parameters, rng = planted_parameters(start), np.random.default_rng(0)
    moments = {name: [0.0, 0.0] for name in trained}
    losses, spans = [], []
    for step in range(1, steps + 1):
        x, target, kinds = planted_batch(rng)
        (out, span, _), vjp = hs.hybrid.hybrid_attention_vjp(x, parameters, **LAYER, return_span=True)
        error = np.zeros_like(out)
        error[..., 0] = out[..., 0] - target
        losses.append(np.mean(error[..., 0] ** 2))
        spans.append([span[kinds == kind].mean() for kind in PLANTED])
        gradients = vjp(2 * error / target.size)[1]
        for name in trained:
            gradient, moment = getattr(gradients, name), moments[name]
            moment[0] = 0.9 * moment[0] + 0.1 * gradient
            moment[1] = 0.99 * moment[1] + 0.01 * gradient**2
            size = np.sqrt(moment[1] / (1 - 0.99**step)) + 1e-12
            change = rate * moment[0] / (1 - 0.9**step) / size
            parameters = parameters._replace(**{name: getattr(parameters, name) - change})
    return spans[0], spans[-1], np.mean(losses[-20:])


START = pytest.mark.parametrize("start", [1.0, 8.0, 35.0], ids=["too short", "between", "too long"])


@pytest.mark.unsanitized
@START
def test_predictor_finds_the_planted_distances(start):
    """Growing and shrinking, for the two kinds of item at once, by the gradient of the predictor alone."""
    before, after, loss = train(start, PREDICTOR)
    np.testing.assert_allclose(before, start, rtol=1e-12)
    np.testing.assert_allclose(after, list(PLANTED.values()), rtol=0, atol=0.05)
    assert loss < 1e-6


@pytest.mark.unsanitized
@START
def test_a_cut_gradient_does_not_find_them(start):
    """Without it the spans stay, and whatever else is learned leaves an error a thousand times as large."""
    before, after, loss = train(start, DOWNSTREAM)
    assert after == before
    assert loss > 1e-2
    _, after, loss = train(start, DOWNSTREAM + PREDICTOR)
    np.testing.assert_allclose(after, list(PLANTED.values()), rtol=0, atol=0.05)
    assert loss < 1e-5


def test_a_hard_window_cuts_the_gradient():
    """As documented: with no ramp the span is felt by the temperature only."""
    x, parameters, options = problem("batch", "sharpen longer")
    for c, cut in ((0.0, True), (0.5, False)):
        out, vjp = hs.hybrid.hybrid_attention_vjp(x, parameters, **options | {"ramp": 0, "temperature_range": c})
        gradient = vjp(np.ones_like(out))[1].predictor_weight
        assert np.all(gradient == 0) == cut


def test_page_example():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    namespace = {}
    exec(code, namespace)
    assert namespace["span"].shape == (2, 4)
    assert namespace["losses"][-1] < 0.9 * namespace["losses"][0]


def test_matrices_at_first_have_the_variance_of_one_by_their_inputs():
    parameters = hs.hybrid.hybrid_parameters(64, 4)
    for name, inputs in (("global_qkv", 64), ("local_qkv", 64), ("projection", 128)):
        np.testing.assert_allclose(getattr(parameters, name).std(), inputs**-0.5, rtol=0.05, err_msg=name)
