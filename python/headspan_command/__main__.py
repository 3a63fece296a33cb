"""``python -m headspan_command``, the same as ``headspan``."""

import sys

from headspan_command import main

sys.exit(main())
