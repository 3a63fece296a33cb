"""Bad calls: the errors of headspan.attention, when a function is traced or, for traced values, when it runs."""

import gc
import importlib
import json
import signal
import sys
import threading
import time

import headspan as hs
import jax_arrays
import numpy as np
import pytest
from bad_calls import QKV, TABLE
from bad_values import check_sentence
from headspan.ops.adapters import patterns
from headspan.patterns import Window
from helpers import run_python
from jax_arrays import _float64, jax, same  # noqa: F401

from headspan.jax import attention, call, run  # isort: skip

# The second one if a call is not compiled.
FAILS = (jax.errors.JaxRuntimeError, ValueError)
ROWS = [
    pytest.param(argument, value, id=f"{argument}-{what}")
    for argument, rows in TABLE["attention"].items()
    for what, _, value in rows
]


@pytest.mark.parametrize(("argument", "value"), ROWS)
def test_errors_come_through_unchanged(argument, value):
    arguments = QKV | {argument: value}
    with pytest.raises((ValueError, TypeError)) as expected:
        hs.attention(**arguments)
    with pytest.raises((ValueError, TypeError)) as caught:
        attention(**arguments)
    check_sentence(caught.value, argument)
    assert type(caught.value) is type(expected.value)
    assert str(caught.value) == str(expected.value)


