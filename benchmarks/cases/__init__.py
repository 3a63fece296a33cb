"""The measured cases, with the arrays, the masks and the useful work of each."""

from benchmarks.cases.case import BACKWARD, BOTH, FORWARD, Array, Case
from benchmarks.cases.inputs import Inputs, make_inputs, useful_work
from benchmarks.cases.masks import log_mask, log_mask_bytes, mask_rows
from benchmarks.cases.table import CASES, GROUPS

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
