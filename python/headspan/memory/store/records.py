"""The file format: the sizes of a store, and records of consecutive rows with a checksum.

A record begins with a header of 16 bytes: the checksum of the rest of the record, the number of rows, and the number of
the first row. The length of the header keeps the data aligned where LMDB aligns the record. Then follow the keys, (key
heads, rows, head_dim), and the values, (key heads, rows, value_dim). All numbers are little-endian.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

PIECE = 4096  # rows of a full record; the tail has shorter records
DTYPES = {"float16": "<f2", "float32": "<f4", "float64": "<f8"}
_HEAD = struct.Struct("<IIQ")
_CHECKSUM = 4  # bytes; the checksum does not cover itself
Rows = tuple[npt.NDArray[Any], npt.NDArray[Any]]


class Sizes(NamedTuple):
    """The sizes and the type of all rows of a store, saved in the store."""

    num_key_heads: int
    head_dim: int
    value_dim: int
    dtype: str

    @property
    def element(self) -> np.dtype[Any]:
        """The type of the elements in the file."""
        return np.dtype(DTYPES[self.dtype])

    @property
    def arithmetic(self) -> np.dtype[Any]:
        """The type of queries and results. A float16 store computes in float32."""
        return np.dtype(np.float64 if self.dtype == "float64" else np.float32)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, with the keys and values of all key heads."""
        return self.num_key_heads * (self.head_dim + self.value_dim) * self.element.itemsize

    def to_bytes(self) -> bytes:
        """Return the sizes as bytes with a checksum."""
        text = json.dumps({"format": 1, **self._asdict()}).encode()
        return b"%08x %s" % (zlib.crc32(text), text)

    @classmethod
    def from_bytes(cls, data: bytes, path: Path) -> Sizes:
        """Return the sizes from bytes that `to_bytes` returned."""
        checksum, _, text = data.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(text):
            raise OSError(f"the sizes of the store at {path} are damaged: their checksum is wrong")
        written = json.loads(text)
        if written.pop("format") != 1:
            raise OSError(f"the store at {path} was written by a later version of headspan")
        return cls(**written)


def encode(sizes: Sizes, first: int, parts: Sequence[Rows]) -> npt.NDArray[np.uint8]:
    """Return a record of the concatenated rows of `parts`. `first` is the number of the first row."""
    count = sum(key.shape[1] for key, _ in parts)
    record = np.empty(_HEAD.size + count * sizes.row_bytes, np.uint8)
    begin = 0
    for key, value in parts:
        for target, part in zip(_views(sizes, record, count), (key, value), strict=True):
            target[:, begin : begin + part.shape[1]] = part
        begin += key.shape[1]
    data = record.data
    _HEAD.pack_into(data, 0, 0, count, first)
    _HEAD.pack_into(data, 0, zlib.crc32(data[_CHECKSUM:]), count, first)
    return record


def rows_of(sizes: Sizes, record: memoryview) -> int:
    """Return the number of rows of a record by its length, since its header may be damaged."""
    return max(len(record) - _HEAD.size, 0) // sizes.row_bytes


def decode(sizes: Sizes, first: int, record: memoryview, *, verify: bool = True) -> Rows | None:
    """Return keys and values as views of a record, or None if the record is damaged."""
    count = rows_of(sizes, record)
    if len(record) != _HEAD.size + count * sizes.row_bytes or not count:
        return None
    checksum, stored_count, stored_first = _HEAD.unpack_from(record)
    if (stored_count, stored_first) != (count, first) or (verify and zlib.crc32(record[_CHECKSUM:]) != checksum):
        return None
    return _views(sizes, np.frombuffer(record, np.uint8), count)


def _views(sizes: Sizes, record: npt.NDArray[np.uint8], count: int) -> Rows:
    heads, key_dim, value_dim = sizes.num_key_heads, sizes.head_dim, sizes.value_dim
    numbers = record[_HEAD.size :].view(sizes.element)
    keys = heads * count * key_dim
    return numbers[:keys].reshape(heads, count, key_dim), numbers[keys:].reshape(heads, count, value_dim)
