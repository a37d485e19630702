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
from pyhooks.kafka import features, gate, topics
from pyhooks.kafka.cluster_metadata import Partition
from pyhooks.kafka.features import level_of
from pyhooks.lab.cluster_control import ProcessState
from pyhooks.lab.mbeans import MetricsSource
from pyhooks.lab.metrics import Poll, Poller, by_subject
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
    """Broker known in advance, such as one of a lab."""

    broker: int
    rack: str
    process: Callable[[], ProcessState | None]  # returns the state of its process; must be fast


@dataclass(frozen=True)
class WatchedCluster:
    """Cluster to watch."""

    name: str  # display name
    bootstrap: str  # bootstrap servers
    members: tuple[KnownBroker, ...] = ()  # brokers known in advance
    sources: tuple[MetricsSource, ...] = ()  # sources of metrics
    history: Path | None = None  # history file of the run, or None


@dataclass(frozen=True)
class ClusterMetadata:
    """Cluster metadata from one broker."""

    brokers: Mapping[int, tuple[str, int]]  # host and port by id
    partitions: Mapping[tuple[str, int], Partition]  # by topic and number


class LatestResponse(Generic[T]):
    """Latest response to one query.

    Args:
        name: display name of the query.
        stale_s: seconds after which a response is too old.
    """

    def __init__(self, name: str, stale_s: float) -> None:
        self.name = name
        self.stale_s = stale_s
        # value and time of its request, replaced in one assignment because threads read it
        self._response: tuple[T, int] | None = None
        self._begun_ns = time.monotonic_ns()
        self._error = ""

    def put(self, value: T, requested_ns: int) -> None:
        """Store a response."""
        self._error, self._response = "", (value, requested_ns)

    def fail(self, error: str) -> None:
        """Store the reason why a query failed; the previous response stays until it is too old."""
        self._error = error

    @property
    def requested_ns(self) -> int:
        """Monotonic time of the request for the latest response; 0 if there is none."""
        return self._response[1] if self._response is not None else 0

    @property
    def latest(self) -> T | None:
        """Latest response, however old."""
        return self._response[0] if self._response is not None else None

    def fresh(self, now_ns: int) -> T | None:
        """Return the latest response, or None if it is too old."""
        response = self._response
        return None if response is None or now_ns - response[1] > self.stale_s * 1e9 else response[0]

    def problem(self, now_ns: int) -> str:
        """Describe why there is no fresh response; empty if there is one."""
        since_s = (now_ns - (self.requested_ns or self._begun_ns)) / 1e9
        if since_s <= self.stale_s:
            return ""
        return f"{self.name}: no response for {since_s:.0f} s{f': {self._error}' if self._error else ''}"


@dataclass(frozen=True)
class LeaderOffsets:
    """Response of a leader: high watermarks of the partitions that it leads, and whether it responded at all."""

    offsets: Mapping[tuple[str, int], int]
    responded: bool


