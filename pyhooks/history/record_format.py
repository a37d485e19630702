"""The records that workloads write: keys that are unique over all runs, and values that their keys give away."""

from __future__ import annotations

import re
from zlib import crc32

# run, topic, partition, number within the partition
_KEY = re.compile(r"([^/]+)/([^/]+)/(\d+)/(\d+)")


def key_of(run: str, topic: str, partition: int, seq: int) -> str:
    """The key of record ``seq`` that run ``run`` writes to a partition."""
    return f"{run}/{topic}/{partition}/{seq}"


def parts_of(key: str) -> tuple[str, str, int, int] | None:
    """Run, topic, partition and number of a key of ours; None for any other key."""
    found = _KEY.fullmatch(key)
    return (found[1], found[2], int(found[3]), int(found[4])) if found else None


def value_of(key: str, size: int) -> bytes:
    """The value of the record with this key: the key and a filling that depends on it.

    Args:
        key: of the record.
        size: bytes; a size below the key's own gives the key alone.
    """
    text = key.encode()
    missing = size - len(text)
    if missing <= 0:
        return text
    filling = b"|%08x" % crc32(text)
    return text + (filling * (missing // len(filling) + 1))[:missing]


def text_of(raw: bytes | None) -> str | None:
    """A key as histories hold it: its text, or ``0x…`` in hexadecimal digits if it is not UTF-8, or None."""
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"0x{raw.hex()}"


def damaged(key: str | None, value: bytes | None) -> bool:
    """Whether a record with a key of ours has another value than it was written with."""
    return key is not None and parts_of(key) is not None and value_of(key, len(value or b"")) != value
