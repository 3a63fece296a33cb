"""What can be done with a model when its run is over: look into it, and let it write."""

import headspan.demo.extra  # noqa: F401 - raises an error that names the extra, before a library is missed
