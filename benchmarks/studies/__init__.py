"""Separate studies, each with its own command: ``python -m benchmarks.studies.NAME``."""
