"""What is measured: the table of cases, and the arrays, the masks and the useful work of each."""

from benchmarks.cases.case import (
    BACKWARD,
    BOTH,
    CASES,
    FORWARD,
    GROUPS,
    Array,
    Case,
    Inputs,
    log_mask,
    log_mask_bytes,
    make_inputs,
    mask_rows,
    useful_work,
)

__all__ = [
    "BACKWARD",
    "BOTH",
    "CASES",
    "FORWARD",
    "GROUPS",
    "Array",
    "Case",
    "Inputs",
    "log_mask",
    "log_mask_bytes",
    "make_inputs",
    "mask_rows",
    "useful_work",
]
