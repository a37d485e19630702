"""Paths of a checkout; the project writes all build products and results below ``build/`` or ``out/``."""

from __future__ import annotations

import os
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
BUILD = REPO / "build"
OUT = REPO / "out"
NOTICE = REPO / "NOTICE"
# The lab's own state and its nodes' disks, on a file system that only the lab's processes see.
LAB_HOME = Path("/run/rackgate")
# Version of Kafka to work on, set by `rackgate --kafka`; as an environment variable it also reaches child processes.
KAFKA_VARIABLE = "RACKGATE_KAFKA"
DEFAULT_KAFKA = "4.3.1"


def kafka_version() -> str:
    """Return the chosen version of Kafka."""
    return os.environ.get(KAFKA_VARIABLE) or DEFAULT_KAFKA


def patch_folder(version: str = "") -> Path:
    """Return the folder with recipe and patch series of a version, by default the chosen one."""
    return REPO / "patch" / (version or kafka_version())


def patched_versions() -> tuple[str, ...]:
    """Return the versions of Kafka that have a recipe, oldest first."""
    folders = [path.parent.name for path in (REPO / "patch").glob("*/kafka.toml")]
    return tuple(sorted(folders, key=lambda version: [int(number) for number in version.split(".")]))
