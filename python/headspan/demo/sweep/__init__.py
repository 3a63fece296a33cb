"""Grids of training runs: what is to be run, the runs, and the table and pictures of them."""

import headspan.demo.extra  # noqa: F401 - raises an error that names the extra, before a library is missed
