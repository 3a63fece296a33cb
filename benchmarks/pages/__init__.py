"""The figures on the pages and the files that they come from: ``python -m benchmarks.pages``."""
