"""The contenders from headspan: the measured functions, and references to compare them with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import headspan as hs
from headspan import _core

from benchmarks.cases import BACKWARD, FORWARD, Case, Inputs
from benchmarks.contenders import layers
from benchmarks.contenders.contender import Contender
from benchmarks.contenders.prepared import Prepared


def _prepare_headspan(case: Case, passes: str, inputs: Inputs) -> Prepared:
    if case.kind == "layer":
        return layers.prepare_hybrid(case, passes, inputs)
    arrays = inputs.query, inputs.key, inputs.value
    options: dict[str, Any] = {"span": inputs.span, "ramp": case.ramp, "causal": case.causal, "pattern": case.allowed}
    grad_out = inputs.grad_out

    def forward() -> Any:
        return hs.attention(*arrays, **options)

    def both() -> Any:
        out, vjp = hs.attention_vjp(*arrays, **options)
        return out, vjp(grad_out)

    if passes == FORWARD:
        return Prepared(forward, lambda out: (out,))
    if passes == BACKWARD:
        output, gradient = hs.attention_vjp(*arrays, **options)
        return Prepared(lambda: (output, gradient(grad_out)), lambda value: (value[0], *value[1][:4]))
    return Prepared(both, lambda value: (value[0], *value[1][:4]))


def _prepare_full(case: Case, passes: str, inputs: Inputs) -> Prepared:
    return replace(_prepare_headspan(replace(case, pattern=None), passes, inputs), result=None)


def _prepare_empty(case: Case, passes: str, inputs: Inputs) -> Prepared:
    return Prepared(_core.default_threads, None)


HEADSPAN = Contender("headspan", _prepare_headspan, kinds=("attention", "pattern", "layer"), has_span_gradient=True)
FULL = Contender(
    "headspan-full",
    _prepare_full,
    kinds=("pattern",),
    note="full attention at the same sizes, which a pattern's time per allowed pair is compared with",
)
EMPTY = Contender(
    "empty-call",
    _prepare_empty,
    lambda case, passes: case.group == "call" and passes == FORWARD,
    note="a function of the core that does nothing, which shows what any call costs",
)
HEADSPAN_CONTENDERS = (
    HEADSPAN,
    FULL,
    Contender(
        "full-layer",
        layers.prepare_full,
        kinds=("layer",),
        note=(
            "a layer with one branch, which sees all tokens; headspan is the hybrid layer there, and NumPy multiplies "
            "all matrices, on one thread unless OPENBLAS_NUM_THREADS says otherwise"
        ),
    ),
    Contender(
        "local-branch",
        layers.prepare_local,
        kinds=("layer",),
        note="the other part of the hybrid layer: a second branch in the predicted span, and its projection",
    ),
    EMPTY,
)
