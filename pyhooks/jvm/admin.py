"""Kafka's Java admin client in this process, with typed results and bounded requests."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import jpype

from pyhooks.jvm.client import Client, java_errors, java_properties, start_jvm
from pyhooks.jvm.java_exception import JavaError

UNKNOWN_TOPIC = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"
# Raised when waiting for a future ends here, before the client's own timeout.
GIVEN_UP = "java.util.concurrent.TimeoutException"
UNSUPPORTED = "org.apache.kafka.common.errors.UnsupportedVersionException"
# With one of four brokers paused, all five chose it first in 2 of 100 runs, and went on to another one later.
_CLIENTS = 5


@dataclass(frozen=True)
class PartitionState:
    """State of a partition in the cluster's metadata.

    Attributes:
        leader: broker id, or -1.
        replicas: broker ids in the order of the assignment; ``isr`` and ``elr`` are sorted.
        elr: eligible leader replicas; empty if the cluster does not report them.
    """

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finalized:
    """Finalized level of a feature, 0 if there is none, as reported by one broker.

    Attributes:
        epoch: finalized features epoch: the metadata offset up to which the responding broker has read.
    """

    level: int
    epoch: int


@dataclass(frozen=True)
class ClusterNode:
    """A registered broker.

    Attributes:
        host: host of the listener that this client uses.
        rack: value of ``broker.rack``; empty if it is unset or blank.
        fenced: whether the controller has fenced it.
    """

    broker_id: int
    host: str
    port: int
    rack: str
    fenced: bool


@dataclass(frozen=True)
class TopicState:
    """State of a topic in the cluster's metadata, and of its partitions by number."""

    internal: bool
    partitions: Mapping[int, PartitionState]


@dataclass(frozen=True)
class Reassignment:
    """Broker ids that an ongoing reassignment adds to a partition's replicas and removes from them."""

    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True)
class Voter:
    """Voting controller as the active controller reports it.

    Attributes:
        lag_ms: how long ago it last had the whole metadata log, in milliseconds; None if that is unknown.
    """

    node_id: int
    lag_ms: int | None


@dataclass(frozen=True)
class OffsetAndEpoch:
    """Offset of a partition, as its leader reports it; the leader epoch is -1 if it was not reported."""

    offset: int
    epoch: int


