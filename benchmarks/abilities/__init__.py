"""What the attention of each library can do on a CPU, tried: ``python -m benchmarks.abilities``."""
