"""Bad calls: the errors are those of headspan.attention; others, for tensors alone, are one sentence."""

import importlib
import re
import sys

import headspan as hs
import numpy as np
import pytest
from bad_calls import QKV, TABLE
from bad_values import check_sentence
from tensors import torch, with_conversions_of_torch
from torch._subclasses import FakeTensorMode

from headspan.torch.arrays import array_of  # isort: skip
from headspan.torch import SpanCache, attention, hierarchical_attention, retrieval_attention, schema  # isort: skip


def as_tensor(x):
    known = type(x) is np.ndarray and x.dtype.kind in "biuf" and x.dtype != np.longdouble
    return torch.tensor(x) if known else x


# Other messages, since tensors may have more types or the error is noticed earlier.
OTHERWISE = {
    ("query", "float16"): "key is torch.float64 but query is torch.float16; key.to(torch.float16) makes them alike",
    ("pair_bias", "string"): "pair_bias must be real numbers, not <U3",
}
ROWS = [
    pytest.param(argument, value, OTHERWISE.get((argument, what)), id=f"{argument}-{what}")
    for argument, rows in TABLE["attention"].items()
    for what, _, value in rows
]


@pytest.mark.parametrize(("argument", "value", "otherwise"), ROWS)
def test_errors_are_those_for_arrays_with_the_conversions_of_torch(argument, value, otherwise):
    spoilt = value if argument in schema.PLAIN else as_tensor(value)
    tensors = {name: torch.tensor(x) for name, x in QKV.items()} | {argument: spoilt}
    with pytest.raises((ValueError, TypeError)) as caught:
        attention(**tensors)
    check_sentence(caught.value, argument)
    if argument in QKV and not isinstance(tensors[argument], torch.Tensor):
        assert "must be a tensor of torch" in str(caught.value)
        return
    if otherwise:
        assert str(caught.value) == otherwise
        return
    with pytest.raises((ValueError, TypeError)) as expected:
        hs.attention(**QKV | {argument: value})
    assert type(caught.value) is type(expected.value)
    assert str(caught.value) == with_conversions_of_torch(str(expected.value))


TENSOR = torch.ones(1, 4, 5, 3)
ADVICE = {
    "integers": (lambda x: attention(x.int(), x, x), "not int32; query.to(torch.float32) converts it"),
    "mixed": (lambda x: attention(x, x, x.double()), "value is float64 but query is float32; value.to(torch.float32)"),
    "integers, for arrays": (lambda x: hs.attention(x.int(), x, x), "not int32; query.to(torch.float32) converts it"),
    "half": (lambda x: hs.attention(x.half(), x, x), "not float16; query.to(torch.float32) converts it"),
    "mixed, for arrays": (lambda x: hs.attention(x, x.double(), x), "key.to(torch.float32) makes them alike"),
    "bfloat16, for arrays": (lambda x: hs.attention_weights(x, x.bfloat16()), "; key.to(torch.float32) converts it"),
    "a hierarchy": (lambda x: hierarchical_attention(x, x.double(), x), "key.to(torch.float32) makes them alike"),
    "a cache": (lambda x: SpanCache(1, 4, 3).attend(x.int(), x, x), "query.to(torch.float32) converts it"),
    "a gradient": (lambda x: hs.attention_vjp(x, x, x)[1](x.double()), "grad_out.to(torch.float32) makes them alike"),
}


@pytest.mark.parametrize(("call", "sentence"), ADVICE.values(), ids=ADVICE)
def test_a_tensor_of_another_type_gets_the_conversion_of_torch(call, sentence):
    with pytest.raises(TypeError, match=re.escape(sentence)) as caught:
        call(TENSOR)
    assert "astype" not in str(caught.value)


def test_a_misspelt_option():
    query = torch.ones(1, 4, 5, 3)
    with pytest.raises(TypeError, match="did you mean 'span'"):
        attention(query, query, query, spans=3)


def test_the_error_for_arrays_names_the_function_for_arrays():
    with pytest.raises(
        TypeError, match=r"query must be a tensor of torch, not ndarray; headspan\.attention takes arrays"
    ):
        attention(**QKV)


