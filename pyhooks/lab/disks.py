"""What lies on the disks of stopped brokers, read by Kafka's own record classes in a single JVM.

A log is read as a broker would find it at its next start: up to the first batch that is cut short or whose checksum is
wrong; there Kafka's recovery truncates it, later segments included (``LogSegment.recover``, ``LogLoader.recoverLog``).
Recovery looks only at what was not flushed when the broker ended; here every batch is checked, so damage in what was
flushed ends a log here, too. A checksum does not cover its batch's offset: offsets that go back end a log here, in
Kafka only where it writes an index. The kernel goes on when a process is killed: what a broker wrote is on its disk,
flushed or not.

Events of process ``disks``, with the broker's rack: for each chunk of a partition op ``disk``, ``data`` ``{pass,
broker, topic, partition, low, end, begin, next, runs, keys}`` as in ``pyhooks.workload.final_reader``, and ``torn``
where a log is cut short; where reading failed in the middle of a log ``end`` is how far it came, and the last chunk's
outcome is ``unknown`` with a ``why``. For each broker op ``disk-end``, ``data`` ``{pass, broker, replicas, stopped}``
with all of its partitions, and outcome ``unknown`` and an ``error`` if its disk could not be read.
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
from pyhooks.history.event_log import Event, History, Outcome
from pyhooks.lab.kafka_process import LOG4J
from pyhooks.patchset.distribution import Distribution

if TYPE_CHECKING:
    from pyhooks.lab.lab import Lab

TIMEOUT_S = 300.0
# as Lab.configure lays out a node's disk
DATA = "data"


@dataclass(frozen=True)
class Disk:
    """The disk of one broker.

    Attributes:
        broker: its id.
        rack: its rack, or empty.
        data: its log folder (``log.dirs``); a folder that is not there is an empty disk, as after a wipe.
        stopped: whether the broker does not run; a log that grows while it is read proves nothing.
    """

    broker: int
    rack: str
    data: Path
    stopped: bool


@dataclass(frozen=True)
class DiskRead:
    """What was found on the disk of one broker.

    Attributes:
        broker: its id.
        rack: its rack, or empty.
        partitions: how many were noted.
        records: how many in all of them.
        torn: partitions whose log is cut short: topic, number, where.
        stopped: whether the broker did not run, before as after it was read.
    """

    broker: int
    rack: str
    partitions: int
    records: int
    torn: tuple[tuple[str, int, str], ...]
    stopped: bool


def disks_of(lab: Lab) -> list[Disk]:
    """The disks of all brokers of a lab, and whether each of them is stopped right now."""
    return [
        Disk(node.node_id, node.site, Path(lab.disks[node.name]) / DATA, stopped=lab.kafka_pid(node) is None)
        for node in lab.brokers()
    ]


def stop_and_read(lab: Lab, history: History, *, topics: Sequence[str] = ()) -> tuple[DiskRead, ...]:
    """Ends all Kafka of a lab at once, controllers too, and reads what lies on its brokers' disks.

    Nothing starts it again. Workloads should have ended before: whatever they try meanwhile fails.

    Args:
        lab: whose.
        history: where the events go.
        topics: as in ``read_disks``.

    Raises:
        RackgateError: a process would not end; or as ``read_disks``.
    """
    # all are told before any is waited for: who is left for a moment must not take over from who is gone
    for node in lab.nodes:
        lab.signal_kafka(node, signal.SIGKILL)
    for node in lab.nodes:
        lab.kill_kafka(node)
    brokers = {node.node_id: node for node in lab.brokers()}
    # the heal of a fault may start one while we read
    return read_disks(disks_of(lab), history, topics=topics, runs=lambda one: lab.kafka_pid(brokers[one]) is not None)


def read_disks(
    disks: Sequence[Disk],
    history: History,
    *,
    topics: Sequence[str] = (),
    runs: Callable[[int], bool] | None = None,
) -> tuple[DiskRead, ...]:
    """Reads all logs of brokers into a history.

    Args:
        disks: of the brokers, all of the cluster if the promise is to be checked.
        history: where the events go.
        topics: which to note; by default all but those whose names begin with ``__``.
        runs: asked after the reading whether a broker runs by now, so that it does not count as stopped.

    Returns:
        What was found, in the order of ``disks``.

    Raises:
        RackgateError: no distribution, or a disk that could not be read; its event tells so, and the others were read.
    """
    name = uuid.uuid4().hex[:8]
    lines = _dump([disk.data for disk in disks if disk.data.is_dir()])
    started = {disk.broker for disk in disks if runs is not None and runs(disk.broker)}
    problems: list[str] = []
    found: list[DiskRead] = []
    for disk in disks:
        stopped = disk.stopped and disk.broker not in started
        own = lines.get(str(disk.data), [])
        chunks = [line for line in own if "topic" in line and _wanted(str(line["topic"]), topics)]
        done = any("done" in line for line in own) if disk.data.is_dir() else True
        error = (
            "" if done else next((str(line["error"]) for line in own if "error" in line), "it was not read to its end")
        )
        events = list(_chunks(disk, name, chunks, error))
        places = {(str(line["topic"]), int(line["partition"])) for line in chunks}
        told: dict[str, Any] = {
            "pass": name, "broker": disk.broker, "stopped": stopped, "replicas": sorted(map(list, places)),
        }  # fmt: skip
        outcome: Outcome = "ok"
        if error:
            told["error"] = error
            problems.append(f"broker {disk.broker}: {error}")
            outcome = "unknown"
        events.append(Event.now("disks", "disk-end", outcome, rack=disk.rack, **told))
        history.extend(events)
        torn = tuple((str(one["topic"]), int(one["partition"]), str(one["torn"])) for one in chunks if "torn" in one)
        records = sum(len(line["keys"]) for line in chunks)
        found.append(DiskRead(disk.broker, disk.rack, len(places), records, torn, stopped))
    if problems:
        raise RackgateError(f"read the disks: {'; '.join(problems)}")
    return tuple(found)


def _wanted(topic: str, topics: Sequence[str]) -> bool:
    return topic in topics if topics else not topic.startswith("__")


def _chunks(disk: Disk, name: str, chunks: Sequence[Mapping[str, Any]], error: str) -> Iterator[Event]:
    """The events of a disk's chunks."""
    # The end is known with the last chunk of a partition; one that has none is where reading failed.
    last = {(line["topic"], line["partition"]): line for line in chunks}
    for line in chunks:
        final = last[line["topic"], line["partition"]]
        told = {key: value for key, value in line.items() if key != "folder"}
        told |= {"pass": name, "broker": disk.broker, "end": final.get("end", final["next"])}
        outcome: Outcome = "ok"
        if line is final and "end" not in line:
            outcome, told["why"] = "unknown", error or "nothing tells where it ends"
        yield Event.now("disks", "disk", outcome, rack=disk.rack, **told)


def _dump(folders: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
    """What ``rackgate.hooks.LogDump`` says of each folder."""
    found: dict[str, list[dict[str, Any]]] = {str(folder): [] for folder in folders}
    if not folders:
        return found
    built = Distribution.load()
    words = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    words += [f"-Dlog4j2.configurationFile={LOG4J}", "-cp", f"{built.hooks}:{built.classpath()}"]
    said = process.run(
        [*words, "rackgate.hooks.LogDump"],
        what="read the disks",
        stdin="".join(f"{folder}\n" for folder in found),
        timeout_s=TIMEOUT_S,
    )
    for text in said.splitlines():
        if text.startswith("{"):
            line = json.loads(text)
            found[line["folder"]].append(line)
    return found
