"""The options of an attention: one row per option, from which signatures, checks, adapters and features are derived."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Annotated, Any, TypedDict, TypeVar, cast, get_type_hints

import numpy.typing as npt

from headspan import _check
from headspan.ops.arguments import dropout
from headspan.ops.arguments.parameters import KeyBias, PerQuery, Persistent
from headspan.ops.arguments.rows import ArrayRow, Group, In, PatternRow, PlainRow, Row
from headspan.ops.arguments.terms import BlockGates, DistanceBias, PairBias
from headspan.patterns.base import Pattern

_SPANS, _CAUSALITY, _PACKING, _SCORES = Group.SPANS, Group.CAUSALITY, Group.PACKING, Group.SCORES
_OF_HEAD = partial(PerQuery, per_token=False)


# fmt: off
class Options(TypedDict, total=False):
    """The options of an attention as the caller passes them, documented in `headspan.attention`."""

    span: Annotated[npt.ArrayLike | None, ArrayRow(
        _SPANS, "bhq", parameter=partial(PerQuery, distance=True), by="distance",
        features=In.STORE | In.HALO | In.NESTED | In.VIEW | In.RECORD | In.CUDA)]
    ramp: Annotated[float, PlainRow(
        _SPANS, partial(_check.number, at_least=0), default=32,
        features=In.STORE | In.HALO | In.NESTED | In.VIEW | In.RECORD | In.CUDA)]
    causal: Annotated[bool | None, PlainRow(
        _CAUSALITY, _check.flag, features=In.HALO | In.NESTED | In.VIEW | In.RECORD | In.CUDA)]
    include_self: Annotated[bool, PlainRow(
        _CAUSALITY, _check.flag, default=True, features=In.CACHE | In.HALO | In.NESTED | In.CUDA)]
    query_positions: Annotated[npt.ArrayLike | None, ArrayRow(_CAUSALITY, "bq", features=In.STORE | In.CUDA)]
    key_positions: Annotated[npt.ArrayLike | None, ArrayRow(_CAUSALITY, "bk")]
    key_start: Annotated[npt.ArrayLike | None, ArrayRow(_PACKING, "b", features=In.CACHE | In.VIEW | In.CUDA)]
    key_stop: Annotated[npt.ArrayLike | None, ArrayRow(_PACKING, "b", features=In.CACHE | In.VIEW | In.CUDA)]
    key_ranges: Annotated[npt.ArrayLike | None, ArrayRow(_PACKING, "bq.", features=In.VIEW | In.RECORD | In.CUDA)]
    prefix_lengths: Annotated[npt.ArrayLike | None, ArrayRow(_PACKING, "b", features=In.VIEW | In.CUDA)]
    segment_ids: Annotated[npt.ArrayLike | None, ArrayRow(_PACKING, "bk", features=In.VIEW | In.CUDA)]
    query_segments: Annotated[npt.ArrayLike | None, ArrayRow(_PACKING, "bq")]
    key_segments: Annotated[npt.ArrayLike | None, ArrayRow(_PACKING, "bk")]
    pattern: Annotated[Pattern | Sequence[Pattern] | Sequence[Sequence[Pattern]] | None, PatternRow(
        Group.PATTERNS, by="index", features=In.HALO | In.VIEW | In.RECORD | In.CUDA)]
    scale: Annotated[float | None, PlainRow(
        _SCORES, _check.number, features=In.SCORES | In.RETRIEVAL | In.RECORD | In.CUDA)]
    temperature: Annotated[npt.ArrayLike | None, ArrayRow(
        _SCORES, "bhq", parameter=partial(PerQuery, positive=True), neutral=1.0,
        features=In.SCORES | In.RETRIEVAL | In.CUDA)]
    alibi_slopes: Annotated[npt.ArrayLike | None, ArrayRow(
        _SCORES, "bh", parameter=_OF_HEAD, by="distance", features=In.SCORES | In.VIEW | In.CUDA)]
    softcap: Annotated[float | None, PlainRow(
        _SCORES, partial(_check.within, low=1e-6, high=1e6),
        features=In.SCORES | In.RETRIEVAL | In.VIEW | In.RECORD | In.CUDA)]
    sinks: Annotated[npt.ArrayLike | None, ArrayRow(
        _SCORES, "bh", parameter=partial(_OF_HEAD, score=True),
        features=In.CACHE | In.STREAM | In.STORE_ONCE | In.HALO | In.NESTED | In.VIEW | In.RECORD | In.CUDA)]
    key_bias: Annotated[npt.ArrayLike | None, ArrayRow(
        _SCORES, "bhk", parameter=KeyBias, features=In.VIEW | In.RECORD)]
    distance_bias: Annotated[npt.ArrayLike | None, ArrayRow(
        _SCORES, "h.", term=DistanceBias, by="distance", features=In.CACHE | In.HALO)]
    distance_buckets: Annotated[npt.ArrayLike | None, ArrayRow(
        _SCORES, ".", modifies="distance_bias", features=In.CACHE | In.HALO)]
    pair_bias: Annotated[npt.ArrayLike | None, ArrayRow(_SCORES, "bhqk", term=PairBias, query_type=True)]
    block_gates: Annotated[npt.ArrayLike | None, ArrayRow(_SCORES, "h..", term=BlockGates, by="index")]
    gate_block_size: Annotated[npt.ArrayLike | None, ArrayRow(_SCORES, ".", modifies="block_gates", static=_check.pair)]
    persistent_key: Annotated[npt.ArrayLike | None, ArrayRow(
        Group.PERSISTENT, "h..", parameter=Persistent, query_type=True,
        features=In.CACHE | In.STORE_ONCE | In.HALO | In.NESTED)]
    persistent_value: Annotated[npt.ArrayLike | None, ArrayRow(
        Group.PERSISTENT, "h..", parameter=partial(Persistent, values=True), query_type=True,
        features=In.CACHE | In.STORE_ONCE | In.HALO | In.NESTED)]
    dropout: Annotated[float, PlainRow(
        Group.DROPOUT, dropout.rate, default=0, by="index", features=In.CACHE | In.NESTED | In.CUDA)]
    seed: Annotated[int | None, PlainRow(
        Group.DROPOUT, dropout.seed, each_call=True, features=In.CACHE | In.NESTED | In.CUDA)]
# fmt: on


# A key without a row, or a row without its axes or its check, is an error here.
ROWS: dict[str, Row] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Options, include_extras=True).items()
}
NAMES = frozenset(ROWS)
# Default values of options; the default of all others is None.
DEFAULTS = cast(Options, {name: row.default for name, row in ROWS.items() if row.default is not None})
PLAIN_OPTIONS = {name: row for name, row in ROWS.items() if isinstance(row, PlainRow)}
ARRAY_OPTIONS = {name: row for name, row in ROWS.items() if isinstance(row, ArrayRow)}
DIFFERENTIABLE = tuple(name for name, row in ARRAY_OPTIONS.items() if row.differentiable)
TERMS = {name: row.term for name, row in ARRAY_OPTIONS.items() if row.term is not None}
BY_DISTANCE = frozenset(name for name, row in ROWS.items() if row.by == "distance")


def options_in(feature: In) -> tuple[str, ...]:
    """Return the names of the options that a feature takes."""
    return tuple(name for name, row in ROWS.items() if feature in row.features)


def _written_type(annotation: Any) -> str:
    """Return the type of an option as written in `Options`, without its row."""
    return re.split(r"Annotated\[|, \w*Row\(", getattr(annotation, "__forward_arg__", annotation))[1]


TYPES = {name: _written_type(annotation) for name, annotation in Options.__annotations__.items()}

_MASK = "pair_bias=, which is added to scores: where(mask, 0, -inf) for a boolean mask that is True for pairs to keep"
_WINDOW = "pattern=Window(window), or span=window - 1 and ramp=0"
# Names in other libraries, and what to write instead.
ELSEWHERE = {
    "attn_mask": _MASK,
    "attention_mask": _MASK,
    "mask": _MASK,
    "key_padding_mask": "key_start= and key_stop=, the range of keys that are not padding",
    "bias": "pair_bias=, or key_bias= for one number per key",
    "is_causal": "causal=, which is True by default",
    "dropout_p": "dropout= together with seed=",
    "enable_gqa": "nothing: heads share keys if key has fewer heads",
    "window": _WINDOW,
    "sliding_window": _WINDOW,
    "window_size": _WINDOW,
    "softmax_scale": "scale=",
    "seq_len": "tokens= in headspan.cost; attention reads lengths from the shapes",
    "block_mask": "pattern=, one of headspan.patterns",
}

_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_options(function: _Function) -> _Function:
    """Replace ``**options`` by the names of the options, in the signature and the docstring of a function.

    Options that are explicit parameters of the function are omitted.
    """
    signature = inspect.signature(function)
    keywords = [p for p in signature.parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    if any(parameter.default is inspect.Parameter.empty for parameter in keywords):
        function = _refusing_first(function, {parameter.name for parameter in keywords})
    named = []
    for name, row in ROWS.items():
        if name not in signature.parameters:
            kind = inspect.Parameter.KEYWORD_ONLY
            named.append(inspect.Parameter(name, kind, default=row.default, annotation=TYPES[name]))
    others = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    first = [p for p in others if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    cast(Any, function).__signature__ = signature.replace(parameters=[*first, *named, *keywords])
    if function.__doc__:
        listed = ", ".join(parameter.name for parameter in named)
        function.__doc__ = re.sub(r"^ *.*\*\*options.*$", partial(_name_options, listed), function.__doc__, flags=re.M)
    return function


def _name_options(listed: str, line: re.Match[str]) -> str:
    text = line[0].replace("**options", listed)
    indent = " " * (len(text) - len(text.lstrip()))
    lines = textwrap.wrap(text.strip(), 120 - len(indent), break_on_hyphens=False)
    return "\n".join(indent + part.removesuffix(",") for part in lines)


def refuse_unknown(
    names: Iterable[str], taken: Collection[str] = NAMES, *, by: str | None = None, explicit: Iterable[str] = ()
) -> None:
    """Raise TypeError for an unknown option and suggest the most similar one.

    Parameters
    ----------
    names : iterable of str
        The options of a call.
    taken : collection of str
        The options that the function takes.
    by : str, optional
        What takes them, if these are not all options of attention.
    explicit : iterable of str
        The keywords in the signature of the function, which are suggested too.
    """
    for name in names:
        if name in taken:
            continue
        if by is None and name in ELSEWHERE:
            raise TypeError(f"unknown option {name!r}; write {ELSEWHERE[name]}")
        nearest = difflib.get_close_matches(name, sorted({*NAMES, *explicit}), 1)
        if nearest and nearest[0] in (*taken, *explicit):
            hint = f"did you mean {nearest[0]!r}?"
        else:
            hint = "help(headspan.attention) lists the options" if by is None else f"{by} accepts {', '.join(taken)}"
        raise TypeError(f"unknown option {name!r}; {hint}")


def _refusing_first(function: _Function, explicit: Collection[str]) -> _Function:
    """Make a function refuse unknown options before Python misses a required keyword, whose name may be misspelt."""

    @functools.wraps(function)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        refuse_unknown(keywords.keys() - explicit, explicit=explicit)
        return function(*arguments, **keywords)

    return cast(_Function, checked)
