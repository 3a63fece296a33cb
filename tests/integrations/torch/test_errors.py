"""Bad calls: the errors are those of headspan.attention, and what only tensors can be is said in a sentence."""

import importlib
import re
import sys

import headspan as hs
import numpy as np
import pytest
from bad_calls import QKV, TABLE
from bad_values import check_sentence
from tensors import torch
from torch._subclasses import FakeTensorMode

from headspan.torch import attention, schema  # isort: skip


def as_tensor(x):
    known = type(x) is np.ndarray and x.dtype.kind in "biuf" and x.dtype != np.longdouble
    return torch.tensor(x) if known else x


# What is said in other words, since more is possible here or it is noticed earlier.
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
def test_errors_come_through_unchanged(argument, value, otherwise):
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
    assert str(caught.value) == str(expected.value)


def test_a_misspelt_option():
    query = torch.ones(1, 4, 5, 3)
    with pytest.raises(TypeError, match="did you mean 'span'"):
        attention(query, query, query, spans=3)


def test_arrays_are_sent_to_the_function_for_arrays():
    with pytest.raises(
        TypeError, match=r"query must be a tensor of torch, not ndarray; headspan\.attention takes arrays"
    ):
        attention(**QKV)


@pytest.mark.parametrize("argument", ["query", "value", "span"])
def test_another_device(argument):
    with FakeTensorMode():
        tensors = {name: torch.ones(x.shape) for name, x in QKV.items()} | {"span": torch.ones(4)}
        tensors[argument] = torch.ones(tensors[argument].shape, device="cuda")
        sentence = f"{argument} must be on the CPU, where headspan computes, not on cuda:0; see {argument}.cpu()"
        with pytest.raises(ValueError, match=re.escape(sentence)):
            attention(**tensors)


@pytest.mark.parametrize("argument", ["query", "span"])
def test_a_type_that_numpy_does_not_have(argument):
    tensors = {name: torch.ones(x.shape) for name, x in QKV.items()} | {"span": torch.ones(4)}
    tensors[argument] = tensors[argument].to(torch.float8_e4m3fn)
    sentence = f"{argument} must be of a type of NumPy, or bfloat16, not torch.float8_e4m3fn; see {argument}.float()"
    with pytest.raises(TypeError, match=re.escape(sentence)):
        attention(**tensors)


def test_tensors_that_need_a_gradient_are_sent_here_by_the_functions_for_arrays():
    query = torch.ones(1, 4, 5, 3, requires_grad=True)
    with pytest.raises(TypeError, match=r"not Tensor .*; headspan\.torch\.attention takes tensors"):
        hs.attention(query, query, query)
    assert hs.attention(*[query.detach()] * 3).shape == query.shape


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "headspan.torch")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'headspan\[torch\]'"):
        importlib.import_module("headspan.torch")
