"""Durations as users write them: ``500ms``, ``30s``, ``2m``, ``1.5h``."""

from __future__ import annotations

import re

from pyhooks.core.errors import RackgateError

MAX_S = 24 * 3600.0
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str, option: str, *, max_s: float = MAX_S) -> float:
    """Parse a duration and return it in seconds; it must be above 0 and at most ``max_s``. Errors name ``option``.

    Raises:
        RackgateError: the text is not a duration, or the duration is out of bounds.
    """
    match = _WRITTEN.fullmatch(text.strip())
    value = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < value <= max_s:
        raise RackgateError(f"{option} {text}: expected a duration such as 500ms, 30s or 2m, at most {max_s / 3600:g}h")
    return value
