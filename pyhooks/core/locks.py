"""Keeps a second process away from what this one writes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyhooks.core.errors import RackgateError


@contextmanager
def alone(file: Path, *, taken: str) -> Iterator[None]:
    """Holds a lock while the body runs; the kernel lets go however this process ends, and no child has it.

    Args:
        file: that is locked; made, with its folder, and left there.
        taken: the error in words, if another process has it.

    Raises:
        RackgateError: another process has it, or the file can't be opened.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # a link could lead to a file of somebody else's
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise RackgateError(f"{file}: can't be locked: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RackgateError(taken) from None
        yield
    finally:
        os.close(descriptor)
