"""The function of JAX: the same numbers as headspan's own, to the bit."""

import headspan as hs
import numpy as np
import pytest
from headspan.ops.adapters.options import TENSORS
from headspan.ops.arguments.options import DIFFERENTIABLE, NAMES
from headspan.patterns import Blockwise, Global, Mask, Window
from jax_arrays import _float64, check_equal, jax, same, split  # noqa: F401
from option_cases import ARRAYS, OPTIONS, arguments_of

# These imports need JAX, so they follow the line that skips this file without it.
from jax.test_util import check_grads  # isort: skip
from headspan.jax import attention  # isort: skip
from headspan.jax.call import OPERANDS  # isort: skip

PATTERN = {"pattern": Window(4, ahead=1) | Global(0), "causal": False, "span": np.array([1.2, 2.6, 3.3, 0.4])}
PATTERNS = {"pattern": [Window(3), Blockwise(2), Window(4, dilation=2), Window(2)], "causal": True}
# Five queries and seven keys; each head has its own mask.
MASK = {"pattern": Mask(np.arange(140).reshape(4, 5, 7) % 3 > 0, per_head=True), "causal": False}
OF_ITEMS = {"pattern": [[Window(3)], [Window(5)]], "sinks": np.array(0.3)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", OPTIONS)
def test_results_and_gradients(case, dtype):
    check_equal(attention, arguments_of(case, dtype))


def test_the_cases_have_every_option():
    assert {name for options in OPTIONS.values() for name in options} | {"pattern"} >= NAMES


@pytest.mark.parametrize("options", [PATTERN, PATTERNS, MASK, OF_ITEMS], ids=["one", "of heads", "mask", "of items"])
def test_patterns(options):
    check_equal(attention, arguments_of("plain") | options)


def ragged(seed):
    """Arguments with random sizes, a random type, and random spans and limits."""
    rng = np.random.default_rng(seed)
    batch, key_heads, shared = rng.integers(1, 4, 3)
    keys = int(rng.integers(1, 150))
    queries = int(rng.integers(1, keys + 1))
    heads, dtype = int(key_heads * shared), rng.choice([np.float32, np.float64])
    shapes = {"query": (heads, queries, 1), "key": (key_heads, keys, 1), "value": (key_heads, keys, 1)}
    dims = dict(zip(shapes, (d := int(rng.integers(1, 40)), d, int(rng.integers(1, 40))), strict=True))
    arguments = {n: rng.standard_normal((batch, *shape[:2], dims[n])).astype(dtype) for n, shape in shapes.items()}
    forms = ((), (heads,), (batch, heads), (batch, heads, queries))
    arguments["span"] = (rng.random(forms[rng.integers(4)]) * keys).astype(dtype)
    arguments["ramp"] = float(rng.uniform(0.5, 40))
    arguments["include_self"] = bool(rng.integers(2))
    arguments["causal"] = bool(rng.integers(2))
    if rng.integers(2):
        arguments["key_stop"] = rng.integers(0, keys + 1, batch)
    if rng.integers(2):
        arguments["pattern"] = Window(int(rng.integers(1, 20)) + 1, ahead=0 if arguments["causal"] else 3) | Global(0)
    if rng.integers(2):
        arguments["segment_ids"] = np.sort(rng.integers(0, 3, (batch, keys)), axis=-1)
    if rng.integers(2):
        arguments["temperature"] = (rng.random(forms[rng.integers(4)]) + 0.5).astype(dtype)
    return arguments


@pytest.mark.parametrize("seed", range(16))
def test_drawn_sizes(seed):
    check_equal(attention, ragged(seed))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("options", [{"span": 4.5, "ramp": 3.0}, PATTERN, {"softcap": 1.5, "sinks": 0.5}])
def test_narrow_types(options, dtype):
    narrow = jax.numpy.dtype(dtype)
    arguments = {name: np.asarray(x, narrow) if name in ARRAYS else x for name, x in arguments_of("plain").items()}
    options = {name: np.asarray(x, np.float32) if name in DIFFERENTIABLE else x for name, x in options.items()}
    check_equal(attention, arguments | options)


def test_options_of_16_bits_are_computed_in_float32():
    """If all parameters of a model are bfloat16, the gradients of options are bfloat16, too."""
    narrow = jax.numpy.bfloat16
    arguments = arguments_of("plain") | {"span": np.array([0.4, 1.7, 2.6, 9.5]), "pair_bias": np.ones((5, 7)) / 3}
    arguments |= {"persistent_key": np.ones((2, 3)), "persistent_value": np.ones((2, 2))}
    arrays = {name: jax.numpy.asarray(x, narrow) for name, x in arguments.items()}
    wide = {name: np.asarray(x) if name in ARRAYS else np.asarray(x, np.float32) for name, x in arrays.items()}
    wide |= {name: np.asarray(arrays[name]) for name in ("pair_bias", "persistent_key", "persistent_value")}
    expected, vjp = hs.attention_vjp(**wide)
    out, ours = jax.vjp(lambda arrays: attention(**arrays), arrays)
    assert same(out, expected)
    (gradients,) = ours(jax.numpy.ones_like(out))
    theirs = vjp(np.ones_like(expected))
    for name, gradient in gradients.items():
        assert gradient.dtype == narrow
        assert same(gradient, np.asarray(getattr(theirs, name)).astype(narrow)), name


@pytest.mark.parametrize("shape", [(5, 3), (4, 5, 3), (0, 4, 5, 3), (2, 4, 0, 3)])
def test_fewer_axes_and_empty_arrays(shape):
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal(shape), rng.standard_normal((*shape[:-2], 6, 3))
    check_equal(attention, {"query": query, "key": key, "value": key, "span": np.array(2.5), "ramp": 3})


def test_without_float64():
    """JAX then stores floats as float32, and integers must fit into int32."""
    arguments = arguments_of("by distance")
    single = {name: x.astype(np.float32) if isinstance(x, np.ndarray) else x for name, x in arguments.items()}
    with jax.enable_x64(False):
        assert same(attention(**arguments), hs.attention(**single))
        ids = np.array([2**40, 2**40 + 1] * 3 + [0])
        with pytest.raises(ValueError, match="segment_ids must fit into int32, unless jax_enable_x64 is set"):
            attention(**single, segment_ids=ids)


def test_equal_bits_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    query, key, value = rng.standard_normal((3, 1, 4, 700, 24))
    results = []
    before = hs.get_num_threads()
    for threads in (1, 2, 3):
        hs.set_num_threads(threads)
        call = jax.value_and_grad(lambda *qkv: (attention(*qkv, span=[40, 3, 700, 9.5], ramp=9) ** 2).sum(), (0, 1, 2))
        results.append(jax.tree.leaves(call(query, key, value)))
    hs.set_num_threads(before)
    for others in results[1:]:
        assert all(same(ours, one) for ours, one in zip(others, results[0], strict=True))


CHECKED = ("span per token", "memory", "gates", "by distance", "bias per head", "sinks per batch", "slopes per batch")


@pytest.mark.parametrize("case", CHECKED)
def test_gradients_by_differences(case):
    traced, plain = split(arguments_of(case))
    learned = {name: x for name, x in traced.items() if name in (*ARRAYS, *DIFFERENTIABLE)}
    others = {name: x for name, x in traced.items() if name not in learned} | plain
    check_grads(lambda learned: attention(**learned, **others), (learned,), order=1, modes=["rev"], atol=1e-6)


def test_every_tensor_that_determines_no_shape_may_be_traced():
    assert set(TENSORS) - set(OPERANDS) == {"gate_block_size"}
    assert set(OPERANDS) - set(TENSORS) == {"seed"}


@pytest.mark.parametrize("case", ["ranges per batch", "segments of both, in pieces", "prefixes after padding",
                                  "by distance, in buckets", "positions per batch", "dropout"])  # fmt: skip
def test_options_that_are_traced(case):
    """Arrays of floats and of integers, and the seed."""
    arguments = arguments_of(case)
    arrays = {name: np.asarray(x) for name, x in arguments.items() if name in OPERANDS}
    plain = {name: x for name, x in arguments.items() if name not in arrays}
    out = jax.jit(lambda arrays: attention(**arrays, **plain))(arrays)
    assert same(out, hs.attention(**arguments))
