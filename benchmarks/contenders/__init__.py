"""Who takes part, and what each makes of a case before the clock starts."""

from benchmarks.contenders.lineup import EMPTY, FULL, HEADSPAN, OWN, PEERS, Contender, choose, use_threads

__all__ = ["EMPTY", "FULL", "HEADSPAN", "OWN", "PEERS", "Contender", "choose", "use_threads"]
