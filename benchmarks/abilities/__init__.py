"""Tests of what the attention of each library can compute on a CPU: ``python -m benchmarks.abilities``."""
