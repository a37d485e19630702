"""Logs in a stored history, which reads and disks recorded in chunks: decode, change and encode them again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, repeat
from typing import Any

from pyhooks.checkers.record_view import PartitionName, offsets_of
from pyhooks.history.event_log import Event
from pyhooks.history.events import DiskChunkDetails, ReadChunkDetails

DISK = "disk"


@dataclass(frozen=True)
class LogName:
    """One recorded log: a pass of a reader over a partition, or a broker's copy."""

    read_id: str  # id of the pass, or of the reading of the disks
    partition: PartitionName
    isolation: str  # isolation level, or ``disk``
    broker: int | None = None  # broker of a disk


@dataclass(frozen=True)
class StoredRecord:
    """A record of a recorded log, with what else was recorded of it."""

    key: str | None
    size: int | None = None  # size of the value in bytes
    value: Any = None
    damaged: bool = False


Log = dict[int, StoredRecord]
# Returns the changed records by offset; the same object if nothing changed.
Edit = Callable[[LogName, Log], Log]


def log_name(event: Event) -> LogName | None:
    """Return the log to which a chunk belongs, or None for another event."""
    if read := ReadChunkDetails.of(event):
        return LogName(read.read_id, PartitionName(read.topic, read.partition), read.isolation)
    if disk := DiskChunkDetails.of(event):
        return LogName(disk.read_id, PartitionName(disk.topic, disk.partition), DISK, disk.broker)
    return None


def stored_logs(events: Sequence[Event]) -> dict[LogName, Log]:
    """Return all recorded logs of a history, by offset."""
    found: dict[LogName, Log] = {}
    for event in events:
        if (name := log_name(event)) is not None:
            found.setdefault(name, {}).update(_records(event))
    return found


def edit_logs(events: Sequence[Event], edit: Edit) -> list[Event]:
    """Return a history with changed logs. A record behind the end of a log extends its last chunk."""
    places: defaultdict[LogName, list[int]] = defaultdict(list)
    for place, event in enumerate(events):
        if (name := log_name(event)) is not None:
            places[name].append(place)
    changed = list(events)
    for name, chunks in places.items():
        log: Log = {}
        for place in chunks:
            log.update(_records(events[place]))
        edited = edit(name, dict(log))
        if edited == log:
            continue
        chunks.sort(key=lambda place: int(events[place].data["begin"]))
        end = max([int(events[chunks[0]].data["end"]), *(offset + 1 for offset in edited)])
        for place in chunks:
            data = events[place].data
            after = end if place == chunks[-1] and data["next"] == data["end"] else data["next"]
            inside = {offset: edited[offset] for offset in sorted(edited) if data["begin"] <= offset < after}
            changed[place] = replace(events[place], data={**data, "end": end, "next": after, **_encoded(inside, data)})
    return changed


def _records(event: Event) -> Log:
    data = event.data
    offsets = list(offsets_of(data["runs"]))
    sizes = list(chain.from_iterable(repeat(size, count) for size, count in data.get("sizes") or ()))
    values, damaged = data.get("values") or (), set(data.get("damaged") or ())
    return {
        offset: StoredRecord(
            key,
            sizes[at] if at < len(sizes) else None,
            values[at] if at < len(values) else None,
            offset in damaged,
        )
        for at, (offset, key) in enumerate(zip(offsets, data["keys"], strict=False))
    }


def _encoded(log: Mapping[int, StoredRecord], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a chunk with these records; those that it did not have are left out."""
    runs: list[list[int]] = []
    for offset in log:
        if runs and sum(runs[-1]) == offset:
            runs[-1][1] += 1
        else:
            runs.append([offset, 1])
    fields: dict[str, Any] = {"runs": runs, "keys": [record.key for record in log.values()]}
    if data.get("sizes") is not None:
        sizes = [record.size or 0 for record in log.values()]
        fields["sizes"] = [[size, len(list(same))] for size, same in groupby(sizes)]
    if data.get("values") is not None:
        fields["values"] = [record.value for record in log.values()]
    damaged = [offset for offset, record in log.items() if record.damaged]
    if damaged or data.get("damaged") is not None:
        fields["damaged"] = damaged
    return fields
