"""Time, memory and error of headspan compared with its peers and with the peak of the machine.

Run as ``python -m benchmarks`` from the root of the repository.
"""