@dataclass
class Collector:
    """Collector of observations of a target, within its context.

    Its threads are daemons and it closes no client, so that leaving the context never waits for a dead broker.
    """

    target: WatchedCluster  # cluster to watch
    interval_s: float = 1.0  # interval between two requests of the same query
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
        """Create the stores of the latest responses."""
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
            history = HistoryTail(self.target.history)
            self._start_query(
                min(HISTORY_EVERY_S, self.interval_s), self._history_response, lambda: self._follow_history(history)
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
        leaders = {partition.leader for partition in metadata.partitions.values()} & set(metadata.brokers)
        responses: list[LatestResponse[Any]] = [self._requirements, self._rack_response, self._feature_response]
        responses += [self._offset_responses[leader] for leader in leaders if leader in self._offset_responses]
        polled = all(source.broker in self._polls for source in self.target.sources)
        return (
            polled
            and leaders <= set(self._offset_responses)
            and all(response.latest is not None or response.problem(now_ns) for response in responses)
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
        responses: list[LatestResponse[Any]] = [
            self._metadata,
            self._rack_response,
            self._requirements,
            self._feature_response,
        ]
        responses += [self._history_response] if self.target.history is not None else []
        problems = [response.problem(now_ns) for response in responses]
        offset_responses = list(self._offset_responses.items())
        problems += [
            response.problem(now_ns)
            for broker, response in offset_responses
            if fresh is not None and broker in fresh.brokers
        ]
        brokers = tuple(self._brokers(fresh, known, now_ns))
        # missing metrics of a process known to be dead are no problem
        dead = {broker.broker for broker in brokers if broker.process == "down"}
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
            ids |= set(known.brokers) | {
                replica for partition in known.partitions.values() for replica in partition.replicas
            }
        processes = {member.broker: member.process for member in self.target.members}
        for broker in sorted(ids):
            response = self._offset_responses.get(broker)
            leader_offsets = response.fresh(now_ns) if response is not None else None
            yield BrokerObservation(
                broker=broker,
                rack=self._racks.get(broker),
                listed=broker in fresh.brokers if fresh is not None else None,
                process=processes[broker]() if broker in processes else None,
                # no response for longer than the timeout counts as a negative one
                responds=leader_offsets.responded
                if leader_offsets is not None
                else False
                if response and response.problem(now_ns)
                else None,
            )

    def _partitions(
        self, fresh: ClusterMetadata | None, known: ClusterMetadata | None, now_ns: int
    ) -> Iterable[PartitionObservation]:
        for (topic, number), partition in known.partitions.items() if known is not None else ():
            if fresh is None:
                yield PartitionObservation(topic, number, partition.replicas, None, None)
                continue
            response = self._offset_responses.get(partition.leader)
            leader_offsets = response.fresh(now_ns) if response is not None else None
            offset = leader_offsets.offsets.get((topic, number)) if leader_offsets is not None else None
            requested_ns = response.requested_ns if response is not None else 0
            yield PartitionObservation(
                topic, number, partition.replicas, partition.leader, partition.isr, offset, requested_ns
            )

    # -- query threads --------------------------------------------------------------------------------------------

    def _start_query(self, interval_s: float, response: LatestResponse[T], query: Callable[[], T]) -> None:
        """Start a thread that repeats a query, at most every ``interval_s`` seconds, and stores its responses."""

        def loop() -> None:
            while True:
                begun_ns = time.monotonic_ns()
                try:
                    response.put(query(), begun_ns)
                except RackgateError as error:
                    response.fail(str(error))
                except Exception as error:  # noqa: BLE001 - shown to the user; the query is repeated
                    response.fail(_reason(error))
                if self._stop.wait(max(0.0, interval_s - (time.monotonic_ns() - begun_ns) / 1e9)):
                    return

        threading.Thread(target=loop, name=f"watch-{response.name}", daemon=True).start()

    def _query_metadata(self) -> ClusterMetadata:
        metadata = self._admin.list_topics(timeout=QUERY_S)
        brokers = {int(broker.id): (str(broker.host), int(broker.port)) for broker in metadata.brokers.values()}
        partitions = {
            (str(topic.topic), int(partition.id)): Partition(
                int(partition.leader), tuple(map(int, partition.isrs)), tuple(map(int, partition.replicas))
            )
            for topic in metadata.topics.values()
            for partition in topic.partitions.values()
        }
        for broker in brokers:
            if broker not in self._offset_responses:
                response = self._offset_responses[broker] = LatestResponse(f"broker {broker}", self._stale_s)
                self._start_query(self.interval_s, response, lambda broker=broker: self._query_offsets(broker))  # type: ignore[misc]
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
        errors: list[str] = []
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
                    errors.append(f"settings of topic {resource.name}: {_reason(error)}")
        if errors and not requirements:
            raise RackgateError(errors[0])
        more = f" (and {len(errors) - 1} topics more)" if len(errors) > 1 else ""
        self._settings_problem = f"{errors[0]}{more}" if errors else ""
        return requirements

    def _query_offsets(self, broker: int) -> LeaderOffsets:
        """Return the high watermarks of partitions that ``broker`` leads; without any, whether it is reachable."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        metadata = self._metadata.latest
        led = [key for key, partition in metadata.partitions.items() if partition.leader == broker] if metadata else []
        offsets: dict[tuple[str, int], int] = {}
        if led:
            wanted = {TopicPartition(*key): OffsetSpec.latest() for key in led}
            deadline = time.monotonic() + QUERY_S + GRACE_S
            for partition, future in self._admin.list_offsets(wanted, request_timeout=QUERY_S).items():
                try:
                    response = future.result(timeout=max(0.0, deadline - time.monotonic()))
                except (KafkaException, TimeoutError):
                    # unknown for now; a new leader does not respond for the partition immediately
                    continue
                offsets[partition.topic, partition.partition] = int(response.offset)
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
        for broker in sorted(metadata.brokers, key=lambda broker: (broker != self._last_responder, broker)):
            if self._stop.is_set():
                break
            try:
                levels = features.finalized(*metadata.brokers[broker], CONNECT_S)
            except RackgateError as error:
                problem = str(error)
                continue
            self._last_responder = broker
            return level_of(levels) >= 1
        raise RackgateError(problem)

    def _follow_history(self, history: HistoryTail) -> bool:
        history.step()
        while history.behind_bytes and not self._stop.is_set():
            history.step()
        self._faults, self._produced, self._history_problem = history.faults, history.produced, history.problem
        return True

    def _store_poll(self, poll: Poll) -> None:
        # a skipped poll has no new information about the node
        if poll.asked:
            self._polls[poll.broker] = poll


def node_metrics(poll: Poll) -> BrokerMetrics:
    """Group the metrics of a poll by node, topic and partition."""
    known = ((metric, metric.value) for metric in poll.metrics if metric.value is not None)
    return BrokerMetrics(poll.mono_ns, *by_subject(known))


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
