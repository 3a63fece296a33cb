"""The list of the options of an attention, from which signatures, types, checks and adapters are derived."""

from __future__ import annotations

import difflib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypedDict, TypeVar, cast

import numpy.typing as npt

from headspan.patterns.base import Pattern


class Options(TypedDict, total=False):
    """The options of an attention as the caller passes them, documented in `headspan.attention`."""

    span: npt.ArrayLike | None
    ramp: float
    causal: bool | None
    include_self: bool
    scale: float | None
    temperature: npt.ArrayLike | None
    alibi_slopes: npt.ArrayLike | None
    softcap: float | None
    sinks: npt.ArrayLike | None
    memory_key: npt.ArrayLike | None
    memory_value: npt.ArrayLike | None
    pattern: Pattern | Sequence[Pattern] | Sequence[Sequence[Pattern]] | None
    query_positions: npt.ArrayLike | None
    key_positions: npt.ArrayLike | None
    key_begin: npt.ArrayLike | None
    key_lengths: npt.ArrayLike | None
    key_ranges: npt.ArrayLike | None
    prefix_lengths: npt.ArrayLike | None
    segment_ids: npt.ArrayLike | None
    query_segments: npt.ArrayLike | None
    key_segments: npt.ArrayLike | None
    key_bias: npt.ArrayLike | None
    distance_bias: npt.ArrayLike | None
    distance_buckets: npt.ArrayLike | None
    pair_bias: npt.ArrayLike | None
    block_gates: npt.ArrayLike | None
    gate_block: npt.ArrayLike | None
    dropout: float
    seed: int | None


# Default values of options; the default of all others is None.
DEFAULTS: Options = {"ramp": 32, "include_self": True, "dropout": 0}
NAMES = frozenset(Options.__annotations__)
# The options that have a gradient.
DIFFERENTIABLE = (
    "span",
    "temperature",
    "alibi_slopes",
    "sinks",
    "memory_key",
    "memory_value",
    "key_bias",
    "distance_bias",
    "pair_bias",
    "block_gates",
)

_MASK = (
    "pair_bias=, which is added to scores: where(mask, 0, -inf) for a mask of bool that is True where a pair is kept"
)
_WINDOW = "pattern=Local(window - 1), or span=window - 1 and ramp=0"
# Names in other libraries, and what to write instead.
_ELSEWHERE = {
    "attn_mask": _MASK,
    "mask": _MASK,
    "bias": "pair_bias=, or key_bias= for one number a key",
    "is_causal": "causal=, which is True unless given",
    "dropout_p": "dropout= together with seed=",
    "enable_gqa": "nothing: heads share keys where key has fewer of them",
    "window": _WINDOW,
    "sliding_window": _WINDOW,
    "block_mask": "pattern=, one of headspan.patterns",
}

_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_options(function: _Function) -> _Function:
    """Replace ``**options`` by the names of the options, in the signature and the docstring of a function.

    Options that are explicit parameters of the function are omitted.
    """
    signature = inspect.signature(function)
    named = []
    for name, reference in Options.__annotations__.items():
        if name in signature.parameters:
            continue
        text = getattr(reference, "__forward_arg__", reference)  # the annotation as written in the source
        named.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS.get(name), annotation=text)
        )
    others = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    first = [p for p in others if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    last = [p for p in others if p.kind is inspect.Parameter.KEYWORD_ONLY]
    cast(Any, function).__signature__ = signature.replace(parameters=[*first, *named, *last])
    if function.__doc__:
        listed = ", ".join(parameter.name for parameter in named)
        function.__doc__ = re.sub(r"^ *.*\*\*options.*$", partial(_name_options, listed), function.__doc__, flags=re.M)
    return function


def _name_options(listed: str, line: re.Match[str]) -> str:
    text = line[0].replace("**options", listed)
    indent = " " * (len(text) - len(text.lstrip()))
    lines = textwrap.wrap(text.strip(), 120 - len(indent), break_on_hyphens=False)
    return "\n".join(indent + part.removesuffix(",") for part in lines)


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise TypeError for an unknown option and suggest the most similar one."""
    for name in names:
        if name in _ELSEWHERE:
            raise TypeError(f"{name!r} is none of the options of an attention; write {_ELSEWHERE[name]}")
        if name not in NAMES:
            nearest = difflib.get_close_matches(name, sorted(NAMES), 1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ", which help(headspan.attention) lists"
            raise TypeError(f"{name!r} is none of the options of an attention{hint}")
