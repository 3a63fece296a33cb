"""`forward` and `backward` on plain arrays: arrays for results, chosen gradients, threads, repeated requests."""

import itertools

import headspan as hs
import numpy as np
import pytest
from cases import DTYPES, normals
from headspan.ops.execution.functional import Saved, backward, forward
from headspan.ops.execution.request import Request
from headspan.patterns import Pattern

pytestmark = pytest.mark.numerical

SPANS = np.array([3.5, 20.25, 90.0, 1e6])
# (batch, heads, key heads, queries, keys), options: the ways in which the sums over queries are shared out
WAYS = {
    "heads": ((4, 4, 4, 70, 70), {"span": SPANS, "temperature": 1.5, "key_bias": np.cos(np.arange(70))}),
    "chunks": ((1, 1, 1, 900, 900), {"span": 20.5, "alibi_slopes": 0.25, "key_bias": np.cos(np.arange(900))}),
    "in turn": ((1, 1, 1, 300, 300), {"temperature": 2.0}),
    "grouped": ((2, 4, 2, 130, 200), {"span": SPANS, "temperature": [1, 2, 0.5, 0.75], "causal": False}),
    "stages": ((1, 2, 1, 260, 260), {"pattern": "Window(10) | Strided(7) | Global([3])", "span": [9.5, 40]}),
    "one query": ((2, 4, 2, 1, 300), {"span": SPANS}),
}  # fmt: skip
LAYOUTS = {
    "plain": lambda shape, dtype: np.empty(shape, dtype),
    "tokens first": lambda shape, dtype: np.empty((shape[0], shape[2], shape[1], shape[3]), dtype).swapaxes(1, 2),
    "spread": lambda shape, dtype: np.empty((*shape[:3], 2 * shape[3]), dtype)[..., : shape[3]],
    "backwards": lambda shape, dtype: np.empty(shape, dtype)[:, ::-1, ::-1],
}


def draw(way, dtype):
    (batch, heads, key_heads, queries, keys), options = WAYS[way]
    if "pattern" in options:  # made here, because the sanitizer takes what a module holds for a leak
        options = options | {"pattern": Pattern.from_spec(options["pattern"])}
    query, key = normals(1, batch, heads, queries, 16, dtype=dtype), normals(2, batch, key_heads, keys, 16, dtype=dtype)
    value = normals(3, batch, key_heads, keys, 24, dtype=dtype)
    grad_out, grad_lse = (
        normals(4, batch, heads, queries, 24, dtype=dtype),
        normals(5, batch, heads, queries, dtype=dtype),
    )
    return (query, key, value), options, grad_out, grad_lse


def same_bits(one, two):
    assert one.shape == two.shape
    assert one.dtype == two.dtype
    assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS)
def test_results_are_those_of_attention(way, dtype):
    arrays, options, grad_out, grad_lse = draw(way, dtype)
    request = Request(*arrays, options)
    out, lse, saved = forward(request, with_lse=True)
    (plain_out, plain_lse), vjp = hs.attention_vjp(*arrays, return_lse=True, **options)
    same_bits(out, plain_out)
    same_bits(lse, plain_lse)
    gradients, plain = backward(request, saved, grad_out, grad_lse), vjp(grad_out, grad_lse)._asdict()
    assert list(gradients) == [name for name, gradient in plain.items() if gradient is not None]
    for name, gradient in gradients.items():
        same_bits(gradient, plain[name])
    alone, no_lse, nothing = forward(request, with_saved=False)
    same_bits(alone, out)
    assert no_lse is nothing is None


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS)
def test_results_are_written_to_arrays_of_the_caller(way, dtype, layout):
    arrays, options, grad_out, _ = draw(way, dtype)
    request = Request(*arrays, options)
    out, _, saved = forward(request)
    mine = layout(out.shape, out.dtype)
    mine[...] = np.nan
    result, _, result_saved = forward(request, out=mine)
    assert result is mine
    same_bits(mine, out)
    plain = backward(request, saved, grad_out)
    into = {
        name: layout(array.shape, array.dtype) for name, array in zip(("query", "key", "value"), arrays, strict=True)
    }
    for array in into.values():
        array[...] = np.nan
    gradients = backward(request, result_saved, grad_out, into=into)
    for name, gradient in gradients.items():
        same_bits(gradient, plain[name])
        assert name not in into or gradient is into[name]


@pytest.mark.parametrize("way", WAYS)
def test_any_choice_of_gradients_gives_the_same_bits(way):
    arrays, options, grad_out, grad_lse = draw(way, "float32")
    request = Request(*arrays, options)
    _, _, saved = forward(request)
    everything = backward(request, saved, grad_out, grad_lse)
    for count in range(len(everything)):
        for names in itertools.combinations(everything, count):
            some = backward(request, saved, grad_out, grad_lse, needs=names)
            assert list(some) == list(names)
            for name, gradient in some.items():
                same_bits(gradient, everything[name])


@pytest.mark.parametrize("needs", [None, ("query",), ("key", "span"), ("span",)], ids=str)
def test_any_number_of_threads_gives_the_same_bits(needs):
    for way in ("chunks", "grouped", "stages"):
        arrays, options, grad_out, _ = draw(way, "float32")
        request = Request(*arrays, options)
        out, _, saved = forward(request, threads=1)
        one = backward(request, saved, grad_out, needs=needs, threads=1)
        for threads in (2, 3, 5):
            same_bits(forward(request, threads=threads)[0], out)
            for name, gradient in backward(request, saved, grad_out, needs=needs, threads=threads).items():
                same_bits(gradient, one[name])


