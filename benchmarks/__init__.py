"""Time, memory and error of headspan beside its peers and beside what the machine can do.

Run as ``python -m benchmarks`` from the root of the repository.
"""