VALUES = {
    "span": (np.array([1.0, -2.0, 0.0, 1.0]), "span must be non-negative, got -2"),
    "temperature": (np.array([1.0, np.nan, 2.0, 1.0]), "temperature must be finite, got nan"),
    "key_stop": (np.array([7]), "key_stop must be between 0 and the 6 keys, got 7"),
    "query_positions": (np.array([0.0, 1, 3, 2, 4]), "query_positions must not decrease, but decreases after token 2"),
    "key_ranges": (np.array([[0, 1], [2, 1], [0, 0], [1, 4], [0, 6]]), "key_ranges must not end before they begin"),
    "distance_bias": (np.array([np.inf, 1.0]), "distance_bias must be finite, got inf"),
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("argument", VALUES)
def test_traced_values_are_checked_when_they_are_known(argument, mapped):
    value, sentence = VALUES[argument]
    traced = jax.jit(lambda x: attention(**QKV, **{argument: x}))
    traced = jax.vmap(traced) if mapped else traced
    with pytest.raises(FAILS, match=sentence):
        jax.block_until_ready(traced(value[None] if mapped else value))


def test_values_are_checked_in_the_backward_pass_too():
    """Under a checkpoint, only the backward pass of a call may be left."""
    good = np.ones(4)

    def loss(span):
        return attention(**QKV, span=span).sum()

    assert jax.grad(loss)(good).shape == (4,)
    with pytest.raises(FAILS, match="span must be non-negative"):
        jax.block_until_ready(jax.jit(jax.grad(loss))(-good))


@pytest.mark.parametrize(("name", "value"), [("scale", 0.5), ("causal", True), ("gate_block_size", np.array([2, 3]))])
def test_arguments_that_determine_shapes_or_kernels_are_not_traced(name, value):
    more = {"block_gates": np.ones((3, 2))} if name == "gate_block_size" else {}
    array = jax.numpy.asarray(value)
    expected = hs.attention(**QKV, **more, **{name: value})
    assert same(attention(**QKV, **more, **{name: array}), expected)
    with pytest.raises(TypeError, match=f"{name} must be a concrete value, not a traced array"):
        jax.jit(lambda x: attention(**QKV, **more, **{name: x}))(array)


def test_a_key_of_random_numbers_is_no_seed():
    with pytest.raises(TypeError, match=r"seed must be numbers, not key<fry>"):
        attention(**QKV, dropout=0.5, seed=jax.random.key(0))


@pytest.mark.parametrize("dtype", ["int32", "float8_e4m3fn", "complex64"])
def test_unsupported_types(dtype):
    arrays = {name: jax.numpy.ones(x.shape, dtype) for name, x in QKV.items()}
    with pytest.raises(TypeError, match=f"query must be float32 or float64, not {dtype}"):
        attention(**arrays)
    half = jax.numpy.ones(QKV["query"].shape, "bfloat16")
    with pytest.raises(TypeError, match="key is float64 but query is bfloat16; they must have the same type"):
        attention(**QKV | {"query": half})


def test_a_misspelt_option():
    with pytest.raises(TypeError, match="did you mean 'span'"):
        attention(**QKV, spans=3)


def test_compiled_code_does_not_need_the_pattern_object():
    """The text of a call describes the pattern, so even code that another process compiled can run."""
    compiled = jax.jit(lambda arrays: attention(**arrays, pattern=Window(3))).lower(QKV).compile()
    expected = hs.attention(**QKV, pattern=Window(3))
    written = Window(3).to_spec()
    patterns.read_pattern.cache_clear()
    gc.collect()
    assert written not in patterns._alive
    assert same(compiled(QKV), expected)


def test_a_call_is_read_as_it_was_written():
    plain = call.written(
        {"scale": 0.1, "seed": 2**64 - 1, "pattern": patterns.written_pattern(Window(3)), "causal": True}
    )
    request = call.Call(("out", "lse"), ("query", "key", "value", "span"), 4, plain)
    assert call.read(json.dumps(request)) == request
    assert call.options(plain) == {"scale": 0.1, "seed": 2**64 - 1, "pattern": Window(3), "causal": True}


def test_internal_errors_are_raised_and_later_calls_work(monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("a part is broken")

    with monkeypatch.context() as patch:
        patch.setattr(run, "forward", broken)
        with pytest.raises(FAILS, match="a part is broken"):
            jax.block_until_ready(attention(**QKV))
        patch.setattr(run, "forward", lambda *a, **k: (_ for _ in ()).throw(MemoryError("too large")))
        with pytest.raises(FAILS, match=r"RESOURCE_EXHAUSTED.*too large"):
            jax.block_until_ready(attention(**QKV))
    assert same(attention(**QKV), hs.attention(**QKV))


def test_the_lock_of_python_is_free_while_the_core_computes():
    query, key, value = np.random.default_rng(0).standard_normal((3, 1, 4, 4000, 32), dtype=np.float32)
    compiled = jax.jit(attention).lower(query, key, value).compile()
    thread = threading.Thread(target=lambda: jax.block_until_ready(compiled(query, key, value)))
    thread.start()
    steps = 0
    while thread.is_alive():
        time.sleep(0.001)
        steps += 1
    assert steps > 10


LEAVING = """
import jax
from headspan.jax import attention
query, key, value = jax.random.normal(jax.random.key(0), (3, 1, 4, 2000, 32))
twice = jax.jit(lambda x: attention(x, key, value) + attention(-x, value, key)).lower(query).compile()
for _ in range(3):
    query = twice(query)
print("leaves")
"""


def test_a_program_ends_with_calls_under_way():
    assert run_python(LEAVING) == "leaves\n"


def test_an_interrupt_comes_through(monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "forward", interrupted)

    def call_and_wait():
        try:
            jax.block_until_ready(attention(**QKV))
        except FAILS:
            time.sleep(10)  # the interrupt follows the error of XLA

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            call_and_wait()
    finally:
        signal.signal(signal.SIGINT, before)


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "headspan.jax")
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[jax\]'"):
        importlib.import_module("headspan.jax")


def test_an_old_version_names_the_one_that_is_needed(monkeypatch):
    monkeypatch.delattr(jax_arrays.jax.lax, "pcast")
    monkeypatch.delitem(sys.modules, "headspan.jax")
    with pytest.raises(ImportError, match=r"headspan\.jax needs JAX 0\.9 or newer, not .*pip install '\.\[jax\]'"):
        importlib.import_module("headspan.jax")
