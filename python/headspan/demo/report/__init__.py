"""The report of a run: what is measured, drawn and written."""
