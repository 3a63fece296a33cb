"""Attention to a window and to keys retrieved from a memory, in one softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.ops.arguments.options import takes_options
from headspan.ops.arguments.parameters import PerQuery
from headspan.ops.arguments.sizes import Sizes, check_alike
from headspan.ops.attention import Gradients, attention, attention_vjp
from headspan.ops.merge import merge_attention, merge_attention_vjp
from headspan.patterns.blocks import Blocks, Lists

_OF_BOTH = ("scale", "temperature", "softcap")


@takes_options
def retrieval_attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    memory_key: npt.ArrayLike,
    memory_value: npt.ArrayLike,
    indices: npt.ArrayLike,
    *,
    gate: npt.ArrayLike | None = None,
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """Attention to the keys around a query and to those that were retrieved for it from a memory, in one softmax.

    With the log-sum-exp of the local part, l, and that of the memory part, m, and a gate b the result is
    ``(exp(l) * local + exp(m + b) * memory) / (exp(l) + exp(m + b))``: the memory counts ``exp(b)`` times.

    Parameters
    ----------
    query, key, value
        As for `attention`, float32 or float64.
    memory_key, memory_value : array_like, shape (batch, key heads, rows, head_dim)
        Any number of rows, none too; other axes and types as those of key and value. What lies before the window: a key
        that the local part sees as well counts twice.
    indices : array_like of int, shape (batch, heads, tokens, k)
        The rows that each query sees, in any order, as `KeyIndex.retrieve` finds them; -1 stands for none, and a row
        that is named twice counts once. They have no gradient.
    gate : array_like, optional
        Added to the log-sum-exp of the memory part: a number, or of shape (heads,) or (batch, heads). 0 unless given.
    return_lse : bool
        Whether to return the log-sum-exp too.
    **options
        As for `attention`, of the local part, `causal` and `span` among them; but scale, temperature and softcap are
        those of both. The memory part has products and nothing else: no positions, slopes, biases or dropout.

    Returns
    -------
    out : ndarray, shape (batch, heads, tokens, head_dim of value)
    lse : ndarray, shape (batch, heads, tokens)
        Only with `return_lse`.

    Raises
    ------
    ValueError
        For a wrong shape or value.
    TypeError
        For a wrong or mixed type.

    References
    ----------
    Wu et al., "Memorizing Transformers", ICLR 2022, section 3.1 and 3.2: there a gate mixes the results of two
    softmaxes, here it is a bias within one, so that the part that finds nothing gives way by itself.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 1000, 16))
    >>> index = hs.KeyIndex(2, 16, dtype="float64")
    >>> index.add(k)
    >>> window = 100
    >>> found = index.retrieve(q, 8, before=np.maximum(np.arange(1000) - window, 0))
    >>> hs.retrieval_attention(q, k, v, k, v, found, span=window, ramp=0).shape
    (2, 1000, 16)
    """
    with_lse = _check.flag("return_lse", return_lse)
    memory = MemoryPart(query, key, value, memory_key, memory_value, indices, gate, options)
    local = attention(query, key, value, return_lse=True, **options)
    far = attention(*memory.arrays, return_lse=True, **memory.options)
    out, lse = merge_attention(*memory.gated(local, far))
    return (out, lse) if with_lse else out


@takes_options
def retrieval_attention_vjp(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    memory_key: npt.ArrayLike,
    memory_value: npt.ArrayLike,
    indices: npt.ArrayLike,
    *,
    gate: npt.ArrayLike | None = None,
    return_lse: bool = False,
    **options: Any,
) -> tuple[Any, Callable[..., tuple[Gradients, Array | None]]]:
    """Attention to a window and to retrieved keys, and the function that takes a gradient back through it.

    Parameters
    ----------
    query, key, value, memory_key, memory_value, indices, gate, return_lse
        As for `retrieval_attention`. The arrays must not be changed before the gradient has been taken.
    **options
        As there.

    Returns
    -------
    out : ndarray, or (out, lse) with `return_lse`
    vjp : callable
        ``vjp(grad_out, grad_lse=None)`` gives `Gradients`, of which memory_key and memory_value are those of all rows,
        zeros where nobody looked; and the gradient of gate, or None.

    Raises
    ------
    ValueError
        For a wrong shape or value; also by `vjp`.
    TypeError
        For a wrong or mixed type; also by `vjp`.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 10, 16))
    >>> memory, found = np.ones((2, 2, 50, 16)), np.arange(60).reshape(2, 10, 3) % 50
    >>> out, vjp = hs.retrieval_attention_vjp(q, k, v, *memory, found, gate=[0.5, 1.5], span=4)
    >>> gradients, grad_gate = vjp(np.ones_like(out))
    >>> gradients.memory_key.shape, grad_gate.shape
    ((2, 50, 16), (2,))
    """
    with_lse = _check.flag("return_lse", return_lse)
    memory = MemoryPart(query, key, value, memory_key, memory_value, indices, gate, options)
    local, local_vjp = attention_vjp(query, key, value, return_lse=True, **options)
    far, far_vjp = attention_vjp(*memory.arrays, return_lse=True, **memory.options)
    (out, lse), merge_vjp = merge_attention_vjp(*memory.gated(local, far))

    def vjp(grad_out: npt.ArrayLike, grad_lse: npt.ArrayLike | None = None) -> tuple[Gradients, Array | None]:
        """Gradients of ``sum(grad_out * out) + sum(grad_lse * lse)``."""
        grad_outs, grad_lses = merge_vjp(grad_out, grad_lse)
        near, beyond = (back(*grads) for back, *grads in zip((local_vjp, far_vjp), grad_outs, grad_lses, strict=True))
        gradients = near._replace(
            query=near.query + beyond.query,
            memory_key=beyond.key[..., : memory.rows, :],
            memory_value=beyond.value[..., : memory.rows, :],
        )
        if near.temperature is not None and beyond.temperature is not None:
            gradients = gradients._replace(temperature=near.temperature + beyond.temperature)
        return gradients, memory.gate_gradient(grad_lses[1])

    return ((out, lse) if with_lse else out), vjp


class MemoryPart:
    """The memory part of a call of `retrieval_attention`, whose arguments it takes and checks.

    Attributes
    ----------
    arrays, options
        What `attention` is called with for it: each query sees its own list of keys.
    rows : int
        How many were given. There are more in the arrays if queries are more than that, since a pattern of blocks has
        no row for a query before the first key.
    """

    def __init__(
        self,
        query: npt.ArrayLike,
        key: npt.ArrayLike,
        value: npt.ArrayLike,
        memory_key: npt.ArrayLike,
        memory_value: npt.ArrayLike,
        indices: npt.ArrayLike,
        gate: npt.ArrayLike | None,
        options: Mapping[str, Any],
    ) -> None:
        names = ("query", "key", "value", "memory_key", "memory_value")
        given = (query, key, value, memory_key, memory_value)
        its = {name: _check.float_array(name, array) for name, array in zip(names, given, strict=True)}
        _check.same_dtype(its)
        check_alike({name: its[name] for name in names[:3]})
        self.rows = _checked_rows(its)
        shape = its["query"].shape
        batch, heads, tokens = self._lead = (*(1,) * (4 - len(shape)), *shape[:-1])
        lists = _checked_indices(indices, shape[:-1], self.rows)
        lists = lists.reshape(*self._lead, lists.shape[-1])
        keys = max(self.rows, tokens)
        self.arrays = (its["query"], *(_with_rows(its[name], keys) for name in names[3:]))
        masks = [[_of_last_queries(of_head, keys) for of_head in of_item] for of_item in lists]
        pattern = Blocks(masks if len(shape) == 4 else masks[0], 1, per_head=True)
        shared = {name: options[name] for name in _OF_BOTH if name in options}
        self.options: dict[str, Any] = {"causal": False, "pattern": pattern, **shared}
        sizes = Sizes(batch, heads, heads, tokens, keys, len(shape), its["query"].dtype)
        self._gate = None if gate is None else PerQuery("gate", gate, sizes, per_token=False, score=True)

    def gated(self, *parts: tuple[Array, Array]) -> tuple[tuple[Array, ...], tuple[Array, Array]]:
        """Return the results of the local and of the memory part, and their log-sum-exps, the latter with the gate."""
        outs, (local, far) = zip(*parts, strict=True)
        if self._gate is not None:
            far = (far.reshape(self._lead) + self._gate.array[..., None]).reshape(far.shape)
        return outs, (local, far)

    def gate_gradient(self, grad_lse: Array) -> Array | None:
        """Return the gradient of the gate from that of the log-sum-exp of the memory part."""
        if self._gate is None:
            return None
        return self._gate.gradient(grad_lse.reshape(self._lead).astype(np.float64))


def _checked_rows(arrays: Mapping[str, Array]) -> int:
    """Return how many rows the memory has, or say what its shapes should be."""
    rows: int | None = None
    for name in ("key", "value"):
        own, memory = arrays[name].shape, arrays[f"memory_{name}"].shape
        if rows is None:
            rows = memory[-2] if len(memory) > 1 else 0
        if memory != (*own[:-2], rows, own[-1]):
            wanted = ", ".join(map(str, (*own[:-2], "rows" if name == "key" else rows, own[-1])))
            raise ValueError(f"memory_{name} must be of shape ({wanted}), not {memory}")
    assert rows is not None
    return rows


def _checked_indices(given: npt.ArrayLike, lead: tuple[int, ...], rows: int) -> npt.NDArray[np.int64]:
    """Return the rows that each query sees, ascending, those that stand for none first."""
    array = _check.integers("indices", given)
    if array.ndim != len(lead) + 1 or array.shape[:-1] != lead:
        raise ValueError(f"indices must be of shape ({', '.join(map(str, lead))}, k), not {array.shape}")
    low, high = _check.limits("indices", array)
    if array.size and (low < -1 or high >= rows):
        wrong = low if low < -1 else high
        raise ValueError(f"indices must lie between -1, for none, and {rows - 1}, but hold {wrong:.0f}")
    return np.sort(array, axis=-1).astype(np.int64, copy=False)


def _with_rows(array: Array, count: int) -> Array:
    """Return an array with zeros behind its rows, so that there are so many."""
    *lead, rows, dim = array.shape
    if rows == count:
        return array
    longer = np.zeros((*lead, count, dim), array.dtype)
    longer[..., :rows, :] = array
    return longer


def _of_last_queries(lists: npt.NDArray[np.int64], keys: int) -> Lists:
    """Return the lists of a head as rows of blocks: as many rows as there are keys, the last ones of the queries."""
    seen = lists >= 0
    return Lists(np.append(0, np.cumsum(seen.sum(axis=1))), lists[seen], keys)
