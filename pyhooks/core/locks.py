"""File lock between processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyhooks.core.errors import RackgateError


@contextmanager
def alone(file: Path, *, taken: str) -> Iterator[None]:
    """Hold an exclusive lock on a file within the block.

    The kernel releases the lock when this process ends, however it ends. Programs that it executes do not inherit it.

    Args:
        file: file to lock; created with its folder if missing, and not deleted.
        taken: error message if another process holds the lock.

    Raises:
        RackgateError: another process holds the lock, or the file can't be opened.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # a symbolic link could point to another user's file
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
