"""Reader that follows a growing history: current faults, and counts of produce attempts by outcome."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event
from pyhooks.history.events import FAULT, PRODUCE, FaultDetails, ProduceDetails
from pyhooks.watch.observation import ANY_PARTITION, FaultObservation, ProduceCounts

# Bound of one step, so that catching up with a long history does not block for long.
STEP_BYTES = 8 * 1024 * 1024
FAULT_LINE = f'"process":"{FAULT}"'
PRODUCE_LINE = f'"op":"{PRODUCE}"'
COUNTER_INDEX = {"ok": 0, "fail": 1, "unknown": 2}


class HistoryTail:
    """Follower of a history file.

    It parses only the lines of faults and produce attempts, and skips the much longer ones of metrics.

    Args:
        path: the file; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.behind_bytes = 0
        self._offset = 0
        self._incomplete_line = b""
        self._invalid_lines = 0
        self._first_invalid = ""
        # by topic and partition: ok, rejected, unknown
        self._counts: dict[tuple[str, int], list[int]] = {}
        self._faults: dict[tuple[str, str, str], FaultObservation] = {}

    def step(self) -> None:
        """Read new lines, at most ``STEP_BYTES``.

        Raises:
            RackgateError: the file can't be read.
        """
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(self._offset)
                text = file.read(min(STEP_BYTES, max(0, size - self._offset)))
        except FileNotFoundError:
            return
        except OSError as error:
            raise RackgateError(f"{self.path}: can't be read: {error.strerror}") from error
        self._offset += len(text)
        self.behind_bytes = max(0, size - self._offset)
        lines = (self._incomplete_line + text).split(b"\n")
        self._incomplete_line = lines.pop()
        for line in lines:
            try:
                self._read_line(line.decode())
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self._invalid_lines += 1
                self._first_invalid = self._first_invalid or f"{line[:60]!r}: {error}"

    @property
    def problem(self) -> str:
        """Description of invalid lines, or empty."""
        if not self._invalid_lines:
            return ""
        return f"{self.path}: {self._invalid_lines} lines can't be read, first {self._first_invalid}"

    @property
    def produced(self) -> Mapping[tuple[str, int], ProduceCounts]:
        """Counts by topic and partition (``ANY_PARTITION`` if the event names none)."""
        return {key: ProduceCounts(*counts) for key, counts in self._counts.items()}

    @property
    def faults(self) -> tuple[FaultObservation, ...]:
        """Latest event of each fault, in the order of their first events."""
        return tuple(self._faults.values())

    def _read_line(self, line: str) -> None:
        # the fields that distinguish events are at the start of a line
        head = line[:200]
        if FAULT_LINE in head:
            self._read_fault(Event.parse(line))
        elif PRODUCE_LINE in head:
            self._count_attempt(Event.parse(line))

    def _read_fault(self, event: Event) -> None:
        fault = FaultDetails.of(event)
        if fault is None or fault.step is None:
            return
        key = (event.op, event.rack or "", "" if fault.broker is None else str(fault.broker))
        previous = self._faults.get(key)
        injected_ns = event.mono_ns if fault.step == "inject" or previous is None else previous.injected_ns
        proved = {"ok": True, "unknown": False, "fail": False}.get(event.outcome or "")
        self._faults[key] = FaultObservation(*key, fault.step, proved, injected_ns, event.mono_ns)

    def _count_attempt(self, event: Event) -> None:
        attempt = ProduceDetails.of(event)
        index = COUNTER_INDEX.get(event.outcome or "")
        if attempt is not None and index is not None:
            key = (attempt.topic, ANY_PARTITION if attempt.partition is None else attempt.partition)
            self._counts.setdefault(key, [0, 0, 0])[index] += 1