class Admin(Client):
    """org.apache.kafka.clients.admin.Admin of the built distribution.

    Args:
        bootstrap: addresses of brokers, or of controllers with ``to_controllers`` (Kafka 3.7 and later).
        timeout_s: bound for each request, in seconds.
        config: further properties of the client, such as security settings; they do not override the bound.
        close_timeout_s: bound for requests that are pending when the client is closed, in seconds.

    Attributes:
        deadline: value of ``time.monotonic()`` after which no response is awaited; None for no deadline.

    Raises:
        JavaError: the configuration is rejected.
        RackgateError: no distribution, or no Java.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = 15.0,
        config: Mapping[str, str] | None = None,
        close_timeout_s: float = 2.0,
        to_controllers: bool = False,
    ) -> None:
        bounds = {
            "default.api.timeout.ms": str(round(timeout_s * 1000)),
            # Below the bound, so that another broker can be tried if the first one hangs. A change that is
            # sent twice may be rejected the second time.
            "request.timeout.ms": str(round(min(5.0, timeout_s / 3) * 1000)),
        }
        bootstrap_key = "bootstrap.controllers" if to_controllers else "bootstrap.servers"
        settings = {**(config or {}), **bounds, bootstrap_key: bootstrap}
        start_jvm()
        with java_errors():
            java = jpype.JClass("org.apache.kafka.clients.admin.Admin").create(java_properties(settings))
        super().__init__(java, close_timeout_s)
        self._timeout_s = timeout_s
        self.deadline: float | None = None

    def create_topic(self, topic: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str]) -> None:
        """Create a topic; ``assignment`` has the broker ids of each partition, the preferred leader first.

        Raises:
            JavaError: rejected, or no response in time.
        """
        placed = jpype.java.util.HashMap({jpype.JInt(at): _broker_list(ids) for at, ids in enumerate(assignment)})
        new = jpype.JClass("org.apache.kafka.clients.admin.NewTopic")(topic, placed).configs(dict(config))
        self._get(self._java.createTopics(jpype.java.util.List.of(new)).all())

    def partition(self, topic: str, partition: int = 0) -> PartitionState:
        """Return the state of a partition.

        Raises:
            JavaError: no such topic, or no response in time.
        """
        result = self._get(self._java.describeTopics(jpype.java.util.List.of(topic)).allTopicNames())
        return _partition_state(result.get(topic).partitions().get(partition), _NodeIds())

    def cluster(self) -> tuple[str, tuple[ClusterNode, ...]]:
        """Return the cluster's id and its brokers, sorted by id; fenced ones too if supported (Kafka 4.0 and later).

        Raises:
            JavaError: no response in time.
        """
        options = jpype.JClass("org.apache.kafka.clients.admin.DescribeClusterOptions")
        result = self._java.describeCluster(options().includeFencedBrokers(True))
        try:
            nodes = self._get(result.nodes())
        except JavaError as error:
            if error.java_class != UNSUPPORTED:
                raise
            result = self._java.describeCluster(options())
            nodes = self._get(result.nodes())
        return str(self._get(result.clusterId())), tuple(sorted(map(_cluster_node, nodes), key=lambda n: n.broker_id))

    def controllers(self) -> tuple[ClusterNode, ...]:
        """Return the registered controllers, sorted by id; the client must be one ``to_controllers``.

        Raises:
            JavaError: no response in time.
        """
        nodes = self._get(self._java.describeCluster().nodes())
        return tuple(sorted(map(_cluster_node, nodes), key=lambda node: node.broker_id))

    def topics(self, only: Collection[str] | None = None) -> dict[str, TopicState | JavaError]:
        """Return all topics including internal ones, sorted by name; for each its state, or the error of describing it.

        Topics deleted in the meantime, and names in ``only`` that do not exist, are omitted. A topic that one broker
        does not know, but that is still listed in a second request, keeps its error: that broker's metadata may lag.

        Args:
            only: names of topics to describe instead of all.

        Raises:
            JavaError: no response in time, or topics cannot be listed.
        """
        names = self._topic_names() if only is None else list(only)
        result = self._java.describeTopics(jpype.java.util.ArrayList(names)).topicNameValues()
        states: dict[str, TopicState | JavaError] = {}
        ids = _NodeIds()
        for entry in result.entrySet():
            try:
                states[str(entry.getKey())] = topic_state(self._get(entry.getValue()), ids)
            except JavaError as error:
                if error.java_class in {TIMEOUT, GIVEN_UP}:
                    raise
                states[str(entry.getKey())] = error
        missing = {
            name for name, state in states.items() if isinstance(state, JavaError) and state.java_class == UNKNOWN_TOPIC
        }
        if missing:
            missing -= set(map(str, self._topic_names()))
        return {name: state for name, state in sorted(states.items()) if name not in missing}

    def _topic_names(self) -> Any:
        options = jpype.JClass("org.apache.kafka.clients.admin.ListTopicsOptions")
        return self._get(self._java.listTopics(options().listInternal(True)).names())

    def offsets(
        self, partitions: Collection[tuple[str, int]], *, latest: bool
    ) -> dict[tuple[str, int], OffsetAndEpoch | JavaError]:
        """Return an offset of each partition (topic and number), or the error of querying it.

        Args:
            partitions: topics and partition numbers.
            latest: the high watermark, with the leader's epoch; otherwise the start of the log.
        """
        partition_class = jpype.JClass("org.apache.kafka.common.TopicPartition")
        spec = jpype.JClass("org.apache.kafka.clients.admin.OffsetSpec")
        offset = spec.latest() if latest else spec.earliest()
        result = self._java.listOffsets({partition_class(*place): offset for place in partitions})
        results: dict[tuple[str, int], OffsetAndEpoch | JavaError] = {}
        for topic, number in partitions:
            try:
                info = self._get(result.partitionResult(partition_class(topic, number)))
            except JavaError as error:
                results[topic, number] = error
            else:
                epoch = info.leaderEpoch()
                results[topic, number] = OffsetAndEpoch(
                    int(info.offset()), int(epoch.get()) if epoch.isPresent() else -1
                )
        return results

    def reassignments(self) -> dict[tuple[str, int], Reassignment]:
        """Return the ongoing reassignments, by topic and partition.

        Raises:
            JavaError: no response in time, or not authorized.
        """
        result = self._get(self._java.listPartitionReassignments().reassignments())
        return {
            (str(entry.getKey().topic()), int(entry.getKey().partition())): Reassignment(
                adding=tuple(int(broker) for broker in entry.getValue().addingReplicas()),
                removing=tuple(int(broker) for broker in entry.getValue().removingReplicas()),
            )
            for entry in result.entrySet()
        }

    def reassign(self, moves: Mapping[str, Sequence[int]]) -> None:
        """Reassign partition 0 of topics to broker ids, the preferred leader first, without waiting for completion.

        Kafka's own tool rejects assignments with unavailable brokers, even if they keep their replicas; the controller
        accepts them.

        Raises:
            JavaError: rejected, or no response in time.
        """
        partition = jpype.JClass("org.apache.kafka.common.TopicPartition")
        placed = jpype.JClass("org.apache.kafka.clients.admin.NewPartitionReassignment")
        optional = jpype.java.util.Optional
        wanted = {partition(topic, 0): optional.of(placed(_broker_list(ids))) for topic, ids in moves.items()}
        self._get(self._java.alterPartitionReassignments(wanted).all())

    def in_sync(self, topic: str, replicas: Sequence[int], partition: int = 0) -> PartitionState | None:
        """Return the partition's state if exactly these replicas are in sync in one broker's metadata, else None.

        It also returns None if the broker does not know the topic, because its metadata can lag behind the controller
        that has just created it, or does not respond in time. The next call may query another broker with older
        metadata, so callers that waited for this state must continue with the returned one.

        Raises:
            JavaError: any other error.
        """
        try:
            state = self.partition(topic, partition)
        except JavaError as error:
            if error.java_class in {UNKNOWN_TOPIC, TIMEOUT}:
                return None
            raise
        return state if state.isr == tuple(sorted(replicas)) else None

    def voters(self) -> tuple[Voter, ...] | None:
        """Return the voting controllers, sorted by id; None if there is no KRaft quorum.

        Raises:
            JavaError: no response in time, or not authorized.
        """
        try:
            quorum = self._get(self._java.describeMetadataQuorum().quorumInfo())
        except JavaError as error:
            if error.java_class != UNSUPPORTED:
                raise
            return None
        caught_up_ms = {
            int(voter.replicaId()): int(voter.lastCaughtUpTimestamp().orElse(-1)) for voter in quorum.voters()
        }
        # by the clock of the active controller, for which it is the present
        now_ms = caught_up_ms.get(int(quorum.leaderId()), -1)
        return tuple(
            Voter(voter, None if now_ms < 0 else now_ms - max(0, at_ms))
            for voter, at_ms in sorted(caught_up_ms.items())
        )

    def finalized(self, feature: str) -> Finalized:
        """Return the finalized level of a feature.

        Raises:
            JavaError: no response in time.
        """
        metadata = self._get(self._java.describeFeatures().featureMetadata())
        levels = metadata.finalizedFeatures().get(feature)
        return Finalized(
            level=0 if levels is None else int(levels.maxVersionLevel()),
            epoch=int(metadata.finalizedFeaturesEpoch().get()),
        )

    def upgrade_features(self, features: Collection[str], level: int = 1) -> None:
        """Upgrade features to a level.

        Raises:
            JavaError: rejected, or no response in time.
        """
        package = "org.apache.kafka.clients.admin"
        update = jpype.JClass(f"{package}.FeatureUpdate")
        upgrade = update(jpype.JShort(level), update.UpgradeType.UPGRADE)
        options = jpype.JClass(f"{package}.UpdateFeaturesOptions")()
        self._get(self._java.updateFeatures(dict.fromkeys(features, upgrade), options).all())

    def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one configuration of a topic, or remove it if ``value`` is None, and keep the others.

        Raises:
            JavaError: rejected, or no response in time.
        """
        package = "org.apache.kafka.clients.admin"
        resource_class = jpype.JClass("org.apache.kafka.common.config.ConfigResource")
        resource = resource_class(resource_class.Type.TOPIC, topic)
        operation_class = jpype.JClass(f"{package}.AlterConfigOp")
        entry = jpype.JClass(f"{package}.ConfigEntry")(name, value)
        kind = operation_class.OpType.DELETE if value is None else operation_class.OpType.SET
        operation = operation_class(entry, kind)
        change = jpype.java.util.Map.of(resource, jpype.java.util.List.of(operation))
        self._get(self._java.incrementalAlterConfigs(change).all())

    def log_bytes(self, topic: str, broker: int, partition: int = 0) -> int:
        """Return the size of a replica's log on disk; it grows with every appended record, acknowledged or not.

        Raises:
            JavaError: the broker did not respond in time.
            LookupError: the broker has no such replica.
        """
        wanted = jpype.JClass("org.apache.kafka.common.TopicPartition")(topic, partition)
        result = self._get(self._java.describeLogDirs(jpype.java.util.List.of(jpype.JInt(broker))).allDescriptions())
        for directory in result.get(jpype.JInt(broker)).values():
            replica = directory.replicaInfos().get(wanted)
            if replica is not None:
                return int(replica.size())
        raise LookupError(f"broker {broker} has no replica of {topic}-{partition}")

    @classmethod
    @contextmanager
    def responsive(
        cls, bootstrap: str, *, timeout_s: float, config: Mapping[str, str], to_controllers: bool = False
    ) -> Iterator[Admin]:
        """Yield the first of several clients that gets a response from any node of ``bootstrap``.

        A client keeps to a broker that accepts its connection but does not respond for up to three request timeouts,
        and can then choose the same broker again (with one of four brokers paused, 4 of 60 clients spent half of their
        timeout on it). The yielded client has a connection to a responsive broker, which Kafka prefers to a new one.

        Raises:
            JavaError: the configuration is rejected, or no broker responded in time.
            RackgateError: no distribution, or no Java.
        """
        with ExitStack() as stack:
            clients = [
                stack.enter_context(
                    cls(
                        bootstrap,
                        timeout_s=timeout_s,
                        config=config,
                        close_timeout_s=0.0,
                        to_controllers=to_controllers,
                    )
                )
                for _ in range(_CLIENTS)
            ]
            futures_class = jpype.JClass("java.util.concurrent.CompletableFuture")
            responses = [
                client._java.describeCluster().clusterId().toCompletionStage().toCompletableFuture()
                for client in clients
            ]
            clients[0]._get(futures_class.anyOf(responses))
            yield next(client for client, response in zip(clients, responses, strict=True) if response.isDone())

    def _get(self, future: Any) -> Any:
        wait_s = self._timeout_s + 1
        if self.deadline is not None:
            wait_s = max(0.0, min(wait_s, self.deadline - time.monotonic()))
        try:
            return future.get(round(wait_s * 1000), jpype.java.util.concurrent.TimeUnit.MILLISECONDS)
        except jpype.JException as error:
            raise JavaError.of(error) from error


