"""Hybrid attention, in which a global branch predicts the span of a local branch."""
