"""Repeated calls of a function in a thread, for samples and progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

JOIN_S = 10.0


@contextmanager
def calling_every(interval_s: float, function: Callable[[], object], name: str) -> Iterator[None]:
    """Call a function every ``interval_s`` seconds in a thread with this name while the block runs."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(interval_s):
            function()

    thread = threading.Thread(target=loop, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=JOIN_S)
