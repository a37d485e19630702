"""Durations as a person writes them: ``500ms``, ``30s``, ``2m``, ``1.5h``."""

from __future__ import annotations

import re

from pyhooks.errors import RackgateError

MAX_S = 24 * 3600.0
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str, option: str) -> float:
    """A duration in seconds, above 0 and at most a day.

    Args:
        text: as written.
        option: by which it was given, for the error.

    Raises:
        RackgateError: not a duration, or out of bounds.
    """
    found = _WRITTEN.fullmatch(text.strip())
    value = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < value <= MAX_S:
        raise RackgateError(f"{option} {text}: expected a duration such as 500ms, 30s or 2m, at most 24h")
    return value
