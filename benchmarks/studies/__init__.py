"""Studies of one thing each, with a command each: ``python -m benchmarks.studies.NAME``."""
