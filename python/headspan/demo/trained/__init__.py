"""What can be done with a model when its run is over: look into it, and let it write."""

import headspan.demo.extra  # noqa: F401
