"""The report of a run: what is measured, drawn and written."""

import headspan.demo.extra  # noqa: F401
