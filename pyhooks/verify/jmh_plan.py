"""Plan of ``rackgate patch jmh``: benchmarks with their parameters on each side, and the comparisons between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from pyhooks.core.errors import RackgateError
from pyhooks.verify.jmh_statistics import Comparison
from pyhooks.verify.jmh_stopping import LOOKS

STOCK, OVERLAY, CONTROL = "stock", "overlay", "control"
SCANNED = {
    "UnderMinIsrPartitionCount": "UnderMinRackIsrPartitionCount",
    "AtMinIsrPartitionCount": "AtMinRackIsrPartitionCount",
}
SCALE = "append to a log file, ISR of 3, stock against itself"
_OPERATIONS_PER_SCAN = 10_000
_OPERATIONS_IN_SLICE = 8192


@dataclass(frozen=True)
class Effort:
    """Number and length of the measurements.

    Attributes:
        forks: maximum number of JVMs for each benchmark and side; fewer if the stopping rule ends a comparison.
    """

    forks: int
    warm_s: float
    iterations: int
    iteration_s: float


# Most variance is between forks, since JIT compilation differs: many short forks are more precise than few long ones.
QUICK = Effort(forks=LOOKS[0], warm_s=2.0, iterations=30, iteration_s=0.05)
FULL = replace(QUICK, forks=LOOKS[-1])


@dataclass(frozen=True)
class JmhCell:
    """One benchmark with its parameters on one side.

    Attributes:
        side: ``stock``, ``overlay``, or ``control``, which is stock again.
        operations: number of operations in one call.
        slice_calls: number of calls timed together as a slice, about a millisecond; see ``Cpu.java``.
    """

    side: str
    benchmark: str
    parameters: tuple[tuple[str, str], ...]
    operations: int = 1
    slice_calls: int = _OPERATIONS_IN_SLICE

    @property
    def name(self) -> str:
        """Unique readable name."""
        return f"{self.side} {self.benchmark} {' '.join(f'{key}={value}' for key, value in self.parameters)}"


def plan(only: str = "") -> tuple[tuple[JmhCell, ...], tuple[Comparison, ...]]:
    """Return the cells and comparisons; with ``only``, the comparisons whose name contains this text.

    Raises:
        RackgateError: no name contains it.
    """
    cells: list[JmhCell] = []
    comparisons: list[Comparison] = []

    def group(title: str, benchmark: str, fixed: dict[str, str], gauge: str = "", operations: int = 1) -> None:
        def cell(side: str, racks: int, **more: str) -> JmhCell:
            parameters = tuple({**fixed, "racks": str(racks), **more}.items())
            return JmhCell(side, benchmark, parameters, operations, max(1, _OPERATIONS_IN_SLICE // operations))

        base = {"gauge": gauge} if gauge else {}
        patched = {"gauge": SCANNED[gauge]} if gauge else {}
        stock, control = cell(STOCK, 1, **base), cell(CONTROL, 1, **base)
        first, second = cell(OVERLAY, 1, **patched), cell(OVERLAY, 2, **patched)
        cells.extend([stock, first, second])
        comparisons.append(Comparison(f"{title}, R=1", stock.name, first.name))
        comparisons.append(Comparison(f"{title}, R=2", stock.name, second.name))
        if fixed.get("isr", "3") == "3" and gauge != "AtMinIsrPartitionCount":
            cells.append(control)
            comparisons.append(Comparison(f"{title}, stock against itself", stock.name, control.name, control=True))

    for isr in ("3", "5", "7"):
        group(f"append gate, ISR of {isr}", "AppendBenchmark.append", {"isr": isr, "log": "stub"})
    # An append that writes to a file, for scale. It has no target: its forks differ by a third.
    on_file = (("isr", "3"), ("log", "file"), ("racks", "1"))
    stock, control = (JmhCell(side, "AppendBenchmark.append", on_file, 1, 128) for side in (STOCK, CONTROL))
    cells.extend([stock, control])
    comparisons.append(Comparison(SCALE, stock.name, control.name, control=True))
    for isr in ("3", "5", "7"):
        group(f"high watermark, ISR of {isr}", "HighWatermarkBenchmark.update", {"isr": isr})
    for gauge in SCANNED:
        group(f"scan for {SCANNED[gauge]}, a partition", "MetricScanBenchmark.scan", {}, gauge, _OPERATIONS_PER_SCAN)
    wanted = tuple(comparison for comparison in comparisons if only in comparison.name)
    if not wanted:
        names = ", ".join(comparison.name for comparison in comparisons)
        raise RackgateError(f"no comparison has {only!r} in its name; the names are: {names}")
    used = {name for comparison in wanted for name in (comparison.stock, comparison.other)}
    return tuple(cell for cell in cells if cell.name in used), wanted


def in_turn(cells: Sequence[JmhCell], number: int) -> list[list[JmhCell]]:
    """Return the heats of round ``number`` in planned order, each with its sides in the order of their turns.

    A JVM's turn is affected by the cache content that the previous JVM left. So rounds cycle through all cyclic orders,
    in which each side follows each other side equally often, and the side that begins alternates as well.
    """
    groups: dict[tuple[str, str], list[JmhCell]] = {}
    for cell in cells:
        fixed = dict(cell.parameters)
        place = fixed.get("isr", "") + fixed.get("log", "") + fixed.get("gauge", "").replace("Rack", "")
        groups.setdefault((cell.benchmark, place), []).append(cell)
    ordered = []
    for first, *others in groups.values():
        rings = [[first, *rest] for rest in permutations(others)]
        turns, which = divmod(number - 1, len(rings))
        begins = turns % len(rings[which])
        ordered.append(rings[which][begins:] + rings[which][:begins])
    return ordered
