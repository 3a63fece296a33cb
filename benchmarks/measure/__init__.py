"""Measurements: time in alternating calls, memory in a separate process, and the error against float64."""
