"""Odd arrays, huge sizes, long sums and the caller's floating-point mode."""

import headspan as hs
import numpy as np
import oracle
import pytest
from cases import DTYPES, normals
from helpers import compile_library, is_x86, run_python
from tolerances import check_close


def check_refusal(error):
    """Check that an error has a message of one line."""
    assert str(error)
    assert "\n" not in str(error)


def swapped(array):
    return array.astype(array.dtype.newbyteorder())


def memory_map(array, folder):
    kept = np.memmap(folder / "array", dtype=array.dtype, mode="w+", shape=array.shape)
    kept[...] = array
    return kept


# Each function returns an array of another kind with the same numbers.
KINDS = {
    "list": lambda a, _: a.tolist(),
    "byte-swapped": lambda a, _: swapped(a),
    "masked": lambda a, _: np.ma.masked_array(a),
    "matrix": lambda a, _: np.asmatrix(a[0]) if a.ndim == 3 else a,
    "record field": lambda a, _: np.rec.fromarrays([a, a], names="one,two").one,
    "memory map": memory_map,
    "zero strides": lambda a, _: np.broadcast_to(a[:1, :1], a.shape),
    "buffer": lambda a, _: memoryview(np.ascontiguousarray(a)),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_array_kinds(kind, tmp_path):
    """Each kind works or is refused with a sentence: no crash, no wrong value, no changed input."""
    plain = normals(0, 2, 70, 8)
    array = kind(plain, tmp_path)
    before = np.array(array, dtype=np.float64)
    try:
        (out, lse), vjp = hs.attention_vjp(array, array, array, span=9.5, return_lse=True)
        gradient = vjp(np.ones_like(out)).key
    except (TypeError, ValueError) as refusal:
        check_refusal(refusal)
    else:
        expected, expected_lse = oracle.attention(before, before, before, span=9.5)
        check_close("out", out, expected, "float64")
        check_close("lse", lse, expected_lse, "float64")
        wanted = oracle.gradients(before, before, before, np.ones_like(expected), span=9.5)
        check_close("key", gradient, wanted["key"].value, "float64", wanted["key"].mass)
    assert np.array(array, dtype=np.float64).tobytes() == before.tobytes()


EMPTY = {
    "no queries": ((2, 0, 8), (2, 5, 8), (2, 0, 8)),
    "no batch": ((0, 2, 5, 8), (0, 2, 5, 8), (0, 2, 5, 8)),
    "no keys": ((2, 5, 8), (2, 0, 8), (2, 5, 8)),
    "nothing": ((0, 0, 0), (0, 0, 0), (0, 0, 0)),
}


@pytest.mark.parametrize(("query", "key", "out"), EMPTY.values(), ids=EMPTY)
def test_empty_arrays(query, key, out):
    query, key = np.zeros(query), np.zeros(key)
    try:
        result, vjp = hs.attention_vjp(query, key, key, span=3)
    except ValueError as refusal:
        check_refusal(refusal)
    else:
        assert result.shape == out
        assert vjp(result).key.shape == key.shape
        assert not np.any(vjp(result).key)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_without_keys(dtype):
    """out 0, lse -inf, gradients 0, whatever the row and its gradients hold."""
    query, key, value = (normals(i, 3, 90, 7, dtype=dtype) for i in range(3))
    query[:, :20] = np.nan
    key, value = key[:, :70], value[:, :70]  # the first 20 queries come before every key
    options = {"span": [0, 5.5, 1e9], "causal": True}
    (out, lse), vjp = hs.attention_vjp(query, key, value, **options, return_lse=True)
    grad_out, grad_lse = np.ones_like(out), np.ones_like(lse)
    grad_out[:, :20], grad_lse[:, :20] = np.inf, np.nan
    gradients = vjp(grad_out, grad_lse)
    assert np.all(out[:, :20] == 0)
    assert np.all(np.isneginf(lse[:, :20]))
    assert np.all(gradients.query[:, :20] == 0)
    for name in ("query", "key", "value", "span"):
        assert np.isfinite(getattr(gradients, name)).all(), name
    weights = hs.attention_weights(query, key, **options)
    assert np.all(weights[:, :20] == 0)


def test_inputs_are_never_written_to():
    """Read-only inputs work, and writable ones keep every byte."""
    arrays = [normals(i, 2, 3, 67, 9) for i in range(4)]
    parameters = {
        "span": np.array([3.0, 1e9, 0.0]),
        "temperature": np.array([[0.5, 1.0, 2.0]] * 2),
        "alibi_slopes": np.array([0.0, 0.5, -0.1]),
    }
    before = [a.tobytes() for a in (*arrays, *parameters.values())]
    _, vjp = hs.attention_vjp(*arrays[:3], **parameters)
    vjp(arrays[3])
    hs.attention_weights(*arrays[:2], **parameters, rows=np.array([-1, 0]), pool=2)
    hs.merge_attention(arrays[:2], [arrays[2][..., 0], arrays[3][..., 0]])
    assert [a.tobytes() for a in (*arrays, *parameters.values())] == before
    for array in (*arrays, *parameters.values()):
        array.flags.writeable = False
    _, vjp = hs.attention_vjp(*arrays[:3], **parameters)
    vjp(arrays[3])


FLUSH = """
#include <immintrin.h>
extern "C" unsigned get() { return _mm_getcsr(); }
extern "C" void set(unsigned word) { _mm_setcsr(word); }
"""
FLUSH_TEST = """
import ctypes, sys
import headspan as hs
import numpy as np

mode = ctypes.CDLL(sys.argv[1])
mode.get.restype = mode.set.argtypes = None
mode.get.restype, mode.set.argtypes = ctypes.c_uint, [ctypes.c_uint]
CONTROL = ~0x3F & 0xFFFFFFFF  # without the six flags that any operation may raise
dtype = np.dtype(sys.argv[2])
tiny = np.finfo(dtype).smallest_subnormal
rng = np.random.default_rng(0)
query, key = rng.standard_normal((2, 3, 301, 16)).astype(dtype)
value = (rng.integers(1, 2000, (3, 301, 16)) * tiny).astype(dtype)  # all subnormal
assert np.all(value > 0)

def bits():
    (out, lse), vjp = hs.attention_vjp(query, key, value, span=50.5, return_lse=True)
    return [a.tobytes() for a in (out, lse, *vjp(value)[:4])], out

normal = mode.get()
flush = normal | 0x8040  # flush results to zero, read subnormals as zero
order = [flush, normal, flush] if sys.argv[3] == 'born flushing' else [normal, flush, normal]
hs.set_num_threads(3)
results = []
for word in order:
    mode.set(word)
    result = bits()[0]
    left = mode.get()
    mode.set(normal)
    assert left & CONTROL == word & CONTROL, (hex(left), hex(word))
    results.append(result)
out = bits()[1]
assert 0 < np.abs(out).max() < np.finfo(dtype).tiny, 'nothing was subnormal'
assert results[0] == results[1] == results[2]
print('same bits')
"""


@pytest.mark.unsanitized
@pytest.mark.skipif(not is_x86(), reason="the control word of x86")
@pytest.mark.parametrize("order", ["born flushing", "flushing later"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_flush_to_zero_of_the_caller(tmp_path, dtype, order):
    """Neither the caller's thread nor workers born from it round subnormals to zero."""
    library = compile_library(FLUSH, tmp_path / "mode.so")
    assert run_python(FLUSH_TEST, library, dtype, order) == "same bits\n"


def naive_sum(array):
    """One float32 accumulator, from first to last."""
    return np.cumsum(array, axis=0, dtype=np.float32)[-1]


@pytest.mark.parametrize("tokens", [1 << 12, 300_007])
def test_long_sums_over_keys(tokens):
    """Equal weights: the mean of many values, where one accumulator loses three digits."""
    value = np.random.default_rng(0).uniform(0, 1, (tokens, 3)).astype(np.float32)
    zeros = np.zeros((1, 3), np.float32)
    out, lse = hs.attention(zeros, np.broadcast_to(zeros, (tokens, 3)), value, return_lse=True)
    exact = value.astype(np.float64).mean(axis=0)
    naive = np.abs(naive_sum(value) / np.float32(tokens) - exact).max()
    assert np.abs(out[0] - exact).max() <= naive
    np.testing.assert_allclose(lse[0], np.log(tokens), rtol=1e-6)


@pytest.mark.parametrize("tokens", [1 << 12, 300_007])
def test_long_sums_over_queries(tokens):
    """One key met by many queries: its gradients are sums over all of them."""
    grad_out = np.random.default_rng(0).uniform(0, 1, (tokens, 3)).astype(np.float32)
    zeros = np.zeros((1, 3), np.float32)
    query = np.broadcast_to(zeros, (tokens, 3))
    _, vjp = hs.attention_vjp(query, zeros, zeros, causal=False)
    exact = grad_out.astype(np.float64).sum(axis=0)
    naive = np.abs(naive_sum(grad_out) - exact).max()
    assert np.abs(vjp(grad_out).value[0] - exact).max() <= naive


def test_long_sums_of_the_gradient_of_a_query():
    """Terms that are all the same, so that rounding always goes one way: half of a thousandth in one accumulator."""
    tokens = 300_008
    sign = np.resize(np.float32([1, -1]), (tokens, 1))
    _, vjp = hs.attention_vjp(np.zeros((8, 1), np.float32), sign * np.float32(0.7), sign, scale=1, causal=False)
    gradient = vjp(np.ones((8, 1), np.float32)).query
    np.testing.assert_allclose(gradient, 0.7, rtol=5e-6)


GIANTS = """
import resource, sys
import headspan as hs
import numpy as np

resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

def giant(*shape, dtype=np.float32):
    try:
        return np.lib.stride_tricks.as_strided(np.ones(1, dtype), shape, (0,) * len(shape))
    except ValueError:
        sys.exit('NumPy has no such array')

small = np.ones((2, 70, 8), np.float32)
CALLS = {
    'queries': lambda: hs.attention(giant(1, 1 << 45, 8), small[:1], small[:1]),
    'heads': lambda: hs.attention(giant(1 << 40, 70, 8), small[:1], small[:1]),
    'batch': lambda: hs.attention(*[giant(1 << 31, 1 << 20, 1, 8)] * 3),
    'pairs beyond 64 bits': lambda: hs.attention(*[giant(1 << 30, 1 << 29, 1, 1)] * 3),
    'wide value': lambda: hs.attention(small[:1], small[:1], giant(1, 70, 1 << 50)),
    'wide head': lambda: hs.attention(giant(1, 1, 1 << 45), giant(1, 1, 1 << 45), small[:1, :1]),
    'key gradients': lambda: hs.attention_vjp(
        small[:1], giant(1, 1 << 45, 8), giant(1, 1 << 45, 8), span=3)[1](small[:1]),
    'weights': lambda: hs.attention_weights(giant(1, 1 << 40, 8), giant(1, 1 << 40, 8), span=3),
    'pooled weights': lambda: hs.attention_weights(
        giant(1, 1 << 40, 8), giant(1, 1 << 40, 8), span=3, pool=2),
    'span of a giant': lambda: hs.attention(small, small, small, span=giant(2, 1 << 59)),
    'merge': lambda: hs.merge_attention([giant(1, 1 << 45, 8)], [giant(1, 1 << 45)]),
}
try:
    CALLS[sys.argv[1]]()
except (MemoryError, ValueError) as error:
    assert '\\n' not in str(error)
    print('refused')
assert np.abs(hs.attention(small, small, small) - 1).max() < 1e-5
"""
GIANT_CALLS = (
    "queries", "heads", "batch", "pairs beyond 64 bits", "wide value", "wide head",
    "key gradients", "weights", "pooled weights", "span of a giant", "merge",
)  # fmt: skip


@pytest.mark.unsanitized
@pytest.mark.parametrize("call", GIANT_CALLS)
def test_giants_are_refused(call):
    """Sizes whose products do not fit memory or 64 bits: an error, and the next call is right."""
    assert run_python(GIANTS, call, timeout=60) == "refused\n"


LEAN = """
import resource
import headspan as hs
import numpy as np

tokens, heads = 65_536, 2  # a dense float32 matrix of one head would need 16 GiB
query = np.random.default_rng(0).standard_normal((heads, tokens, 16)).astype(np.float32)
hs.set_num_threads(2)
hs.attention(query[:, :64], query[:, :64], query[:, :64])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out, vjp = hs.attention_vjp(query, query, query, span=[5.0, 60.0])
vjp(out)
hs.attention_weights(query, query, rows=slice(-3, None), cols=slice(-100, None))
hs.attention_weights(query, query, span=20.0, rows=slice(0, 1024), pool=64)
used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
print(used / query.nbytes)
"""


@pytest.mark.unsanitized
def test_memory_grows_with_tokens_not_with_pairs():
    """Forward, backward and pictures: a small multiple of one input."""
    assert float(run_python(LEAN)) < 16


def test_one_item_of_an_array_of_records():
    """The leading axis of length 1 has a stride that is not a multiple of the size of an element."""
    records = np.zeros(3, dtype=[("a", "f8", (2, 5, 4)), ("b", "u1")])
    records["a"] = normals(0, 3, 2, 5, 4)
    for some in (slice(0, 1), slice(1, 2), slice(None)):
        for array in (records["a"][some], records["a"][some][:, :, ::2]):
            np.testing.assert_array_equal(hs.attention(*[array] * 3), hs.attention(*[array.copy()] * 3))
