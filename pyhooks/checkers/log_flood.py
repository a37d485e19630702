"""Check that an outage does not flood the logs of brokers and controllers.

Reads observations, settings, faults, and the logs of the nodes (``pyhooks.history.log_events``). A leader with too few
racks rejects writes for as long as a rack is unavailable, and its clients retry; so lines that are logged for each
rejection fill the disk in an outage. Lines that are logged once for each change are acceptable.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.progress import windows
from pyhooks.checkers.record_view import PartitionName
from pyhooks.checkers.server_log_view import LogLine, log_lines
from pyhooks.checkers.settling_times import BLIND_S, LAG_NS, NS, SETTLE_S
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import LogEndDetails, LoggingNodesDetails

# Messages of the leader when it begins to reject due to too few racks, and when that ends.
BEGINS = "Rejecting writes with acks=all"
ENDS = ("Accepting writes with acks=all again", "Still rejecting writes with acks=all: the ISR spans enough racks")
RACKS, REPLICAS = re.compile(r"\.NotEnoughRacks(?:AfterAppend)?Exception$"), re.compile(r"\.NotEnoughReplicas")
# Loggers of the write path. In each outage, with and without required racks, other loggers report unresponsive brokers
# (clients, fetchers, heartbeats, the quorum) and changes of the metadata.
WRITERS = (
    "kafka.cluster.",
    "kafka.coordinator.",
    "kafka.log.",
    "kafka.server.KafkaApis",
    "kafka.server.ReplicaManager",
    "org.apache.kafka.controller.ConfigurationControlManager",
    "org.apache.kafka.controller.ReplicationControlManager",
    "org.apache.kafka.coordinator.",
    "org.apache.kafka.server.log.",
    "org.apache.kafka.storage.",
)
# Maximum for lines that name no rejected partition: a shortage has few causes, while rejections come by the dozen.
REPEATS = 10
# Changes, of a partition or of all, after which a leader may begin, or cease, to reject.
_CHANGED = re.compile(r"ISR updated to |(?:Leader|Follower) \S+ with topic id|Follower \S+ starts |state change for ")
_SET = re.compile(r"^\[DynamicConfigPublisher |\bis (?:enforced from now on|not enforced anymore)")
# A log being loaded is not written to; after a kill the loader logs each of its steps twice.
_LOADS = "[LogLoader "
_STARTED = re.compile(r"^\[BrokerServer id=\d+\] Transition from SHUTDOWN to STARTING")
_FOLLOWS = re.compile(r"(?:Follower (\S+) starts |become-follower state change for (\S+) )")
# A Kafka id is 22 random letters, digits, - and _. All but one in thousands have a digit, - or _, or two adjacent
# capitals; names of classes (TransactionCoordinator) do not.
_ID = r"(?<![\w-])(?=[A-Za-z]*(?:[\d_-]|[A-Z]{2}))[\w-]{22}(?![\w-])"
_NUMBER = re.compile(rf"\b[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}\b|{_ID}|\d+")


@dataclass(frozen=True)
class Shortage:
    """An interval in which a partition was observed to have too few racks."""

    from_ns: int  # its settled start, monotonic
    to_ns: int  # its end, as far as observed

    def has(self, at_ns: int) -> bool:
        """Return whether a moment is in it."""
        return self.from_ns <= at_ns <= self.to_ns


def shortages(cluster: ClusterView, settle_s: float = SETTLE_S) -> dict[PartitionName, list[Shortage]]:
    """Return when partitions definitely had too few racks, whether or not they had too few replicas, too."""
    shortages_by_partition: defaultdict[PartitionName, list[Shortage]] = defaultdict(list)
    for partition in cluster.observations:
        for window in windows(partition, cluster, round(settle_s * NS)):
            # Settings that change exactly at a window's edge do not concern it.
            required = cluster.settings.possible(partition.topic, window.from_ns + 1, window.to_ns - 1)
            if window.observation.leader < 0 or any(
                requirement.decide(window.observation).enough_racks for requirement in required
            ):
                continue
            earlier = shortages_by_partition[partition]
            if earlier and window.from_ns - earlier[-1].to_ns <= (BLIND_S + settle_s) * NS:
                earlier[-1] = Shortage(earlier[-1].from_ns, window.to_ns)
            else:
                earlier.append(Shortage(window.from_ns, window.to_ns))
    return dict(shortages_by_partition)


def check_flood(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Check that a rack shortage logs nothing per rejection: one line at its start, one at its end, no stack trace.

    Wrong:

    * a leader that logs twice that it begins to reject, or that it ceases to, without the other in between, a restart,
      or becoming a follower;
    * a leader that logs either though nothing has changed since its last such line; a new setting may be logged up to
      ``LAG_S`` later, because a broker publishes the metadata, from which leaders read it, before it logs it;
    * a stack trace of a rejection due to too few racks or, of a partition with too few racks, due to too few replicas;
    * in a shortage, a repeated line of the write path, compared without numbers and ids. About a partition with too few
      racks a line may be logged once more than the partition has changed, about no partition ``REPEATS`` times.

    Partitions with only too few replicas are not judged: that is Kafka's own behaviour.

    Unknown if the log of a node is missing or can't be read, or if no partition had too few racks. Also unknown if one
    had, but its leaders never logged it: then nothing shows that the logs are complete.
    """
    lines, cluster = log_lines(events), ClusterView.of(events)
    short, partitions = shortages(cluster, settle_s), [*cluster.observations]
    findings = Findings(
        wrong=[*_traced(lines, short), *_transitions(lines), *_repeated(lines, short, partitions)],
        missing=[*_unread(events)],
    )
    rejecting = {line.partition for line in lines if line.text.partition("] ")[2].startswith(BEGINS)}
    findings.missing += [
        f"{partition} had too few racks, and its leader logged no rejection"
        for partition in sorted(short.keys() - rejecting)
    ]
    if short:
        seconds = sum(shortage.to_ns - shortage.from_ns for times in short.values() for shortage in times) / NS
        findings.notes.append(
            f"{len(short)} partitions had too few racks for {seconds:.0f} s in all; {len(lines)} lines"
        )
    else:
        findings.missing.append("no partition was seen to have too few racks")
    return findings.verdict("flood")


