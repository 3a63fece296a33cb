"""How it is measured: time in turns, memory in a process of its own, the error against float64."""
