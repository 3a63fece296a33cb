"""The HTML report of a run: its measurements, pictures and page."""

import headspan.lab.extra  # noqa: F401 - checks first that the optional dependencies are installed
