"""Bounded waiting for a condition; what was awaited is part of the error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pyhooks.core.errors import RackgateError

T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], *, what: str, timeout_s: float, interval_s: float = 0.1) -> T:
    """Polls ``condition`` until it returns something true, and returns that.

    Args:
        condition: asked at once and then every ``interval_s`` seconds; it must not block for long.
        what: the awaited thing in words, for the error.
        timeout_s: bound in seconds.
        interval_s: pause between two questions in seconds.

    Raises:
        RackgateError: the condition did not hold within ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise RackgateError(f"waited {timeout_s:.0f} s in vain for: {what}")
        time.sleep(min(interval_s, left_s))
