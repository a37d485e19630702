"""File locks between processes.

The kernel releases a lock when its process ends, however it ends. Programs that the process executes do not inherit it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for

_POLL_S = 0.05


class LockTakenError(RackgateError):
    """Another process holds the lock."""


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file or folder until its descriptor is closed; return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def hold_lock(
    file: Path, *, taken: str, patience_s: float = 0.0, on_wait: Callable[[], object] | None = None
) -> Iterator[None]:
    """Hold an exclusive lock on a file within the block.

    Args:
        file: file to lock; created with its folder if missing, and not deleted.
        taken: error message if another process holds the lock.
        patience_s: how long to wait for that process; ``math.inf`` waits until it ends.
        on_wait: called once before waiting.

    Raises:
        LockTakenError: another process holds the lock for longer than that.
        RackgateError: the file can't be opened.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # a symbolic link could point to another user's file
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise RackgateError(f"{file}: can't be locked: {error.strerror}") from error
    try:
        if not try_lock(descriptor):
            if on_wait is not None:
                on_wait()
            try:
                wait_for(lambda: try_lock(descriptor), goal="the lock", timeout_s=patience_s, interval_s=_POLL_S)
            except RackgateError as error:
                raise LockTakenError(taken) from error
        yield
    finally:
        os.close(descriptor)
