"""Memory: what labs and Spark need, and what this machine and its control group leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.spark import DRIVER_HEAP_MB
from pyhooks.lab.topology import Topology

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# Measured with 5 brokers under load: resident memory of a broker or controller beyond its heap is below this.
BEYOND_HEAP_MB = 64
# The JVM of Spark's driver beyond its heap, and the Python processes of driver and tasks.
BEYOND_SPARK_HEAP_MB = 512 + 640
SPARK_MB = DRIVER_HEAP_MB + BEYOND_SPARK_HEAP_MB
# limit, use and statistics by version of control groups, and what of the use the kernel gives back
_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_MB = 2**20


def of_lab(topology: Topology) -> int:
    """Return the memory in MiB that the nodes of a lab need: their heaps, and what a JVM takes beside it."""
    return sum(topology.heap_mb_of(node) + BEYOND_HEAP_MB for node in topology.nodes)


def of_labs(topologies: Sequence[Topology], at_once: int) -> int:
    """Return the most memory in MiB that labs need of which ``at_once`` run side by side."""
    return sum(sorted(map(of_lab, topologies), reverse=True)[:at_once])


def require(needed_mb: int, what: str, advice: str) -> None:
    """Check that memory suffices, before anything is started.

    Args:
        needed_mb: in MiB.
        what: what needs it.
        advice: how to need less.

    Raises:
        RackgateError: names what is needed, what is there and which limit it is. Nothing is raised where the kernel
            reports neither.
    """
    for source, available_mb in available():
        if available_mb < needed_mb:
            raise RackgateError(
                f"{what} needs {needed_mb} MiB of memory, and {source} leaves {available_mb} MiB: end other programs,"
                f" raise the limit, or {advice}"
            )


def available(proc: Path | None = None, cgroups: Path | None = None) -> Iterator[tuple[str, int]]:
    """Yield what the machine and each control group of this process leave: source, and MiB.

    Args:
        proc: in place of ``/proc``.
        cgroups: in place of ``/sys/fs/cgroup``.
    """
    proc, cgroups = proc or PROC, cgroups or CGROUPS
    fields = dict(line.split(":", 1) for line in _lines(proc / "meminfo") if ":" in line)
    if (free := fields.get("MemAvailable", "").split()) and free[0].isdigit():
        yield f"the machine ({proc / 'meminfo'})", int(free[0]) // 1024
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _groups(cgroups, path, *_V2)
        elif "memory" in controllers.split(","):
            yield from _groups(cgroups / "memory", path, *_V1)


def _groups(root: Path, path: str, limit: str, use: str, reclaimable: str) -> Iterator[tuple[str, int]]:
    # the limit of each group above applies, too; in a container the path may not be visible, and the root is its own
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
    """Return the number in a file; None if there is none, or ``max``."""
    text = "".join(_lines(file)).strip()
    return int(text) if text.isdigit() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        # the kernel has no such controller
        return []
