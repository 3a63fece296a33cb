"""Attention to a window and to keys retrieved from a memory, in one softmax."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.ops.arguments.options import DIFFERENTIABLE, options_in, takes_options
from headspan.ops.arguments.parameters import PerQuery
from headspan.ops.arguments.rows import In
from headspan.ops.arguments.sizes import Sizes, check_alike
from headspan.ops.attention import Gradients, attention, attention_vjp
from headspan.ops.merge import merge_attention, merge_attention_vjp
from headspan.patterns.blocks import Blocks, Lists

_OF_BOTH = options_in(In.RETRIEVAL)  # of the local part and of the memory part


_namedtuple: Any = namedtuple  # its fields are derived, which static types do not know
RetrievalGradients = _namedtuple("RetrievalGradients", [*Gradients._fields, "memory_key", "memory_value", "gate"])


@overload
def retrieval_attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    memory_key: npt.ArrayLike,
    memory_value: npt.ArrayLike,
    indices: npt.ArrayLike,
    *,
    gate: npt.ArrayLike | None = ...,
    return_lse: Literal[False] = ...,
    **options: Any,
) -> Array: ...
@overload
def retrieval_attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    memory_key: npt.ArrayLike,
    memory_value: npt.ArrayLike,
    indices: npt.ArrayLike,
    *,
    gate: npt.ArrayLike | None = ...,
    return_lse: Literal[True],
    **options: Any,
) -> tuple[Array, Array]: ...
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
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Attention to the keys around a query and to keys retrieved for it from a memory, in one softmax.

    The local part is causal by default: pass ``causal=False`` to let queries see later keys. Retrieved keys have no
    position. If l is the log-sum-exp of the local part, m that of the memory part and b the gate, the result is
    ``(exp(l) * local + exp(m + b) * memory) / (exp(l) + exp(m + b))``. The gate thus weights the memory by ``exp(b)``.

    Parameters
    ----------
    query, key, value
        As for `attention`, float32 or float64.
    memory_key, memory_value : array_like, shape (batch, key heads, rows, head_dim)
        The keys and values of the memory, with any number of rows. The other axes and the types are those of `key` and
        `value`. Queries should see only rows before their window, since a key that both parts see counts twice.
    indices : array_like of int, shape (batch, heads, tokens, k)
        The rows that each query sees, in any order, as `KeyIndex.retrieve` returns them. -1 stands for no row, and a
        repeated row counts once. The indices have no gradient.
    gate : array_like, optional
        A bias on the log-sum-exp of the memory part, a number or of shape (heads,) or (batch, heads). 0 by default.
    return_lse : bool
        Whether to return the log-sum-exp too.
    **options
        Options of `attention` for the local part, such as `causal` and `span`. scale, temperature and softcap apply to
        both parts. The memory part uses no positions, slopes, biases or dropout.

    Returns
    -------
    out : ndarray, shape (batch, heads, tokens, head_dim of value)
    lse : ndarray, shape (batch, heads, tokens)
        Only with `return_lse`.

    Raises
    ------
    ValueError
        If an index is not a row of the memory.
    TypeError
        If the arrays differ in type.

    See Also
    --------
    retrieval_attention_vjp : The same attention with its gradients.
    KeyIndex : Search for the keys with the largest dot products.
    headspan.torch.retrieval_attention : The same for tensors.

    References
    ----------
    Wu et al., "Memorizing Transformers", ICLR 2022, section 3.1 and 3.2. Their gate mixes the results of two softmaxes.
    Here it is a bias in one softmax, so that a part without good matches loses weight by itself.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 1000, 16))
    >>> index = hs.memory.KeyIndex(2, 16, dtype="float64")
    >>> index.add(k)
    >>> window = 100
    >>> indices = index.retrieve(q, 8, before=np.maximum(np.arange(1000) - window, 0))
    >>> hs.memory.retrieval_attention(q, k, v, k, v, indices, span=window, ramp=0).shape
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
) -> tuple[Any, Callable[..., Any]]:
    """Attention to a window and to retrieved keys, with its vector-Jacobian product.

    The window is causal by default: pass ``causal=False`` to let queries see later keys.

    Parameters
    ----------
    query, key, value, memory_key, memory_value, indices, gate, return_lse
        As for `retrieval_attention`. Do not change the arrays before you call `vjp`.
    **options
        As for `retrieval_attention`.

    Returns
    -------
    out : ndarray, or (out, lse) with `return_lse`
    vjp : callable
        ``vjp(grad_out, grad_lse=None)`` returns a named tuple with a field for each input that is an array:
        those of `Gradients`, `memory_key`, `memory_value` and `gate`. The gradients of `memory_key` and `memory_value`
        have all rows, with zeros for rows that no query sees.

    See Also
    --------
    retrieval_attention : The attention without the function for gradients.
    headspan.attention_vjp : The gradients of attention without a memory.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 10, 16))
    >>> memory, indices = np.ones((2, 2, 50, 16)), np.arange(60).reshape(2, 10, 3) % 50
    >>> out, vjp = hs.memory.retrieval_attention_vjp(q, k, v, *memory, indices, gate=[0.5, 1.5], span=4, ramp=2)
    >>> gradients = vjp(np.ones_like(out))
    >>> gradients.memory_key.shape, gradients.gate.shape
    ((2, 50, 16), (2,))
    """
    with_lse = _check.flag("return_lse", return_lse)
    memory = MemoryPart(query, key, value, memory_key, memory_value, indices, gate, options)
    local, local_vjp = attention_vjp(query, key, value, return_lse=True, **options)
    far, far_vjp = attention_vjp(*memory.arrays, return_lse=True, **memory.options)
    (out, lse), merge_vjp = merge_attention_vjp(*memory.gated(local, far))

    def vjp(grad_out: npt.ArrayLike, grad_lse: npt.ArrayLike | None = None) -> Any:
        """Return the gradients of ``sum(grad_out * out) + sum(grad_lse * lse)``."""
        grad_outs, grad_lses = merge_vjp(grad_out, grad_lse)
        near, beyond = (back(*grads) for back, *grads in zip((local_vjp, far_vjp), grad_outs, grad_lses, strict=True))
        shared = [name for name in _OF_BOTH if name in DIFFERENTIABLE and getattr(near, name) is not None]
        sums = {name: getattr(near, name) + getattr(beyond, name) for name in ("query", *shared)}
        return RetrievalGradients(
            **near._asdict() | sums,
            memory_key=beyond.key[..., : memory.rows, :],
            memory_value=beyond.value[..., : memory.rows, :],
            gate=memory.gate_gradient(grad_lses[1]),
        )

    return ((out, lse) if with_lse else out), vjp


class MemoryPart:
    """The memory part of a call of `retrieval_attention`, made from the checked arguments of the call.

    Attributes
    ----------
    arrays, options
        The arguments of `attention` for the memory part, in which each query sees its own list of keys.
    rows : int
        The number of rows of the memory. The arrays are padded to at least as many rows as there are queries, since a
        pattern of blocks has no row for a query before the first key.
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
        inputs = (query, key, value, memory_key, memory_value)
        arrays = {name: _check.float_array(name, array) for name, array in zip(names, inputs, strict=True)}
        _check.same_dtype(arrays)
        check_alike({name: arrays[name] for name in names[:3]})
        self.rows = _checked_rows(arrays)
        shape = arrays["query"].shape
        batch, heads, tokens = self._lead = (*(1,) * (4 - len(shape)), *shape[:-1])
        lists = _checked_indices(indices, shape[:-1], self.rows)
        lists = lists.reshape(*self._lead, lists.shape[-1])
        keys = max(self.rows, tokens)
        self.arrays = (arrays["query"], *(_with_rows(arrays[name], keys) for name in names[3:]))
        masks = [[_of_last_queries(head_lists, keys) for head_lists in item_lists] for item_lists in lists]
        pattern = Blocks(masks if len(shape) == 4 else masks[0], 1, per_head=True)
        shared = {name: options[name] for name in _OF_BOTH if name in options}
        self.options: dict[str, Any] = {"causal": False, "pattern": pattern, **shared}
        head_dim, value_dim = (array.shape[-1] for array in self.arrays[1:])
        dtype = arrays["query"].dtype
        sizes = Sizes(batch, heads, heads, tokens, keys, len(shape), dtype, head_dim, value_dim, np.inf)
        self._gate = None if gate is None else PerQuery("gate", gate, sizes, per_token=False, score=True)

    def gated(self, *parts: tuple[Array, Array]) -> tuple[tuple[Array, ...], tuple[Array, Array]]:
        """Return the results of the local part and the memory part, and their log-sum-exps with the gate added."""
        outs, (local, far) = zip(*parts, strict=True)
        if self._gate is not None:
            far = (far.reshape(self._lead) + self._gate.array[..., None]).reshape(far.shape)
        return outs, (local, far)

    def gate_gradient(self, grad_lse: Array) -> Array | None:
        """Return the gradient of the gate, given that of the log-sum-exp of the memory part."""
        if self._gate is None:
            return None
        return self._gate.gradient(grad_lse.reshape(self._lead).astype(np.float64))


