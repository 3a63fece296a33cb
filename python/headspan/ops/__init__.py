"""Functions of arrays: attention, its gradient, weights and cost, spans, and the reference implementation."""
