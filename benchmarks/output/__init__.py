"""Output of the results: tables as text, the figures of the README, and JSON."""
