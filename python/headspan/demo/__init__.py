"""The demo: a small character model with its training, run folders, command line and report."""