def _unread(events: Iterable[Event]) -> Iterator[str]:
    """Describe logs that are missing."""
    expected: set[int] = set()
    read: set[int] = set()
    for event in events:
        if (logging := LoggingNodesDetails.of(event)) is not None:
            expected.update(logging.nodes)
        elif (end := LogEndDetails.of(event)) is not None and event.outcome == "ok":
            read.add(end.node)
        elif end is not None:
            yield f"the log of node {end.node} can't be read: {end.error}"
    if not expected:
        yield "no server logs were collected"
    yield from (f"the log of node {node} was not read" for node in sorted(expected - read))


def _traced(lines: Sequence[LogLine], short: Mapping[PartitionName, Sequence[Shortage]]) -> Iterator[str]:
    """Describe stack traces of rejections."""
    counts: Counter[tuple[int, str, str]] = Counter()
    for line in lines:
        names = [exception for exception in line.traced if RACKS.search(exception)]
        if any(_names(line.text, partition) and _within(line.at_ns, times) for partition, times in short.items()):
            names += [exception for exception in line.traced if REPLICAS.search(exception)]
        if names:
            counts[line.node, names[0], mask_numbers(line.text, short)] += 1
    for (node, name, text), count in sorted(counts.items()):
        yield f"node {node}: {count} stack traces of {name}: {text}"


