"""The float32 numbers that rows of narrower types hold."""

import numpy as np


def rounded(array, dtype):
    """The float32 numbers after a cache has stored them, from the definition of the type."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return array.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":  # to the nearest float whose lower half is 0, and of two to the even one
        bits = array.view(np.uint32).astype(np.uint64)
        below = bits & 0xFFFF0000
        up = (bits - below > 0x8000) | ((bits - below == 0x8000) & (below >> 16 & 1 == 1))
        return (below + 0x10000 * up).astype(np.uint32).view(np.float32)
    scale = np.abs(array).max(axis=-1, keepdims=True) / np.float32(127)
    with np.errstate(invalid="ignore"):
        return np.where(scale > 0, np.rint(array / scale), 0).astype(np.float32) * scale
