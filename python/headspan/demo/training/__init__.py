"""How a model is trained: step by step, by an engine, and beside what it is compared with."""

import headspan.demo.extra  # noqa: F401