def test_saved_values_are_plain_arrays():
    """They can be kept, copied and used with a new request, as a framework does."""
    arrays, options, grad_out, _ = draw("grouped", "float32")
    _, _, saved = forward(Request(*arrays, options))
    assert all(type(array) is np.ndarray for array in saved)
    copied = Saved(*(array.copy() for array in saved))
    again = backward(Request(*(array.copy() for array in arrays), options), copied, grad_out)
    for name, gradient in backward(Request(*arrays, options), saved, grad_out).items():
        same_bits(gradient, again[name])


@pytest.mark.parametrize("ndim", [2, 3])
def test_fewer_axes(ndim):
    query, key, value, grad_out = (normals(i, *(2, 40, 8)[3 - ndim :]) for i in range(4))
    request = Request(query, key, value, {"span": 5})
    out, _, saved = forward(request, out=np.empty_like(query))
    into = {"key": np.empty_like(key)}
    gradients = backward(request, saved, grad_out, into=into)
    assert gradients["key"] is into["key"]
    assert [out.shape, gradients["query"].shape, gradients["span"].shape] == [query.shape, query.shape, ()]
    same_bits(out, hs.attention(query, key, value, span=5))


WRONG_OUT = {
    "shape": np.empty((4, 4, 70, 23)), "type": np.empty((4, 4, 70, 24), np.float32),
    "broadcast": np.lib.stride_tricks.as_strided(np.empty(24), (4, 4, 70, 24), (0, 0, 0, 8)),
    "last axis": np.empty((4, 4, 24, 70)).swapaxes(2, 3), "read-only": np.broadcast_to(1.0, (4, 4, 70, 24)),
}  # fmt: skip


@pytest.mark.parametrize("out", WRONG_OUT.values(), ids=WRONG_OUT)
def test_an_array_that_cannot_take_the_result(out):
    arrays, options, _, _ = draw("heads", "float64")
    with pytest.raises(ValueError, match=r"^out |read-only|not writeable"):
        forward(Request(*arrays, options), out=out)


@pytest.mark.parametrize("needs", [("pattern",), ("span", "spam"), ("alibi_slopes",)])
def test_what_has_no_gradient(needs):
    arrays, options, grad_out, _ = draw("heads", "float64")
    request = Request(*arrays, options)
    _, _, saved = forward(request)
    with pytest.raises(ValueError, match=rf"^{needs[-1]} was not passed or has no gradient$"):
        backward(request, saved, grad_out, needs=needs)


def test_attention_writes_into_out_with_any_strides_and_number_of_threads():
    query, key, value = normals(0, 3, 2, 4, 90, 8)
    expected, lse = hs.attention(query, key, value, span=9.5, return_lse=True)
    out = np.full((2, 90, 4, 8), np.nan).swapaxes(1, 2)
    for threads in (1, 2, 10**9):
        result, other_lse = hs.attention(query, key, value, span=9.5, return_lse=True, out=out, threads=threads)
        assert result is out
        assert np.array_equal(out, expected)
        assert np.array_equal(other_lse, lse)
        out[:] = np.nan
    one_head = np.empty((90, 8))
    hs.attention(query[0, 0], key[0, 0], value[0, 0], span=9.5, out=one_head)
    assert np.array_equal(one_head, expected[0, 0])
    fused = normals(1, 2, 4, 90, 32)  # parts of one array share no memory
    hs.attention(*np.split(fused, 4, axis=-1)[:3], out=np.split(fused, 4, axis=-1)[3])


def test_gradients_take_threads():
    query, key, value = normals(0, 3, 1, 2, 90, 8)
    (out, vjp), (other, other_vjp) = (hs.attention_vjp(query, key, value, span=9.5, threads=n) for n in (1, 2))
    assert np.array_equal(out, other)
    for gradient, again in zip(vjp(out)[:4], other_vjp(out)[:4], strict=True):
        assert np.array_equal(gradient, again)


@pytest.mark.parametrize(
    ("wrong", "error", "sentence"),
    [
        ({"out": lambda q: q}, ValueError, "out must not overlap query, which is read while out is written"),
        ({"out": lambda q: [1.0]}, TypeError, r"out must be a NumPy array, not \[1.0\]"),
        ({"out": lambda q: q.astype("f4")}, TypeError, "out must be float64, not float32"),
        ({"out": lambda q: q[:, :1]}, ValueError, r"out must be of shape \(1, 2, 9, 4\), not \(1, 1, 9, 4\)"),
        ({"out": lambda q: np.empty((1, 2, 9, 8))[..., ::2]}, ValueError, "out must be contiguous in its last axis"),
        ({"out": lambda q: np.broadcast_to(0.0, q.shape)}, ValueError, "out must be writeable, got a read-only array"),
        ({"threads": lambda q: 0}, ValueError, "threads must be at least 1, not 0"),
        ({"threads": lambda q: 2.5}, TypeError, "threads must be an integer, not 2.5"),
    ],
)
def test_wrong_out_and_threads(wrong, error, sentence):
    query, key, value = normals(0, 3, 1, 2, 9, 4)
    with pytest.raises(error, match=f"^{sentence}$"):
        hs.attention(query, key, value, **{name: make(query) for name, make in wrong.items()})
