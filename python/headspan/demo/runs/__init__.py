"""What a run keeps: its folder, and the state from which it goes on."""

from headspan.demo.runs.folder import Row, Run, RunError, State, next_folder, replace_file

__all__ = ["Row", "Run", "RunError", "State", "next_folder", "replace_file"]
