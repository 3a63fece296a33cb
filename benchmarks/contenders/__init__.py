"""The contenders, and how each prepares a case before it is timed."""

from benchmarks.contenders.contender import Contender
from benchmarks.contenders.headspan_contenders import EMPTY, FULL, HEADSPAN, HEADSPAN_CONTENDERS
from benchmarks.contenders.lineup import choose, use_threads
from benchmarks.contenders.peers import PEERS

__all__ = ["EMPTY", "FULL", "HEADSPAN", "HEADSPAN_CONTENDERS", "PEERS", "Contender", "choose", "use_threads"]
