"""Who takes part: headspan, and peers that are used when they are installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import headspan as hs
from headspan import _core

from benchmarks.cases import BACKWARD, FORWARD, Case, Inputs
from benchmarks.contenders import jax_peers, layers, torch_peers
from benchmarks.contenders.prepared import Prepared

# A peer that would need more bytes than this beyond its inputs is not started.
MEMORY_LIMIT = 4e9


@dataclass(frozen=True)
class Contender:
    """Someone who can compute a case.

    Attributes
    ----------
    name : str
    prepare : callable
        ``prepare(case, passes, inputs)``: everything that is done once, outside of the timing.
    applies : callable
        ``applies(case, passes)``: whether it computes such a case of its kinds at all.
    needs : callable
        ``needs(case, passes)``: about how many bytes beyond the inputs.
    package : str, optional
        The package that has to be installed.
    kinds : tuple of str
        Of cases.
    compiled : bool
        Whether the first call of a shape compiles.
    note : str
        What to know about its numbers.
    """

    name: str
    prepare: Callable[[Case, str, Inputs], Prepared]
    applies: Callable[[Case, str], bool] = lambda case, passes: True
    needs: Callable[[Case, str], float] = lambda case, passes: 0.0
    package: str | None = None
    kinds: tuple[str, ...] = ("attention",)
    compiled: bool = False
    note: str = ""

    @property
    def installed(self) -> bool:
        """Whether its package can be imported."""
        return self.package is None or importlib.util.find_spec(self.package) is not None

    def takes(self, case: Case, passes: str) -> bool:
        """Whether it computes such a case at all."""
        return case.kind in self.kinds and self.applies(case, passes)

    def obstacle(self, case: Case, passes: str) -> str:
        """Why it should not be started on a case; empty if nothing speaks against it."""
        if not self.installed:
            return "not installed"
        needed = self.needs(case, passes)
        if needed > MEMORY_LIMIT:
            return f"skipped: would need about {needed / 1e9:.1f} GB beyond the inputs"
        return ""


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
        made, gradient = hs.attention_vjp(*arrays, **options)
        return Prepared(lambda: (made, gradient(grad_out)), lambda value: (value[0], *value[1][:4]))
    return Prepared(both, lambda value: (value[0], *value[1][:4]))


def _prepare_full(case: Case, passes: str, inputs: Inputs) -> Prepared:
    return replace(_prepare_headspan(replace(case, pattern=None), passes, inputs), result=None)


def _prepare_empty(case: Case, passes: str, inputs: Inputs) -> Prepared:
    return Prepared(_core.get_num_threads, None)


HEADSPAN = Contender("headspan", _prepare_headspan, kinds=("attention", "pattern", "layer"))
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
    note="a function of the core that takes and does nothing: what any call costs",
)
OWN = (
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
        note="what the hybrid layer has beyond that: a second branch in the predicted span, and its projection",
    ),
    EMPTY,
)

PEERS = (
    Contender(
        "torch-sdpa",
        torch_peers.prepare_sdpa,
        lambda case, passes: case.span is None,
        torch_peers.sdpa_needs,
        package="torch",
        note="scaled_dot_product_attention, is_causal (a mask for 16 queries, whose causal corner is another)",
    ),
    Contender(
        "torch-sdpa-mask",
        torch_peers.prepare_sdpa_mask,
        lambda case, passes: case.span is not None or case.pattern is not None,
        torch_peers.sdpa_mask_needs,
        package="torch",
        kinds=("attention", "pattern"),
        note=(
            "scaled_dot_product_attention with the logarithm of the soft mask, or of the pattern's, added; no gradient "
            "of the span"
        ),
    ),
    Contender(
        "torch-window",
        torch_peers.prepare_window,
        lambda case, passes: case.span is not None and case.causal and case.queries == case.keys,
        torch_peers.window_needs,
        package="torch",
        note="blocks of the widest span and ramp, each against itself and the one before; no gradient of the span",
    ),
    Contender(
        "torch-flex",
        torch_peers.prepare_flex,
        lambda case, passes: passes == FORWARD,
        package="torch",
        kinds=("attention", "pattern"),
        compiled=True,
        note="flex_attention, compiled before the timing, with a block mask; has no gradient on a CPU",
    ),
    Contender(
        "torch-eager",
        torch_peers.prepare_eager,
        lambda case, passes: case.span is not None,
        torch_peers.eager_needs,
        package="torch",
        note="the definition in dense operations; with the gradient of the span",
    ),
    Contender(
        "jax",
        jax_peers.prepare,
        needs=jax_peers.needs,
        package="jax",
        compiled=True,
        note=(
            "jax.nn.dot_product_attention under jit, spans as a bias without gradient; its softmax is always in "
            "float32; its number of threads is its own affair, --threads does not reach it"
        ),
    ),
)


def choose(names: list[str] | None) -> list[Contender]:
    """Our own and the peers of these names; all of them for None.

    Raises
    ------
    ValueError
        For a name that nobody has.
    """
    known = {peer.name: peer for peer in PEERS}
    for name in names or []:
        if name not in known:
            raise ValueError(f"there is no peer {name!r}; there are {', '.join(known)}")
    return [*OWN, *(known[name] for name in (known if names is None else dict.fromkeys(names)))]


def use_threads(n: int) -> None:
    """Give n threads to headspan and to those loaded peers whose threads can be set."""
    hs.set_num_threads(n)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(n)
