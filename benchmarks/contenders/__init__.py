"""Who takes part, and what each makes of a case before the clock starts."""

from benchmarks.contenders.contender import Contender
from benchmarks.contenders.lineup import choose, use_threads
from benchmarks.contenders.own import EMPTY, FULL, HEADSPAN, OWN
from benchmarks.contenders.peers import PEERS

__all__ = ["EMPTY", "FULL", "HEADSPAN", "OWN", "PEERS", "Contender", "choose", "use_threads"]
