"""The report of a run, see `headspan.demo.report`."""

from headspan.demo.report.write import write_report

__all__ = ["write_report"]
