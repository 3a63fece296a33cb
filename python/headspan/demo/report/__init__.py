"""The report of a run: what is measured, drawn and written."""

import headspan.demo.extra  # noqa: F401 - raises an error that names the extra, before a library is missed
