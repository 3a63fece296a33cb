"""Who of them takes part in a run, and on how many threads."""

from __future__ import annotations

import sys

import headspan as hs

from benchmarks.contenders.contender import Contender
from benchmarks.contenders.own import OWN
from benchmarks.contenders.peers import PEERS


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
