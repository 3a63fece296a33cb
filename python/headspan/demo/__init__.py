"""The small character model: its training, its run folders, its command line and its report."""
