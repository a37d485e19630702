"""Bounded waiting for a condition; the timeout error names the condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pyhooks.core.errors import RackgateError

T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], *, goal: str, timeout_s: float, interval_s: float = 0.1) -> T:
    """Poll ``condition`` at once, then every ``interval_s`` seconds, until it returns a true value; return it.

    Args:
        condition: must not block for long.
        goal: description of the condition for the error.
        timeout_s: timeout in seconds.
        interval_s: pause between two calls in seconds.

    Raises:
        RackgateError: the condition did not become true within ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise RackgateError(f"timed out after {timeout_s:.0f} s waiting for: {goal}")
        time.sleep(min(interval_s, left_s))