def _transitions(lines: Sequence[LogLine]) -> Iterator[str]:
    """Describe unnecessary messages of leaders about the start and the end of a shortage."""
    last: dict[tuple[int, PartitionName], str] = {}
    changed: dict[tuple[int, PartitionName], bool] = {}
    settings: defaultdict[int, list[int]] = defaultdict(list)
    for line in lines:
        if _SET.search(line.text):
            settings[line.node].append(line.at_ns)
    for line in lines:
        if _STARTED.match(line.text):
            last = {key: kind for key, kind in last.items() if key[0] != line.node}
        elif follows := _FOLLOWS.search(line.text):
            last.pop((line.node, PartitionName.parse(follows[1] or follows[2])), None)
        message, partition = line.text.partition("] ")[2], line.partition
        if partition is None or not message.startswith((BEGINS, *ENDS)):
            for key in changed:
                if key[0] == line.node and _lets_change(line, key[1]):
                    changed[key] = True
            continue
        key, kind = (line.node, partition), BEGINS if message.startswith(BEGINS) else ENDS[0]
        name = f"node {line.node}: {partition}"
        if last.get(key) == kind:
            yield f"{name}: logged twice, without the opposite in between: {kind}"
        elif not changed.get(key, True) and not any(0 <= at_ns - line.at_ns <= LAG_NS for at_ns in settings[line.node]):
            yield f"{name}: logged again, though nothing has changed since: {kind}"
        last[key], changed[key] = kind, False


def _lets_change(line: LogLine, partition: PartitionName) -> bool:
    """Return whether a leader may begin, or cease, to reject after a line."""
    if _STARTED.match(line.text) or _SET.search(line.text):
        return True
    return _CHANGED.search(line.text) is not None and _names(line.text, partition)


def _repeated(
    lines: Sequence[LogLine], short: Mapping[PartitionName, Sequence[Shortage]], partitions: Sequence[PartitionName]
) -> Iterator[str]:
    """Describe lines that are repeated too often in a shortage."""
    for shortage in _joined([each for times in short.values() for each in times]):
        inside = lines[_at(lines, shortage.from_ns) : _at(lines, shortage.to_ns + 1)]
        changes: Counter[tuple[int, PartitionName]] = Counter()
        for line in inside:
            changes.update(
                (line.node, partition)
                for partition in short
                if (_CHANGED.search(line.text) and _names(line.text, partition)) or _SET.search(line.text)
            )
        counts: Counter[tuple[int, str, str, tuple[PartitionName, ...]]] = Counter()
        for line in inside:
            if line.logger.startswith(WRITERS) and not line.text.startswith(_LOADS):
                named = [partition for partition in partitions if _names(line.text, partition)]
                about = tuple(partition for partition in named if _within(line.at_ns, short.get(partition, ())))
                if about or not named:
                    counts[line.node, line.level, mask_numbers(line.text, partitions), about] += 1
        for (node, level, text, about), count in sorted(counts.items()):
            most = max(1 + changes[node, partition] for partition in about) if about else REPEATS
            if count > most:
                lasted = (shortage.to_ns - shortage.from_ns) / NS
                yield f"node {node}: {count} times in {lasted:.0f} s, {most} at most: {level} {text}"


def _at(lines: Sequence[LogLine], at_ns: int) -> int:
    return bisect_left(lines, at_ns, key=lambda line: line.at_ns)


def _within(at_ns: int, times: Iterable[Shortage]) -> bool:
    return any(shortage.has(at_ns) for shortage in times)


def _joined(all_shortages: Iterable[Shortage]) -> list[Shortage]:
    """Return the intervals in which any partition had too few racks."""
    joined: list[Shortage] = []
    for shortage in sorted(all_shortages, key=lambda shortage: shortage.from_ns):
        if joined and shortage.from_ns <= joined[-1].to_ns:
            joined[-1] = Shortage(joined[-1].from_ns, max(joined[-1].to_ns, shortage.to_ns))
        else:
            joined.append(shortage)
    return joined


def _names(text: str, partition: PartitionName) -> bool:
    """Return whether a line names a partition, rather than another one whose name contains its name."""
    return re.search(rf"(?<![\w.-]){re.escape(str(partition))}(?![\w-]|\.\w)", text) is not None


def mask_numbers(text: str, partitions: Iterable[PartitionName]) -> str:
    """Return a line with numbers and ids masked, as they differ between rejections, but with names of partitions."""
    names = sorted(map(str, partitions), key=len, reverse=True)
    parts = re.split(rf"(?<![\w.-])({'|'.join(map(re.escape, names))})(?![\w-])", text) if names else [text]
    return "".join(part if part in names else _NUMBER.sub("#", part) for part in parts)
