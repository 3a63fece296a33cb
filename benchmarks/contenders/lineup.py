"""Selection of the contenders for a run, and their number of threads."""

from __future__ import annotations

import sys

import headspan as hs

from benchmarks.contenders.contender import Contender
from benchmarks.contenders.headspan_contenders import HEADSPAN_CONTENDERS
from benchmarks.contenders.peers import PEERS


def choose(names: list[str] | None) -> list[Contender]:
    """Return headspan's contenders and the named peers, or all peers if `names` is None.

    Raises
    ------
    ValueError
        If a name is not that of a peer.
    """
    known = {peer.name: peer for peer in PEERS}
    for name in names or []:
        if name not in known:
            raise ValueError(f"there is no peer {name!r}; there are {', '.join(known)}")
    return [*HEADSPAN_CONTENDERS, *(known[name] for name in (known if names is None else dict.fromkeys(names)))]


def use_threads(n: int) -> None:
    """Set the number of threads of headspan and of PyTorch, if it is loaded."""
    hs.set_num_threads(n)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(n)
