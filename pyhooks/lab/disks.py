"""Logs on the disks of stopped brokers, read with Kafka's own record classes in a single JVM.

A log is read as a broker would find it at its next start: up to the first batch that is incomplete or has a wrong
checksum. Kafka's recovery truncates it there, including later segments (``LogSegment.recover``,
``LogLoader.recoverLog``). Recovery checks only what was not flushed when the broker ended. This module checks every
batch, so damage to flushed data ends a log, too. A checksum does not cover its batch's offset: decreasing offsets end a
log here, but in Kafka only where it writes an index. The kernel survives a killed process, so everything that a broker
wrote is on its disk, flushed or not.

The events have the broker's rack, and ``DiskChunkDetails`` or, once for each broker, ``DiskEndDetails``. If reading
failed in the middle of a log, ``end`` of its last chunk is how far it got.
"""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.history.events import DiskChunkDetails, DiskEndDetails
from pyhooks.lab.kafka_process import LOG4J
from pyhooks.patchset.distribution import Distribution

if TYPE_CHECKING:
    from pyhooks.lab.lab import Lab

PROCESS = "disks"
TIMEOUT_S = 300.0
# as laid out by Lab.configure
DATA = "data"


@dataclass(frozen=True)
class BrokerDisk:
    """Disk of a broker."""

    broker: int
    rack: str
    data: Path  # its log directory (``log.dirs``); a missing directory is an empty disk, as after a wipe
    stopped: bool  # whether the broker is stopped; a log that grows while it is read proves nothing


@dataclass(frozen=True)
class DiskContents:
    """Result of reading the disk of a broker."""

    broker: int
    rack: str
    partitions: int
    records: int
    torn: tuple[tuple[str, int, str], ...]  # partitions with a truncated log: topic, number, position
    stopped: bool  # whether the broker was stopped, before and after the disk was read


def stop_and_read(lab: Lab, history: History, *, topics: Sequence[str] = ()) -> tuple[DiskContents, ...]:
    """Kill all Kafka processes of a lab at once, including controllers, and read the disks of its brokers.

    Kafka is not started again. Workloads should have ended before, since all their requests will fail.

    Raises:
        RackgateError: a process did not end in time; or as in ``read_disks``.
    """
    # Signal all processes before waiting for any, so that no remaining broker becomes leader in the meantime.
    for node in lab.nodes:
        lab.signal_kafka(node, signal.SIGKILL)
    for node in lab.nodes:
        lab.kill_kafka(node)
    brokers = {node.node_id: node for node in lab.brokers()}

    def runs(broker: int) -> bool:
        return lab.kafka_pid(brokers[broker]) is not None

    disks = [
        BrokerDisk(broker, node.site, Path(lab.disks[node.name]) / DATA, stopped=not runs(broker))
        for broker, node in brokers.items()
    ]
    # the heal of a fault may start a broker during the read
    return read_disks(disks, history, topics=topics, runs=runs)


def read_disks(
    disks: Sequence[BrokerDisk],
    history: History,
    *,
    topics: Sequence[str] = (),
    runs: Callable[[int], bool] | None = None,
) -> tuple[DiskContents, ...]:
    """Read all logs of brokers into a history; return the results in the order of ``disks``.

    Args:
        disks: disks to read; those of all brokers of the cluster to check the promise.
        history: history to append to.
        topics: topics to record; by default all whose names do not begin with ``__``.
        runs: called with each broker id after the read; a broker that runs by then does not count as stopped.

    Raises:
        RackgateError: no distribution, or a disk could not be read. Its event has the error; the others were read.
    """
    name = uuid.uuid4().hex[:8]
    lines = _dump([disk.data for disk in disks if disk.data.is_dir()])
    started = {disk.broker for disk in disks if runs is not None and runs(disk.broker)}
    problems: list[str] = []
    contents: list[DiskContents] = []
    for disk in disks:
        stopped = disk.stopped and disk.broker not in started
        own = lines.get(str(disk.data), [])
        chunks = [line for line in own if "topic" in line and _is_selected(str(line["topic"]), topics)]
        done = any("done" in line for line in own) if disk.data.is_dir() else True
        error = (
            "" if done else next((str(line["error"]) for line in own if "error" in line), "it was not read to its end")
        )
        events = list(_chunk_events(disk, name, chunks, error))
        places = {(str(line["topic"]), int(line["partition"])) for line in chunks}
        if error:
            problems.append(f"broker {disk.broker}: {error}")
        end = DiskEndDetails(
            read_id=name, broker=disk.broker, stopped=stopped, replicas=tuple(sorted(places)), error=error or None
        )
        events.append(end.event("unknown" if error else "ok", process=PROCESS, rack=disk.rack))
        history.extend(events)
        torn = tuple(
            (str(chunk["topic"]), int(chunk["partition"]), str(chunk["torn"])) for chunk in chunks if "torn" in chunk
        )
        records = sum(len(line["keys"]) for line in chunks)
        contents.append(DiskContents(disk.broker, disk.rack, len(places), records, torn, stopped))
    if problems:
        raise RackgateError(f"read the disks: {'; '.join(problems)}")
    return tuple(contents)


def _is_selected(topic: str, topics: Sequence[str]) -> bool:
    return topic in topics if topics else not topic.startswith("__")


def _chunk_events(disk: BrokerDisk, name: str, chunks: Sequence[Mapping[str, Any]], error: str) -> Iterator[Event]:
    """Yield the events of a disk's chunks."""
    # Only a partition's last chunk has its end; if it has none, reading failed there.
    last = {(line["topic"], line["partition"]): line for line in chunks}
    for line in chunks:
        final = last[line["topic"], line["partition"]]
        endless = line is final and "end" not in line
        chunk = DiskChunkDetails(
            read_id=name,
            broker=disk.broker,
            topic=str(line["topic"]),
            partition=int(line["partition"]),
            low=int(line["low"]),
            end=int(final.get("end", final["next"])),
            begin=int(line["begin"]),
            next=int(line["next"]),
            runs=tuple((first, count) for first, count in line["runs"]),
            keys=tuple(line["keys"]),
            torn=line.get("torn"),
            why=(error or "its end is unknown") if endless else None,
        )
        yield chunk.event("unknown" if endless else "ok", process=PROCESS, rack=disk.rack)


def _dump(folders: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
    """Run ``rackgate.hooks.LogDump`` on folders and return its output lines for each."""
    lines_by_folder: dict[str, list[dict[str, Any]]] = {str(folder): [] for folder in folders}
    if not folders:
        return lines_by_folder
    built = Distribution.load()
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"-Dlog4j2.configurationFile={LOG4J}", "-cp", f"{built.hooks}:{built.classpath()}"]
    output = process.run(
        [*command, "rackgate.hooks.LogDump"],
        task="read the disks",
        stdin="".join(f"{folder}\n" for folder in lines_by_folder),
        timeout_s=TIMEOUT_S,
    )
    for text in output.splitlines():
        if text.startswith("{"):
            line = json.loads(text)
            lines_by_folder[line["folder"]].append(line)
    return lines_by_folder