class _NodeIds:
    """Cache of the broker ids of Java node lists, because lists repeat often in a large cluster."""

    def __init__(self) -> None:
        self._positions = jpype.java.util.HashMap()
        self._ids: list[tuple[int, ...]] = [()]

    def of(self, nodes: Any) -> tuple[int, ...]:
        """Return the ids in list order; none for null."""
        if nodes is None:
            return ()
        position = self._positions.get(nodes)
        if position is None:
            position = len(self._ids)
            self._positions.put(nodes, jpype.JInt(position))
            self._ids.append(tuple(int(node.id()) for node in nodes))
        return self._ids[int(position)]

    def sorted(self, nodes: Any) -> tuple[int, ...]:
        """Return the ids in ascending order; none for null."""
        return tuple(sorted(self.of(nodes)))


def topic_state(described: Any, ids: _NodeIds) -> TopicState:
    """Convert an org.apache.kafka.clients.admin.TopicDescription."""
    return TopicState(
        internal=bool(described.isInternal()),
        partitions={int(info.partition()): _partition_state(info, ids) for info in described.partitions()},
    )


def _partition_state(info: Any, ids: _NodeIds) -> PartitionState:
    leader = info.leader()
    return PartitionState(
        leader=-1 if leader is None else int(leader.id()),
        replicas=ids.of(info.replicas()),
        isr=ids.sorted(info.isr()),
        elr=ids.sorted(info.elr()),
    )


def _cluster_node(node: Any) -> ClusterNode:
    rack = node.rack()
    return ClusterNode(
        broker_id=int(node.id()),
        host=str(node.host()),
        port=int(node.port()),
        rack="" if rack is None or not str(rack).strip() else str(rack),
        fenced=bool(node.isFenced()),
    )


def _broker_list(ids: Sequence[int]) -> Any:
    return jpype.java.util.ArrayList(list(map(jpype.JInt, ids)))
