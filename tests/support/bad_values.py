"""Wrong arguments, and checks of what an error says."""

import re

import numpy as np

NAN, INF = float("nan"), float("inf")
OBJECTS = np.array([1.0, None, 2.0], dtype=object)
RAGGED = [[1.0], [1.0, 2.0]]


class Tensor:
    """A tensor of torch that requires a gradient, as NumPy sees it."""

    requires_grad = True

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.\nUse tensor.detach().numpy() instead.")

    def __repr__(self):
        return "Tensor()"


def ones(*shape, dtype=np.float64):
    return np.ones(shape, dtype=dtype)


# Batch 2, heads 4 on 2 key heads, 5 queries on 6 keys, dim 3.
SMALL = {"query": ones(2, 4, 5, 3), "key": ones(2, 2, 6, 3), "value": ones(2, 2, 6, 3)}


def check_sentence(error, argument):
    """One line, one sentence, with the name of the argument and no machinery."""
    text = str(error)
    assert text
    assert "\n" not in text, text
    assert len(text) < 300, text
    assert not re.search(r"[.!?]\s+[A-Z]", text), f"more than one sentence: {text}"
    if argument != "n":
        assert argument in text, f"does not name {argument}: {text}"
    for noise in ("Traceback", "pybind11", "incompatible function", "_core", "<class", "std::"):
        assert noise not in text, text


def same(one, two):
    if isinstance(one, (list, tuple)):
        return all(same(a, b) for a, b in zip(one, two, strict=True))
    return np.array_equal(np.asarray(one), np.asarray(two)) or one == two


def check_names(error, names):
    check_sentence(error, "n")
    assert any(name.lower() in str(error).lower() for name in names), f"names none of {names}: {error}"