@pytest.mark.parametrize("argument", ["query", "value", "span"])
def test_another_device(argument):
    with FakeTensorMode():
        tensors = {name: torch.ones(x.shape) for name, x in QKV.items()} | {"span": torch.ones(4)}
        tensors[argument] = torch.ones(tensors[argument].shape, device="cuda")
        named, devices = ("key", ("cuda:0", "cpu")) if argument == "query" else (argument, ("cpu", "cuda:0"))
        sentence = f"{named} must be on the device of query, {devices[0]}, not on {devices[1]}"
        with pytest.raises(ValueError, match=re.escape(sentence)):
            attention(**tensors)


ANY = {
    "span": torch.ones(4), "key_stop": torch.tensor([3, 5]), "key_bias": torch.zeros(5),
    "pair_bias": torch.zeros(5, 5), "sinks": torch.zeros(4), "segment_ids": torch.zeros(5, dtype=torch.int64),
    "query_positions": torch.arange(5),
}  # fmt: skip


@pytest.mark.parametrize("argument", ["key", "value", *ANY])
def test_tensors_on_meta_with_others(argument):
    """Tensors on "meta" have no memory, so reading them would return arbitrary numbers."""
    query = torch.ones(2, 4, 5, 3)
    tensors = dict.fromkeys(QKV, query) | ({argument: ANY[argument]} if argument in ANY else {})
    sentence = f"{argument} must be on the device of query, cpu, not on meta"
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        attention(**tensors | {argument: tensors[argument].to("meta")})
    elsewhere = {name: x.to("meta") for name, x in tensors.items()} | {argument: tensors[argument]}
    with pytest.raises(ValueError, match=f"^{argument} must be on the device of query, meta, not on cpu$"):
        attention(**elsewhere)
    on_meta = {name: x.to("meta") for name, x in tensors.items()}
    assert attention(**on_meta, ramp=3, return_lse=True)[1].shape == (2, 4, 5)


def test_the_operator_reads_no_tensor_on_meta():
    query = torch.ones(1, 4, 5, 3)
    with pytest.raises(ValueError, match="key must be on the device of query, cpu, not on meta"):
        torch.ops.headspan.attention(query, query.to("meta"), query)
    with pytest.raises(ValueError, match="tensor must be on the CPU, not on meta"):
        array_of(query.to("meta"))


def test_functions_around_attention_read_no_tensor_on_meta():
    query, indices = torch.ones(1, 4, 5, 3), torch.zeros(1, 4, 5, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="value must be on the device of query, cpu, not on meta"):
        hierarchical_attention(query, query, query.to("meta"))
    with pytest.raises(ValueError, match="sinks must be on the device of query, cpu, not on meta"):
        hierarchical_attention(query, query, query, sinks=torch.ones(4, device="meta"))
    memory = {"memory_key": query, "memory_value": query, "indices": indices, "gate": torch.zeros(4)}
    for name in memory:
        with pytest.raises(ValueError, match=f"{name} must be on the device of .*, cpu, not on meta"):
            retrieval_attention(query, query, query, **memory | {name: memory[name].to("meta")})
    with pytest.raises(ValueError, match="query must be on the CPU, not on meta"):
        retrieval_attention(*[query.to("meta")] * 3, **memory)
    with pytest.raises(ValueError, match="span must be on the CPU, not on meta"):
        SpanCache(1, 4, 3, span=torch.ones(4, device="meta"))
    cache = SpanCache(1, 4, 3, span=[1, 2, 3, 4])
    with pytest.raises(ValueError, match="span must be on the CPU, not on meta"):
        cache.attend(query, query, query, span=torch.ones(4, device="meta"))


@pytest.mark.parametrize("argument", ["query", "span"])
def test_a_type_that_numpy_does_not_have(argument):
    tensors = {name: torch.ones(x.shape) for name, x in QKV.items()} | {"span": torch.ones(4)}
    tensors[argument] = tensors[argument].to(torch.float8_e4m3fn)
    sentence = (
        f"{argument} must be of a type of NumPy, or bfloat16, not torch.float8_e4m3fn; {argument}.float() converts it"
    )
    with pytest.raises(TypeError, match=re.escape(sentence)):
        attention(**tensors)


def test_the_error_of_functions_for_arrays_names_the_function_for_tensors():
    query = torch.ones(1, 4, 5, 3, requires_grad=True)
    with pytest.raises(TypeError, match=r"not Tensor .*; headspan\.torch\.attention takes tensors"):
        hs.attention(query, query, query)
    assert hs.attention(*[query.detach()] * 3).shape == query.shape


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "headspan.torch")
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[torch\]'"):
        importlib.import_module("headspan.torch")