def _checked_rows(arrays: Mapping[str, Array]) -> int:
    """Return the number of rows of the memory, or raise an error that states the expected shapes."""
    rows: int | None = None
    for name in ("key", "value"):
        shape, memory = arrays[name].shape, arrays[f"memory_{name}"].shape
        if rows is None:
            rows = memory[-2] if len(memory) > 1 else 0
        if memory != (*shape[:-2], rows, shape[-1]):
            expected = ", ".join(map(str, (*shape[:-2], "rows" if name == "key" else rows, shape[-1])))
            raise ValueError(f"memory_{name} must be of shape ({expected}), not {memory}")
    assert rows is not None
    return rows


def _checked_indices(indices: npt.ArrayLike, lead: tuple[int, ...], rows: int) -> npt.NDArray[np.int64]:
    """Return the sorted rows that each query sees. Entries of -1, for no row, come first."""
    array = _check.integers("indices", indices)
    if array.ndim != len(lead) + 1 or array.shape[:-1] != lead:
        raise ValueError(f"indices must be of shape ({', '.join(map(str, lead))}, k), not {array.shape}")
    low, high = _check.limits("indices", array)
    if array.size and (low < -1 or high >= rows):
        wrong = low if low < -1 else high
        raise ValueError(f"indices must be -1 for none, or between 0 and {rows - 1}, got {wrong:.0f}")
    return np.sort(array, axis=-1).astype(np.int64, copy=False)


def _with_rows(array: Array, count: int) -> Array:
    """Return the array, padded with zeros to `count` rows."""
    *lead, rows, dim = array.shape
    if rows == count:
        return array
    longer = np.zeros((*lead, count, dim), array.dtype)
    longer[..., :rows, :] = array
    return longer


def _of_last_queries(lists: npt.NDArray[np.int64], keys: int) -> Lists:
    """Return the lists of a head as rows of blocks. There are `keys` rows, and the last ones belong to the queries."""
    seen = lists >= 0
    return Lists(np.append(0, np.cumsum(seen.sum(axis=1))), lists[seen], keys)
