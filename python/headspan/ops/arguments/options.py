"""The options of an attention, listed once: signatures, types, checks and adapters go by this list."""

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
    """The options of an attention as they are given; `headspan.attention` says what each of them is."""

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


# What an option is unless given; None for those that are not here.
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
# What other libraries call it.
_ELSEWHERE = {
    "attn_mask": _MASK,
    "mask": _MASK,
    "bias": "pair_bias=, or key_bias= for one number a key",
    "is_causal": "causal=, which is True unless given",
    "dropout_p": "dropout=, and seed= beside it",
    "enable_gqa": "nothing: heads share keys where key has fewer of them",
    "window": _WINDOW,
    "sliding_window": _WINDOW,
    "block_mask": "pattern=, one of headspan.patterns",
}

_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_options(function: _Function) -> _Function:
    """Let a function that takes ``**options`` name each of them, in its signature and where its docstring says so.

    Those are left out that it has as arguments of its own.
    """
    signature = inspect.signature(function)
    named = []
    for name, written in Options.__annotations__.items():  # kept as they are written, and not what they stand for
        if name in signature.parameters:
            continue
        its = getattr(written, "__forward_arg__", written)
        named.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS.get(name), annotation=its)
        )
    others = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    first = [p for p in others if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    last = [p for p in others if p.kind is inspect.Parameter.KEYWORD_ONLY]
    cast(Any, function).__signature__ = signature.replace(parameters=[*first, *named, *last])
    if function.__doc__:
        listed = ", ".join(its.name for its in named)
        function.__doc__ = re.sub(r"^ *.*\*\*options.*$", partial(_name_options, listed), function.__doc__, flags=re.M)
    return function


def _name_options(listed: str, line: re.Match[str]) -> str:
    text = line[0].replace("**options", listed)
    indent = " " * (len(text) - len(text.lstrip()))
    lines = textwrap.wrap(text.strip(), 120 - len(indent), break_on_hyphens=False)
    return "\n".join(indent + part.removesuffix(",") for part in lines)


def refuse_unknown(given: Iterable[str]) -> None:
    """Refuse what is no option, with the nearest that is."""
    for name in given:
        if name in _ELSEWHERE:
            raise TypeError(f"{name!r} is none of the options of an attention; write {_ELSEWHERE[name]}")
        if name not in NAMES:
            nearest = difflib.get_close_matches(name, sorted(NAMES), 1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ", which help(headspan.attention) lists"
            raise TypeError(f"{name!r} is none of the options of an attention{hint}")
