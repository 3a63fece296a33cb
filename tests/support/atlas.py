"""The modules of the atlas of reach, which are scripts: their folder is on the path after this import."""

import sys

from helpers import ROOT

sys.path.insert(0, str(ROOT / "experiments" / "atlas"))
