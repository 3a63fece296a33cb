"""What the handler runs when XLA comes to a call: the same functions as `headspan.attention`, on the memory of XLA.

Nothing here asks anything of JAX, whose threads wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan.jax.call import OPERANDS, Call, options, read
from headspan.ops.adapters.folding import Fold, foldable
from headspan.ops.arguments.narrow import is_narrow, widened
from headspan.ops.arguments.request import Request
from headspan.ops.functional import ARRAYS, Saved, backward, forward

_Arrays = dict[str, npt.NDArray[Any]]
# Results have the axes of these arguments.
_AS = {"lse": "grad_lse", "exact": "out"}
_IN_FULL = (*ARRAYS, "out", "lse", "exact", "statistics")


def run(text: str, operands: list[npt.NDArray[Any]], results: list[npt.NDArray[Any]]) -> None:
    """Compute a call, into the results."""
    call = read(text)
    given = dict(zip(call.operands, operands, strict=True))
    into = dict(zip(call.results, results, strict=True))
    maps = given["query"].ndim - call.axes
    if maps:
        _mapped(call, given, into, maps)
    else:
        _one(call, given, into)


def _one(call: Call, given: _Arrays, into: _Arrays) -> None:
    for name, x in _computed(call, given, into).items():
        into[name][...] = x


def _computed(call: Call, given: _Arrays, into: _Arrays) -> Mapping[str, npt.NDArray[Any]]:
    """Compute what has the shape of query, key, value or out in place, and return the other results."""
    request = _request(call, given)
    if "out" not in call.results:
        saved = Saved(request.to_4d(given["out"]), request.to_4d(given["statistics"]))
        arrays = {name: into[name] for name in ARRAYS if name in into}
        upstream = (given["grad_out"], given.get("grad_lse"))
        found = backward(request, saved, *upstream, needs=call.results, into=arrays)
        return {name: x for name, x in found.items() if name not in arrays}
    wanted = {"with_lse": "lse" in call.results, "with_saved": "statistics" in call.results}
    _, lse, kept = forward(request, out=into["out"], **wanted)
    found = {} if lse is None else {"lse": lse}
    if kept is not None:
        found["statistics"] = request.as_given(kept.statistics)
        if "exact" in call.results:
            found["exact"] = request.as_given(kept.out)
    return found


def _request(call: Call, given: _Arrays) -> Request:
    its = options(call.plain)
    for name in call.operands:
        if name == "seed":
            its[name] = given[name].item()
        elif name in OPERANDS and name not in ARRAYS:
            its[name] = widened(given[name]) if is_narrow(given[name]) else given[name]
    return Request(given["query"], given["key"], given["value"], its)


def _mapped(call: Call, given: _Arrays, into: _Arrays, maps: int) -> None:
    """Compute the calls of `vmap`: arguments have a leading axis for each, of length 1 where they are shared."""
    lengths = next(iter(into.values())).shape[:maps]
    size = math.prod(lengths)
    mapped = {name: x.shape[:maps] != (1,) * maps for name, x in given.items()}
    of_all = {}
    for name, x in given.items():
        inner = x.shape[maps:]
        of_all[name] = (
            np.broadcast_to(x, (*lengths, *inner)).reshape(size, *inner) if mapped[name] else x.reshape(inner)
        )
    into = {name: x.reshape(size, *x.shape[maps:]) for name, x in into.items()}
    concerned = [mapped[name] or name in into for name in given]
    if foldable(tuple(given), concerned, options(call.plain).get("dropout")):
        _folded(call, size, of_all, mapped, into)
        return
    for i in range(size):
        one = {name: x[i] if mapped[name] else x for name, x in of_all.items()}
        _one(call, one, {name: x[i] for name, x in into.items()})


def _folded(call: Call, size: int, given: _Arrays, mapped: Mapping[str, bool], into: _Arrays) -> None:
    """Compute mapped calls as one of a larger batch."""
    query = given["query"]
    fold = Fold(size, query.shape[-4] if call.axes == 4 else 1, call.axes, np.broadcast_to)
    folded = {name: fold.fold(name, x, mapped[name], name in into) for name, x in given.items()}
    places = {}
    for name in _IN_FULL:
        if name in into:
            form = fold.full(_AS.get(name, name), into[name].shape[1:])
            places[name] = into[name].reshape(size * fold.batch, *form[1:])
    for name, x in _computed(call._replace(axes=4), folded, places).items():
        if name in places:
            places[name][...] = x
        else:
            into[name][...] = fold.unfold_gradient(name, x, into[name].shape[1:])
