"""Hybrid attention: a global branch predicts how far a local one looks."""
