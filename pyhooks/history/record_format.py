"""Format of workload records: keys unique across all runs, and values derived from their keys."""

from __future__ import annotations

import re
from zlib import crc32

# run, topic, partition, sequence number within the partition
_KEY = re.compile(r"([^/]+)/([^/]+)/(\d+)/(\d+)")


def key_of(run: str, topic: str, partition: int, seq: int) -> str:
    """Return the key of record ``seq`` that run ``run`` writes to a partition."""
    return f"{run}/{topic}/{partition}/{seq}"


def parts_of(key: str) -> tuple[str, str, int, int] | None:
    """Return run, topic, partition and sequence number of a workload key; None for any other key."""
    match = _KEY.fullmatch(key)
    return (match[1], match[2], int(match[3]), int(match[4])) if match else None


def value_of(key: str, size: int) -> bytes:
    """Return the value of the record with this key: the key, padded with a filling that depends on it.

    Args:
        key: key of the record.
        size: size of the value in bytes; if it is smaller than the key, the value is the key alone.
    """
    text = key.encode()
    missing = size - len(text)
    if missing <= 0:
        return text
    filling = b"|%08x" % crc32(text)
    return text + (filling * (missing // len(filling) + 1))[:missing]


def text_of(raw: bytes | None) -> str | None:
    """Return a key as histories store it: its text, ``0x…`` in hexadecimal if it is not UTF-8, or None."""
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"0x{raw.hex()}"


def is_damaged(key: str | None, value: bytes | None) -> bool:
    """Return whether the value of a record with a workload key differs from the value written."""
    return key is not None and parts_of(key) is not None and value_of(key, len(value or b"")) != value
