"""Run folders, and the training state that they store."""

import headspan.lab.extra  # noqa: F401 - checks first that the optional dependencies are installed
from headspan.lab.runs.folder import Row, Run, RunError, RunLockedError, State, next_folder, replace_file

__all__ = ["Row", "Run", "RunError", "RunLockedError", "State", "next_folder", "replace_file"]
