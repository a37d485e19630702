"""Durations as a person writes them: ``500ms``, ``30s``, ``2m``, ``1.5h``."""

from __future__ import annotations

import re

from pyhooks.core.errors import RackgateError

MAX_S = 24 * 3600.0
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str, option: str, *, most_s: float = MAX_S) -> float:
    """A duration in seconds, above 0.

    Args:
        text: as written.
        option: by which it was given, for the error.
        most_s: how long it may be.

    Raises:
        RackgateError: not a duration, or out of bounds.
    """
    found = _WRITTEN.fullmatch(text.strip())
    value = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < value <= most_s:
        raise RackgateError(
            f"{option} {text}: expected a duration such as 500ms, 30s or 2m, at most {most_s / 3600:g}h"
        )
    return value
