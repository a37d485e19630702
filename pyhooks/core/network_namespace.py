"""Sockets in another network namespace: a thread enters it, opens the socket and returns."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyhooks.core.errors import RackgateError

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def network_of(pid: int) -> Iterator[None]:
    """Move the calling thread, but no other thread, into the network namespace of a process within the block.

    A socket stays in the namespace in which it was opened, so only opening it has to happen within the block.

    Args:
        pid: PID of a process in that namespace, as seen from ours.

    Raises:
        RackgateError: there is no such process, or this process may not enter its namespace.
    """
    try:
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise RackgateError(f"network namespace of this thread: {error}") from error
    try:
        try:
            other = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise RackgateError(f"network namespace of process {pid}: {error.strerror}; does its node run?") from error
        try:
            _enter(other, f"network namespace of process {pid}")
        finally:
            os.close(other)
        try:
            yield
        finally:
            _enter(own, "back into the own network namespace")
    finally:
        os.close(own)


def _enter(descriptor: int, what: str) -> None:
    # os.setns exists only since Python 3.12
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise RackgateError(f"{what}: {os.strerror(code)}; only the lab that made a node may enter it")
