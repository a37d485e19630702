"""Result type of the long checks of the series."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CheckResult:
    """Result of a check."""

    summary: dict[str, Any]
    path: Path
    met: bool
