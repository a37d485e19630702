"""Where things lie in a checkout; everything made by the project is below ``build/`` or ``out/``."""

from __future__ import annotations

from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PATCH = REPO / "patch" / "4.3.1"
BUILD = REPO / "build"
OUT = REPO / "out"
NOTICE = REPO / "NOTICE"
# Where a lab keeps its nodes' disks and its own state: a file system of its own, which only its processes see.
LAB_HOME = Path("/run/rackgate")
