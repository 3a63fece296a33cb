"""The cache of tensors against that of arrays: the same bits, and the tensors that are refused."""

import io

import headspan as hs
import numpy as np
import pytest
from tensors import torch

from headspan.torch import SpanCache, attention  # isort: skip

ARGUMENTS = {"span": [3, 40, 9, 20], "ramp": 8, "first_tokens": 3, "slack": 10}
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}


def problem(dtype=torch.float32, tokens=120):
    torch.manual_seed(0)
    return [torch.randn(2, tokens, heads, 8).to(dtype).transpose(1, 2) for heads in (4, 2, 2)]


@pytest.mark.parametrize("dtype", [*TYPES, "float64"])
def test_same_bits_as_with_arrays(dtype):
    tensors = problem(torch.float64 if dtype == "float64" else torch.float32)
    ours = SpanCache(2, 2, 8, dtype=TYPES.get(dtype, dtype), **ARGUMENTS)
    theirs = hs.SpanCache(2, 2, 8, dtype=dtype, **ARGUMENTS)
    for first, last in ((0, 60), (60, 61), (61, 120)):
        new = [x[:, :, first:last] for x in tensors]
        options = {"softcap": 3.0, "sinks": torch.tensor([0.5, 1, -1, 0]), "return_lse": True}
        out, lse = ours.attend(*new, **options)
        expected = theirs.attend(*(x.numpy() for x in new), **options | {"sinks": [0.5, 1, -1, 0]})
        assert np.array_equal(out.numpy(), expected[0])
        assert np.array_equal(lse.numpy(), expected[1])
    assert (ours.count, ours.nbytes) == (120, theirs.nbytes)
    assert torch.equal(ours.span, torch.tensor([3.0, 40, 9, 20], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_in_and_out(dtype):
    tensors = problem(dtype)
    caches = [SpanCache(2, 2, 8, dtype=dtype, **ARGUMENTS) for _ in range(2)]
    out = caches[0].attend(*tensors)
    assert out.dtype is dtype
    assert torch.equal(out, caches[1].attend(*(x.float() for x in tensors)).to(dtype))


@pytest.mark.parametrize("span", [5, torch.tensor(5.0), float("inf"), [5, 5, float("inf"), 7]])
def test_one_number_for_all_heads_and_spans_without_a_limit(span):
    query, key, value = problem()
    cache = SpanCache(2, 2, 8, span=span, ramp=4)
    expected = attention(query, key, value, span=span, ramp=4)
    torch.testing.assert_close(cache.attend(query, key, value), expected)
    assert torch.equal(cache.span, torch.as_tensor(span, dtype=torch.float64))
    again = SpanCache.from_state_dict(cache.state_dict())
    assert torch.equal(again.span, cache.span)
    assert repr(again) == repr(cache)
    cache.span = 3
    assert (cache.span == 3).all()


def test_copied_saved_truncated_and_reordered():
    query, key, value = problem()
    cache = SpanCache(2, 2, 8, **ARGUMENTS)
    cache.append(key[:, :, :100], value[:, :, :100])
    copy = cache.copy()
    file = io.BytesIO()
    torch.save(cache.state_dict(), file)
    file.seek(0)
    loaded = SpanCache.from_state_dict(torch.load(file, weights_only=True))
    expected = cache.attend(query[:, :, 100:], key[:, :, 100:], value[:, :, 100:])
    for other in (copy, loaded):
        assert torch.equal(other.attend(query[:, :, 100:], key[:, :, 100:], value[:, :, 100:]), expected)
    cache.truncate(115)
    assert cache.count == 115
    again = cache.attend(query[:, :, 115:], key[:, :, 115:], value[:, :, 115:])
    torch.testing.assert_close(again, expected[:, :, 15:], rtol=0, atol=1e-6)
    cache.reorder(torch.tensor([1, 1, 0]))
    assert (cache.batch, copy.batch) == (3, 2)
    assert cache.attend(query[[1, 1, 0], :, -1:]).shape == (3, 4, 1, 8)
    cache.span = torch.tensor([3, 20, 9, 20])
    assert cache.nbytes < copy.nbytes * 1.5


@pytest.mark.parametrize(
    ("error", "words", "change"),
    [
        (TypeError, "tensor of torch", lambda x: x.numpy()), (ValueError, "gradient", lambda x: x.requires_grad_()),
        (TypeError, "float64", lambda x: x.double()), (TypeError, "complex64", lambda x: x.to(torch.complex64)),
        (ValueError, "CPU", lambda x: x.to("meta")), (ValueError, "shape", lambda x: x[0]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("which", [1, 2])
def test_tensors_that_are_refused(which, error, words, change):
    tensors = problem()
    tensors[which] = change(tensors[which])
    cache = SpanCache(2, 2, 8, **ARGUMENTS)
    with pytest.raises(error, match=words) as caught:
        cache.attend(*tensors)
    assert "\n" not in str(caught.value)
    assert cache.count == 0
