"""Packed columns of numbers and byte strings, the format for batches between Python and Java."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


class Unpacker:
    """Reader of columns as packed by a Java helper, front to back; numbers are big-endian."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data).cast("B")
        self._at = 0

    @property
    def more(self) -> bool:
        """Whether unread bytes are left."""
        return self._at < len(self._data)

    def bytes_(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        taken = bytes(self._data[self._at : self._at + size])
        self._at += size
        return taken

    def number(self, size: int = 4) -> int:
        """Return the next number, of 4 or 8 bytes."""
        return int.from_bytes(self.bytes_(size), signed=True)

    def ints(self, count: int) -> Ints:
        """Return the next column of 4-byte numbers."""
        return np.frombuffer(self.bytes_(4 * count), dtype=">i4").astype(np.int32)

    def longs(self, count: int) -> Longs:
        """Return the next column of 8-byte numbers."""
        return np.frombuffer(self.bytes_(8 * count), dtype=">i8").astype(np.int64)

    def rest(self) -> str:
        """Return all remaining bytes as text."""
        return self.bytes_(len(self._data) - self._at).decode()

    def text(self) -> str:
        """Return the next text, which follows its length."""
        return self.bytes_(self.number()).decode()

    def strings(self, lengths: Ints) -> list[bytes | None]:
        """Return the next byte strings, one per length; a length of -1 stands for None."""
        sizes = np.maximum(lengths, 0)
        ends = np.cumsum(sizes, dtype=np.int64)
        blob = self.bytes_(int(ends[-1]) if len(ends) else 0)
        starts = (ends - sizes).tolist()
        return [
            blob[start:end] if length >= 0 else None
            for start, end, length in zip(starts, ends.tolist(), lengths.tolist(), strict=True)
        ]


def lengths_of(strings: Sequence[bytes | None]) -> Ints:
    """Return the length of each byte string; -1 stands for None."""
    return np.fromiter((-1 if string is None else len(string) for string in strings), np.int32, len(strings))


def joined(strings: Sequence[bytes | None]) -> bytes:
    """Concatenate all byte strings; None is skipped."""
    return b"".join(string for string in strings if string is not None)


def column(values: int | Sequence[int] | Ints | Longs, size: int, kind: str) -> bytes:
    """Pack a column of ``size`` numbers of kind ``>i4`` or ``>i8``; a single number is repeated.

    Raises:
        ValueError: the number of values is not ``size``.
    """
    made = np.full(size, values) if isinstance(values, int) else np.asarray(values)
    if made.shape != (size,):
        raise ValueError(f"{made.shape} numbers for {size} records")
    return made.astype(kind).tobytes()
