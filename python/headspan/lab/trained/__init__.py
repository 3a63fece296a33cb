"""Uses of a trained model: loading it for inspection, and sampling text from it."""

import headspan.lab.extra  # noqa: F401 - checks first that the optional dependencies are installed
