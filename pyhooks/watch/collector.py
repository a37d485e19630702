"""Collector of the watch's data; each query has its own thread, so that no query waits for a dead broker.

Each query keeps its latest response with the time of the request; a response that is too old counts as missing.
``Collector.observe`` combines the available responses and never waits.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import feature_handshake, gate, topics
from pyhooks.kafka.features import level_of
from pyhooks.lab.cluster_control import ProcessState
from pyhooks.lab.mbeans import MetricsSource
from pyhooks.lab.metrics import Poll, Poller
from pyhooks.watch.history_tail import HistoryTail
from pyhooks.watch.observation import (
    BrokerMetrics,
    BrokerObservation,
    FaultObservation,
    Observation,
    PartitionObservation,
    ProduceCounts,
    TopicRequirements,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

QUERY_S = 2.0
# The client's own timeout covers only the network; its result may take a little longer.
GRACE_S = 1.0
CONNECT_S = 1.0
REQUIREMENTS_EVERY_S = 3.0
TOPICS_PER_QUERY = 200
HISTORY_EVERY_S = 0.25
# A response is too old after so many intervals or so many seconds, whichever is longer.
STALE_INTERVALS = 3.0
STALE_S = 3.0

T = TypeVar("T")


@dataclass(frozen=True)
class KnownBroker:
    """Broker known in advance, such as one of a lab.

    Attributes:
        broker: its id.
        rack: its rack.
        process: returns the state of its process; must be fast.
    """

    broker: int
    rack: str
    process: Callable[[], ProcessState | None]


@dataclass(frozen=True)
class WatchedCluster:
    """Cluster to watch.

    Attributes:
        name: display name.
        bootstrap: bootstrap servers.
        members: brokers known in advance.
        sources: sources of metrics.
        history: history file of the run, or None.
    """

    name: str
    bootstrap: str
    members: tuple[KnownBroker, ...] = ()
    sources: tuple[MetricsSource, ...] = ()
    history: Path | None = None


@dataclass(frozen=True)
class PartitionMetadata:
    """Replicas, leader and ISR of a partition according to the metadata."""

    replicas: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]


@dataclass(frozen=True)
class ClusterMetadata:
    """Cluster metadata from one broker.

    Attributes:
        brokers: host and port by id.
        partitions: by topic and number.
    """

    brokers: Mapping[int, tuple[str, int]]
    partitions: Mapping[tuple[str, int], PartitionMetadata]


class LatestResponse(Generic[T]):
    """Latest response to one query.

    Args:
        name: display name of the query.
        stale_s: seconds after which a response is too old.
    """

    def __init__(self, name: str, stale_s: float) -> None:
        self.name = name
        self.stale_s = stale_s
        self._lock = threading.Lock()
        self._value: T | None = None
        self._asked_ns: int | None = None
        self._begun_ns = time.monotonic_ns()
        self._error = ""

    def put(self, value: T, asked_ns: int) -> None:
        """Store a response."""
        with self._lock:
            self._value, self._asked_ns, self._error = value, asked_ns, ""

    def fail(self, error: str) -> None:
        """Store the reason why a query failed; the previous response stays until it is too old."""
        with self._lock:
            self._error = error

    @property
    def requested_ns(self) -> int:
        """Monotonic time of the request for the latest response; 0 if there is none."""
        with self._lock:
            return self._asked_ns or 0

    @property
    def latest(self) -> T | None:
        """Latest response, however old."""
        with self._lock:
            return self._value

    def fresh(self, now_ns: int) -> T | None:
        """Return the latest response, or None if it is too old."""
        with self._lock:
            old = self._asked_ns is None or now_ns - self._asked_ns > self.stale_s * 1e9
            return None if old else self._value

    def problem(self, now_ns: int) -> str:
        """Describe why there is no fresh response; empty if there is one."""
        with self._lock:
            since_s = (now_ns - (self._begun_ns if self._asked_ns is None else self._asked_ns)) / 1e9
            if since_s <= self.stale_s:
                return ""
            return f"{self.name}: no answer for {since_s:.0f} s{f': {self._error}' if self._error else ''}"


@dataclass(frozen=True)
class LeaderOffsets:
    """Response of a leader: high watermarks of the partitions that it leads, and whether it responded at all."""

    offsets: Mapping[tuple[str, int], int]
    responded: bool


@dataclass
class Collector:
    """Collector of observations of a target, within its context.

    Its threads are daemons and it closes no client, so that leaving the context never waits for a dead broker.

    Attributes:
        target: cluster to watch.
        interval_s: interval between two requests of the same query.
    """

    target: WatchedCluster
    interval_s: float = 1.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _offset_responses: dict[int, LatestResponse[LeaderOffsets]] = field(default_factory=dict)
    _polls: dict[int, Poll] = field(default_factory=dict)
    _racks: dict[int, str] = field(default_factory=dict)
    _produced: Mapping[tuple[str, int], ProduceCounts] = field(default_factory=dict)
    _faults: tuple[FaultObservation, ...] = ()
    _history_problem: str = ""
    _settings_problem: str = ""
    _last_responder: int = -1

    def __post_init__(self) -> None:
        """Create the cells."""
        self._stale_s = max(STALE_S, STALE_INTERVALS * self.interval_s)
        self._metadata: LatestResponse[ClusterMetadata] = LatestResponse("metadata", self._stale_s)
        self._requirements: LatestResponse[Mapping[str, TopicRequirements]] = LatestResponse(
            "configs", self._stale_s + REQUIREMENTS_EVERY_S
        )
        self._rack_response: LatestResponse[bool] = LatestResponse("racks", 3 * REQUIREMENTS_EVERY_S)
        self._feature_response: LatestResponse[bool] = LatestResponse("features", 3 * REQUIREMENTS_EVERY_S)
        self._history_response: LatestResponse[bool] = LatestResponse("history", self._stale_s)
        self._poller: Poller | None = None

    def __enter__(self) -> Collector:
        self._admin: AdminClient = topics.admin(self.target.bootstrap)
        self._racks.update({member.broker: member.rack for member in self.target.members})
        self._start_query(self.interval_s, self._metadata, self._query_metadata)
        self._start_query(REQUIREMENTS_EVERY_S, self._rack_response, self._query_racks)
        self._start_query(REQUIREMENTS_EVERY_S, self._requirements, self._query_requirements)
        self._start_query(REQUIREMENTS_EVERY_S, self._feature_response, self._query_features)
        if self.target.history is not None:
            record = HistoryTail(self.target.history)
            self._start_query(
                min(HISTORY_EVERY_S, self.interval_s), self._history_response, lambda: self._follow_history(record)
            )
        if self.target.sources:
            timeout_s = max(QUERY_S, self.interval_s)
            self._poller = Poller(self.target.sources, self._store_poll, self.interval_s, timeout_s)
            self._poller.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._poller is not None:
            self._poller.stop()

    @property
    def metadata_known(self) -> bool:
        """Whether the cluster's metadata was ever seen."""
        return self._metadata.latest is not None

    @property
    def complete(self) -> bool:
        """Whether every query has a response or has timed out."""
        now_ns = time.monotonic_ns()
        metadata = self._metadata.latest
        if metadata is None:
            return False
        leaders = {placed.leader for placed in metadata.partitions.values()} & set(metadata.brokers)
        cells: list[LatestResponse[Any]] = [self._requirements, self._rack_response, self._feature_response]
        cells += [self._offset_responses[one] for one in leaders if one in self._offset_responses]
        polled = all(source.broker in self._polls for source in self.target.sources)
        return (
            polled
            and leaders <= set(self._offset_responses)
            and all(cell.latest is not None or cell.problem(now_ns) for cell in cells)
        )

    def observe(self) -> Observation:
        """Return what is known now; never waits."""
        now_ns, wall_ms = time.monotonic_ns(), time.time_ns() // 1_000_000
        fresh, known = self._metadata.fresh(now_ns), self._metadata.latest
        polls = sorted(self._polls.copy().values(), key=lambda poll: poll.broker)
        metrics = {
            poll.broker: node_metrics(poll)
            for poll in polls
            if not poll.problem and now_ns - poll.mono_ns <= self._stale_s * 1e9
        }
        cells: list[LatestResponse[Any]] = [
            self._metadata,
            self._rack_response,
            self._requirements,
            self._feature_response,
        ]
        cells += [self._history_response] if self.target.history is not None else []
        problems = [cell.problem(now_ns) for cell in cells]
        askers = list(self._offset_responses.items())
        problems += [cell.problem(now_ns) for broker, cell in askers if fresh is not None and broker in fresh.brokers]
        brokers = tuple(self._brokers(fresh, known, now_ns))
        # missing metrics of a process known to be dead are no problem
        dead = {one.broker for one in brokers if one.process == "down"}
        problems += [poll.problem for poll in polls if poll.broker not in dead]
        problems += [self._history_problem, self._settings_problem]
        return Observation(
            mono_ns=now_ns,
            wall_ms=wall_ms,
            cluster=self.target.name,
            brokers=brokers,
            partitions=tuple(self._partitions(fresh, known, now_ns)),
            requirements=self._requirements.fresh(now_ns) or {},
            racks_enforced=self._feature_response.fresh(now_ns),
            metrics=metrics,
            produced=self._produced if self._history_response.latest else None,
            produced_ns=self._history_response.requested_ns,
            faults=self._faults,
            problems=tuple(filter(None, problems)),
        )

    def _brokers(
        self, fresh: ClusterMetadata | None, known: ClusterMetadata | None, now_ns: int
    ) -> Iterable[BrokerObservation]:
        ids = {member.broker for member in self.target.members} | set(self._racks)
        if known is not None:
            ids |= set(known.brokers) | {one for placed in known.partitions.values() for one in placed.replicas}
        processes = {member.broker: member.process for member in self.target.members}
        for broker in sorted(ids):
            cell = self._offset_responses.get(broker)
            ends = cell.fresh(now_ns) if cell is not None else None
            yield BrokerObservation(
                broker=broker,
                rack=self._racks.get(broker),
                listed=broker in fresh.brokers if fresh is not None else None,
                process=processes[broker]() if broker in processes else None,
                # no response for longer than the timeout counts as a negative one
                responds=ends.responded if ends is not None else False if cell and cell.problem(now_ns) else None,
            )

    def _partitions(
        self, fresh: ClusterMetadata | None, known: ClusterMetadata | None, now_ns: int
    ) -> Iterable[PartitionObservation]:
        for (topic, number), placed in known.partitions.items() if known is not None else ():
            if fresh is None:
                yield PartitionObservation(topic, number, placed.replicas, None, None)
                continue
            cell = self._offset_responses.get(placed.leader)
            ends = cell.fresh(now_ns) if cell is not None else None
            offset = ends.offsets.get((topic, number)) if ends is not None else None
            requested_ns = cell.requested_ns if cell is not None else 0
            yield PartitionObservation(topic, number, placed.replicas, placed.leader, placed.isr, offset, requested_ns)

    # -- query threads --------------------------------------------------------------------------------------------

    def _start_query(self, interval_s: float, cell: LatestResponse[T], ask: Callable[[], T]) -> None:
        """Start a thread that repeats a query, at most every ``interval_s`` seconds, and stores its responses."""

        def loop() -> None:
            while True:
                begun_ns = time.monotonic_ns()
                try:
                    cell.put(ask(), begun_ns)
                except RackgateError as error:
                    cell.fail(str(error))
                except Exception as error:  # noqa: BLE001 - becomes part of what is shown, and the next try is due
                    cell.fail(_reason(error))
                if self._stop.wait(max(0.0, interval_s - (time.monotonic_ns() - begun_ns) / 1e9)):
                    return

        threading.Thread(target=loop, name=f"watch-{cell.name}", daemon=True).start()

    def _query_metadata(self) -> ClusterMetadata:
        found = self._admin.list_topics(timeout=QUERY_S)
        brokers = {int(one.id): (str(one.host), int(one.port)) for one in found.brokers.values()}
        partitions = {
            (str(topic.topic), int(one.id)): PartitionMetadata(
                tuple(map(int, one.replicas)), int(one.leader), tuple(map(int, one.isrs))
            )
            for topic in found.topics.values()
            for one in topic.partitions.values()
        }
        for broker in brokers:
            if broker not in self._offset_responses:
                cell = self._offset_responses[broker] = LatestResponse(f"broker {broker}", self._stale_s)
                self._start_query(self.interval_s, cell, lambda broker=broker: self._query_offsets(broker))  # type: ignore[misc]
        return ClusterMetadata(brokers, partitions)

    def _query_racks(self) -> bool:
        cluster = self._admin.describe_cluster(request_timeout=QUERY_S).result(timeout=QUERY_S + GRACE_S)
        # a dead broker is not listed any more, but its rack stays known
        self._racks.update({int(node.id): str(node.rack or "") for node in cluster.nodes})
        return True

    def _query_requirements(self) -> Mapping[str, TopicRequirements]:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        metadata = self._metadata.latest
        if metadata is None:
            raise RackgateError("topics are not known yet")
        names = sorted({topic for topic, _ in metadata.partitions})
        requirements: dict[str, TopicRequirements] = {}
        untold: list[str] = []
        for start in range(0, len(names), TOPICS_PER_QUERY):
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in names[start : start + TOPICS_PER_QUERY]]
            deadline = time.monotonic() + QUERY_S + GRACE_S
            for resource, future in self._admin.describe_configs(resources, request_timeout=QUERY_S).items():
                # an error of one topic must not affect the others
                try:
                    requirements[resource.name] = _parse_requirements(
                        future.result(timeout=max(0.0, deadline - time.monotonic()))
                    )
                except (KafkaException, TimeoutError, ValueError) as error:
                    untold.append(f"settings of topic {resource.name}: {_reason(error)}")
        if untold and not requirements:
            raise RackgateError(untold[0])
        more = f" (and {len(untold) - 1} topics more)" if len(untold) > 1 else ""
        self._settings_problem = f"{untold[0]}{more}" if untold else ""
        return requirements

    def _query_offsets(self, broker: int) -> LeaderOffsets:
        """Return the high watermarks of partitions that ``broker`` leads; without any, whether it is reachable."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        metadata = self._metadata.latest
        led = [key for key, placed in metadata.partitions.items() if placed.leader == broker] if metadata else []
        offsets: dict[tuple[str, int], int] = {}
        if led:
            wanted = {TopicPartition(*key): OffsetSpec.latest() for key in led}
            deadline = time.monotonic() + QUERY_S + GRACE_S
            for place, future in self._admin.list_offsets(wanted, request_timeout=QUERY_S).items():
                try:
                    found = future.result(timeout=max(0.0, deadline - time.monotonic()))
                except (KafkaException, TimeoutError):
                    # unknown for now; a new leader does not respond for the partition immediately
                    continue
                offsets[(place.topic, place.partition)] = int(found.offset)
        if offsets:
            return LeaderOffsets(offsets, responded=True)
        host, port = metadata.brokers.get(broker, ("", 0)) if metadata else ("", 0)
        return LeaderOffsets({}, responded=_connects(host, port))

    def _query_features(self) -> bool:
        """Query brokers one after another until one responds, starting with the one that did last time."""
        metadata = self._metadata.latest
        if metadata is None:
            raise RackgateError("brokers are not known yet")
        problem = "the metadata lists no broker"
        for broker in sorted(metadata.brokers, key=lambda one: (one != self._last_responder, one)):
            if self._stop.is_set():
                break
            try:
                levels = feature_handshake.finalized(*metadata.brokers[broker], CONNECT_S)
            except RackgateError as error:
                problem = str(error)
                continue
            self._last_responder = broker
            return level_of(levels) >= 1
        raise RackgateError(problem)

    def _follow_history(self, record: HistoryTail) -> bool:
        record.step()
        while record.behind_bytes and not self._stop.is_set():
            record.step()
        self._faults, self._produced, self._history_problem = record.faults, record.produced, record.problem
        return True

    def _store_poll(self, poll: Poll) -> None:
        # a skipped poll has no new information about the node
        if poll.asked:
            self._polls[poll.broker] = poll


def node_metrics(poll: Poll) -> BrokerMetrics:
    """Group the metrics of a poll by node, topic and partition."""
    values: dict[str, float] = {}
    of_topics: dict[tuple[str, str], float] = {}
    partitions: dict[tuple[str, int], dict[str, float]] = {}
    for one in poll.metrics:
        if one.value is None:
            continue
        if one.topic is None:
            values[one.name] = one.value
        elif one.partition is None:
            of_topics[one.topic, one.name] = one.value
        else:
            partitions.setdefault((one.topic, one.partition), {})[one.name] = one.value
    return BrokerMetrics(poll.mono_ns, values, of_topics, partitions)


def _parse_requirements(values: Mapping[str, Any]) -> TopicRequirements:
    """Return the requirements of a topic from its settings.

    Raises:
        ValueError: ``min.insync.replicas`` is missing, or a value is not a valid number.
    """
    replicas, racks = values.get(gate.MIN_INSYNC_REPLICAS), values.get(gate.MIN_INSYNC_RACKS)
    if replicas is None:
        raise ValueError(f"no {gate.MIN_INSYNC_REPLICAS}")
    return TopicRequirements(
        min_replicas=_minimum(gate.MIN_INSYNC_REPLICAS, replicas.value),
        min_racks=None if racks is None or racks.value is None else _minimum(gate.MIN_INSYNC_RACKS, racks.value),
    )


def _minimum(key: str, text: object) -> int:
    number = topics.minimum(text)
    if number is None:
        raise ValueError(f"{key}={text!r} is no number from 1 to {topics.MINIMUM_MAX}")
    return number


def _connects(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=CONNECT_S):
            return True
    except OSError:
        return False


def _reason(error: Exception) -> str:
    """Return the first line of an error's message; for Kafka's errors, of their own description."""
    reason = error.args[0] if error.args else error
    text = reason.str() if hasattr(reason, "str") else str(reason)
    return (text.splitlines() or [""])[0] or type(error).__name__
