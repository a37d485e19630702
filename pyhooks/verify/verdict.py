"""What a long check of the series came to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check.

    Attributes:
        summary: as written to ``summary.json``.
        path: that file.
        met: whether everything that was checked is as it must be.
    """

    summary: dict[str, Any]
    path: Path
    met: bool
