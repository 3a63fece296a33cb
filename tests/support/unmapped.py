"""Memory that cannot be read: reading it ends the process."""

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)
_kept = []  # until the process ends


def copy_without(array, closed, offset=0):
    """A copy that begins `offset` bytes into a page.

    The ranges `closed`, in bytes from that page on, cannot be read. They are full pages; None is the end.
    """
    size = (offset + array.nbytes) // PAGE * PAGE + 4 * PAGE
    memory = mmap.mmap(-1, size)
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for first, last in closed:
        length = (size if last is None else last) - first
        assert LIBC.mprotect(ctypes.c_void_p(base + first), ctypes.c_size_t(length), 0) == 0
    _kept.append(memory)
    return copy
