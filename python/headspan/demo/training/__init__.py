"""How a model is trained: step by step, by an engine, and beside what it is compared with."""

import headspan.demo.extra  # noqa: F401 - raises an error that names the extra, before a library is missed
