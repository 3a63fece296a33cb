"""Parameter sweeps: the plan, its training runs, and the table and pictures of the results."""

import headspan.lab.extra  # noqa: F401 - checks first that the optional dependencies are installed
