"""Paths of a checkout; the project writes all build products and results below ``build/`` or ``out/``."""

from __future__ import annotations

from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PATCH = REPO / "patch" / "4.3.1"
BUILD = REPO / "build"
OUT = REPO / "out"
NOTICE = REPO / "NOTICE"
# The lab's own state and its nodes' disks, on a file system that only the lab's processes see.
LAB_HOME = Path("/run/rackgate")
