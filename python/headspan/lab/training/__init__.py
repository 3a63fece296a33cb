"""Training: the training loop, the engines that compute gradients, and the baselines for comparison."""

import headspan.lab.extra  # noqa: F401 - checks first that the optional dependencies are installed
