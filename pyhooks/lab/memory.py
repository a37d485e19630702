"""Memory that labs and Spark need, and memory that this machine and its control groups have available."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.spark import DRIVER_HEAP_MB
from pyhooks.lab.link_emulator import RINGS_MB
from pyhooks.lab.topology import Topology

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# Upper bound of a broker's or controller's resident memory beyond its heap, measured with 5 brokers under load.
BEYOND_HEAP_MB = 64
# Spark's driver JVM beyond its heap, and the Python processes of driver and tasks.
BEYOND_SPARK_HEAP_MB = 512 + 640
SPARK_MB = DRIVER_HEAP_MB + BEYOND_SPARK_HEAP_MB
# Files with limit and usage, and the reclaimable part in memory.stat, for both versions of control groups.
_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_MB = 2**20


def lab_memory_mb(topology: Topology) -> int:
    """Return the memory in MiB that a lab needs: heaps, what a JVM uses beyond its heap, and rings of its links.

    Every link counts, because a fault may have a plain one emulated.
    """
    nodes_mb = sum(topology.heap_mb_of(node) + BEYOND_HEAP_MB for node in topology.nodes)
    return nodes_mb + RINGS_MB * len(topology.links)


def concurrent_labs_memory_mb(topologies: Sequence[Topology], at_once: int) -> int:
    """Return the maximum memory in MiB of labs of which at most ``at_once`` run at a time."""
    return sum(sorted(map(lab_memory_mb, topologies), reverse=True)[:at_once])


def require_memory(needed_mb: int, user: str, advice: str) -> None:
    """Check that enough memory is available, before anything is started.

    Raises:
        RackgateError: too little memory; names the required and the available memory, and the limit. Not raised if
            the kernel reports neither the machine's memory nor a limit.
    """
    for source, available_mb in available_memory():
        if available_mb < needed_mb:
            raise RackgateError(
                f"{user} needs {needed_mb} MiB of memory, and {source} leaves {available_mb} MiB: end other programs,"
                f" raise the limit, or {advice}"
            )


def available_memory() -> Iterator[tuple[str, int]]:
    """Yield the memory that the machine and each control group of this process have available: source, and MiB."""
    fields = dict(line.split(":", 1) for line in _lines(PROC / "meminfo") if ":" in line)
    if (free := fields.get("MemAvailable", "").split()) and free[0].isdigit():
        yield f"the machine ({PROC / 'meminfo'})", int(free[0]) // 1024
    for line in _lines(PROC / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _groups(CGROUPS, path, *_V2)
        elif "memory" in controllers.split(","):
            yield from _groups(CGROUPS / "memory", path, *_V1)


def _groups(root: Path, path: str, limit: str, use: str, reclaimable: str) -> Iterator[tuple[str, int]]:
    # Limits of parent groups apply, too. In a container the path may be invisible; the root is then its own group.
    own = root / path.lstrip("/")
    for folder in (own, *own.parents):
        if not folder.is_relative_to(root):
            return
        most, used = _number(folder / limit), _number(folder / use)
        if most is None or used is None:
            continue
        stat = dict(line.split(" ", 1) for line in _lines(folder / "memory.stat") if " " in line)
        cached = stat.get(reclaimable, "")
        back = int(cached) if cached.isdigit() else 0
        yield f"the control group ({folder / limit})", max(0, most - used + back) // _MB


def _number(file: Path) -> int | None:
    """Return the number in a file; None if the file is missing or contains ``max``."""
    text = "".join(_lines(file)).strip()
    return int(text) if text.isdigit() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        # the kernel has no such controller
        return []
