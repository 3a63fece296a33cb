"""Shared parts of the adapters to frameworks: which options are tensors, their axes, and patterns as text."""
