"""What can be done with a model when its run is over: look into it, and let it write."""
