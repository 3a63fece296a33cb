"""The function that the handler runs for a call from XLA: the code of `headspan.attention` on the memory of XLA.

This module must not call JAX, because the threads of JAX wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan.jax.call import OPERANDS, Call, options, read
from headspan.ops.adapters.folding import Fold, foldable
from headspan.ops.execution.functional import ARRAYS, Saved, backward, forward
from headspan.ops.execution.narrow import is_narrow, widened
from headspan.ops.execution.request import Request

_Arrays = dict[str, npt.NDArray[Any]]
# Results that have the axes of another argument.
_AS = {"lse": "grad_lse", "exact": "out"}
_IN_FULL = (*ARRAYS, "out", "lse", "exact", "statistics")


def run(text: str, operands: list[npt.NDArray[Any]], results: list[npt.NDArray[Any]]) -> None:
    """Compute a call and write its results."""
    call = read(text)
    arguments = dict(zip(call.operands, operands, strict=True))
    outputs = dict(zip(call.results, results, strict=True))
    maps = arguments["query"].ndim - call.axes
    if maps:
        _mapped(call, arguments, outputs, maps)
    else:
        _one(call, arguments, outputs)


def _one(call: Call, arguments: _Arrays, outputs: _Arrays) -> None:
    for name, x in _computed(call, arguments, outputs).items():
        outputs[name][...] = x


def _computed(call: Call, arguments: _Arrays, outputs: _Arrays) -> Mapping[str, npt.NDArray[Any]]:
    """Write results with the shape of query, key, value or out in place, and return the other results."""
    request = _request(call, arguments)
    if "out" not in call.results:
        saved = Saved(request.to_4d(arguments["out"]), request.to_4d(arguments["statistics"]))
        arrays = {name: outputs[name] for name in ARRAYS if name in outputs}
        upstream = (arguments["grad_out"], arguments.get("grad_lse"))
        results = backward(request, saved, *upstream, needs=call.results, into=arrays)
        return {name: x for name, x in results.items() if name not in arrays}
    requested = {"with_lse": "lse" in call.results, "with_saved": "statistics" in call.results}
    _, lse, kept = forward(request, out=outputs["out"], **requested)
    results = {} if lse is None else {"lse": lse}
    if kept is not None:
        results["statistics"] = request.from_4d(kept.statistics)
        if "exact" in call.results:
            results["exact"] = request.from_4d(kept.out)
    return results


def _request(call: Call, arguments: _Arrays) -> Request:
    keywords = options(call.plain)
    for name in call.operands:
        if name == "seed":
            keywords[name] = arguments[name].item()
        elif name in OPERANDS and name not in ARRAYS:
            keywords[name] = widened(arguments[name]) if is_narrow(arguments[name]) else arguments[name]
    return Request(arguments["query"], arguments["key"], arguments["value"], keywords)


def _mapped(call: Call, arguments: _Arrays, outputs: _Arrays, maps: int) -> None:
    """Compute the calls of `vmap`: arguments have a leading axis per map, of length 1 if they are shared."""
    lengths = next(iter(outputs.values())).shape[:maps]
    size = math.prod(lengths)
    mapped = {name: x.shape[:maps] != (1,) * maps for name, x in arguments.items()}
    flat = {}
    for name, x in arguments.items():
        inner = x.shape[maps:]
        flat[name] = np.broadcast_to(x, (*lengths, *inner)).reshape(size, *inner) if mapped[name] else x.reshape(inner)
    outputs = {name: x.reshape(size, *x.shape[maps:]) for name, x in outputs.items()}
    is_mapped = [mapped[name] or name in outputs for name in arguments]
    if foldable(tuple(arguments), is_mapped, options(call.plain).get("dropout")):
        _folded(call, size, flat, mapped, outputs)
        return
    for i in range(size):
        one = {name: x[i] if mapped[name] else x for name, x in flat.items()}
        _one(call, one, {name: x[i] for name, x in outputs.items()})


def _folded(call: Call, size: int, arguments: _Arrays, mapped: Mapping[str, bool], outputs: _Arrays) -> None:
    """Compute mapped calls as one call with a larger batch."""
    query = arguments["query"]
    fold = Fold(size, query.shape[-4] if call.axes == 4 else 1, call.axes, np.broadcast_to)
    folded = {name: fold.fold(name, x, mapped[name], name in outputs) for name, x in arguments.items()}
    places = {}
    for name in _IN_FULL:
        if name in outputs:
            form = fold.full(_AS.get(name, name), outputs[name].shape[1:])
            places[name] = outputs[name].reshape(size * fold.batch, *form[1:])
    for name, x in _computed(call._replace(axes=4), folded, places).items():
        if name in places:
            places[name][...] = x
        else:
            outputs[name][...] = fold.unfold_gradient(name, x, outputs[name].shape[1:])
