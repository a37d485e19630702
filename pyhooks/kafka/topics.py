"""Topics of a run, with manual replica placement: create, observe, configure and elect leaders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka.cluster_metadata import MetadataClient

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

MINIMUM_MAX = 2**31 - 1
_MINIMUM = re.compile("[1-9][0-9]{0,9}", re.ASCII)
REQUEST_S = 10.0
SILENCE_MS = 2000
READY_S = 60.0
# The queried broker may be unavailable because of a fault: a short timeout and a retry are better than a long wait.
QUERY_S = 3.0


# topic and number of a partition
Partition = tuple[str, int]


class RejectedError(RackgateError):
    """The cluster rejected a change and applied none of it."""


@dataclass(frozen=True)
class TopicSpec:
    """Topic to be created."""

    name: str
    replicas: tuple[int, ...]  # broker ids; the first is the preferred leader of partition 0
    config: Mapping[str, str]
    partitions: int = 1

    @property
    def assignment(self) -> dict[Partition, tuple[int, ...]]:
        """Replicas of each partition: the same brokers, each in turn as the preferred leader."""
        turns = [(number, number % len(self.replicas)) for number in range(self.partitions)]
        return {(self.name, number): self.replicas[at:] + self.replicas[:at] for number, at in turns}


@dataclass(frozen=True)
class LeaderAndIsr:
    """Leader and ISR of a partition, as reported by the cluster."""

    leader: int  # broker id, or -1
    isr: tuple[int, ...]  # broker ids, sorted


def minimum(value: object) -> int | None:
    """Parse a value of ``min.insync.replicas`` or ``min.insync.racks``; return None if Kafka would reject it."""
    if not isinstance(value, str) or not _MINIMUM.fullmatch(value) or int(value) > MINIMUM_MAX:
        return None
    return int(value)


def admin(bootstrap: str, config: Mapping[str, str] | None = None) -> AdminClient:
    """Create an admin client that logs little and gives up soon on unavailable brokers.

    A connection across a network partition still appears healthy. Without a short ``socket.timeout.ms`` the client
    would query the same unreachable broker repeatedly.
    """
    from confluent_kafka.admin import AdminClient

    return AdminClient(
        {
            **(config or {}),
            "bootstrap.servers": bootstrap,
            "client.id": "rackgate-admin",
            "log_level": 2,
            "socket.timeout.ms": SILENCE_MS,
            "socket.connection.setup.timeout.ms": 2000,
            "socket.max.fails": 1,
        }
    )


def unfenced(client: AdminClient, timeout_s: float = QUERY_S) -> frozenset[int]:
    """Return the ids of unfenced brokers: those that more than half of the responding brokers list.

    A single response may be outdated: a broker that was partitioned lists itself until it learns that it was fenced.

    Args:
        client: admin client, used to look up broker addresses.
        timeout_s: timeout in seconds of that lookup, and again of the queries to all brokers. If none responds, the
            result is empty.
    """
    from confluent_kafka import KafkaException

    try:
        listed = client.list_topics(timeout=timeout_s).brokers.values()
    except KafkaException:
        return frozenset()

    clients = [MetadataClient(f"{response.host}:{response.port}", each_s=timeout_s) for response in listed]
    with ThreadPoolExecutor(max(1, len(clients))) as pool:
        responses = [
            response
            for response in pool.map(lambda each: each.query_or_none([], timeout_s), clients)
            if response is not None
        ]
    votes = Counter(broker for response in responses for broker in response.racks)
    return frozenset(broker for broker, count in votes.items() if 2 * count > len(responses))


def create(client: AdminClient, specs: Sequence[TopicSpec]) -> None:
    """Create topics and wait until each partition is led by its first replica with all replicas in sync.

    Raises:
        RackgateError: a topic already exists, the cluster rejects it, or it is not ready in time.
    """
    from confluent_kafka.admin import NewTopic

    wanted = [
        NewTopic(
            spec.name,
            num_partitions=spec.partitions,
            replica_assignment=[list(replicas) for replicas in spec.assignment.values()],
            config=dict(spec.config),
        )
        for spec in specs
    ]
    made = client.create_topics(wanted, operation_timeout=REQUEST_S, request_timeout=REQUEST_S)
    for name, future in made.items():
        _result(future, f"create topic {name}")
    wait_settled(client, specs)


def wait_settled(client: AdminClient, specs: Sequence[TopicSpec], timeout_s: float = READY_S) -> None:
    """Wait until each partition is led by its first replica with all replicas in sync.

    If all replicas are in sync but another one leads, for example because the first was fenced briefly, request a
    preferred leader election. Kafka itself does so only every five minutes. Other topics are not affected.

    Raises:
        RackgateError: not reached in time, or an election was rejected.
    """
    wanted = {partition: replicas for spec in specs for partition, replicas in spec.assignment.items()}

    def settled() -> bool:
        now = try_partition_states(client, [spec.name for spec in specs])
        if not all(topic in now and set(now[topic].isr) == set(replicas) for topic, replicas in wanted.items()):
            return False
        others = [topic for topic, replicas in wanted.items() if now[topic].leader != replicas[0]]
        if others:
            # the next sample shows the result
            _elect(client, "elect preferred leaders", others)
        return not others

    names = ", ".join(spec.name for spec in specs)
    wait_for(
        settled, goal=f"all replicas in sync and preferred leaders of {names}", timeout_s=timeout_s, interval_s=0.3
    )


def wait_isr(client: AdminClient, topic: str, isr: frozenset[int], timeout_s: float = READY_S) -> None:
    """Wait until the ISR of ``topic`` is exactly ``isr``.

    Raises:
        RackgateError: not reached in time.
    """
    wait_isrs(client, {topic: isr}, timeout_s)


def wait_isrs(client: AdminClient, wanted: Mapping[str, frozenset[int]], timeout_s: float = READY_S) -> None:
    """Wait until all partitions of topics have exactly these ISRs and each has a leader within its ISR.

    Raises:
        RackgateError: not reached in time; the detail has the last observed states.
    """
    last: dict[Partition, LeaderAndIsr] = {}

    def reached() -> bool:
        nonlocal last
        last = try_partition_states(client, tuple(wanted)) or last
        return {topic for topic, _ in last} == set(wanted) and all(
            frozenset(state.isr) == wanted[topic] and state.leader in wanted[topic]
            for (topic, _), state in last.items()
        )

    goal = "; ".join(f"ISR {sorted(isr)} of {topic}" for topic, isr in wanted.items())
    try:
        wait_for(reached, goal=goal, timeout_s=timeout_s, interval_s=0.2)
    except RackgateError as error:
        states_text = "; ".join(f"{topic}-{number}: {state}" for (topic, number), state in last.items())
        raise RackgateError(str(error), detail=f"last observed: {states_text or 'nothing'}") from error


def leaders(client: AdminClient, topics: Sequence[str], timeout_s: float = READY_S) -> dict[str, int]:
    """Return the leader of each topic as soon as all topics have one.

    Raises:
        RackgateError: not reached in time.
    """

    def all_led() -> dict[str, int]:
        leader_by_topic = {
            topic: state.leader for topic, state in try_states(client, topics).items() if state.leader >= 0
        }
        return leader_by_topic if set(leader_by_topic) == set(topics) else {}

    return wait_for(all_led, goal=f"leaders of {', '.join(topics)}", timeout_s=timeout_s, interval_s=0.2)


def try_partition_states(client: AdminClient, topics: Sequence[str]) -> dict[Partition, LeaderAndIsr]:
    """Return leader and ISR of each partition of topics, for use in retry loops: empty if no broker responded.

    A topic that is missing from the response or has an error is left out.
    """
    from confluent_kafka import KafkaException

    try:
        listed = client.list_topics(timeout=QUERY_S).topics
    except KafkaException:
        return {}
    return {
        (topic, int(number)): LeaderAndIsr(int(state.leader), tuple(sorted(int(broker) for broker in state.isrs)))
        for topic in topics
        if topic in listed and listed[topic].error is None
        for number, state in sorted(listed[topic].partitions.items())
    }


def try_states(client: AdminClient, topics: Sequence[str]) -> dict[str, LeaderAndIsr]:
    """Return leader and ISR of partition 0 of topics; see ``try_partition_states``."""
    states = try_partition_states(client, topics)
    return {topic: state for (topic, number), state in states.items() if number == 0}


def alter(client: AdminClient, topic: str, config: Mapping[str, str]) -> None:
    """Set configuration values of a topic and leave the others unchanged.

    Raises:
        RejectedError: the cluster rejected the change, so nothing has changed.
        RackgateError: the result is unknown, or the cluster accepts no request in time.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    action = f"set {dict(config)} on topic {topic}"
    # Errors of a request that was processed but not applied.
    rejections = {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    silent = False

    def accepted() -> bool:
        nonlocal silent
        # Brokers name one of themselves as the controller for such requests, and the one that the client remembers
        # may be dead by now. A metadata request makes the client learn of another.
        try_states(client, [topic])
        (future,) = client.incremental_alter_configs([resource], request_timeout=QUERY_S).values()
        try:
            future.result(timeout=REQUEST_S)
        except KafkaException as error:
            if _is_silent(error):
                silent = True
                return False
            # an earlier attempt that timed out may have been applied
            kind = RejectedError if error.args[0].code() in rejections and not silent else RackgateError
            raise kind(f"{action}: rejected by the cluster: {error.args[0].str()}") from error
        return True

    wait_for(accepted, goal=action, timeout_s=READY_S, interval_s=0.2)


def elect_preferred(client: AdminClient, timeout_s: float = READY_S) -> None:
    """Elect the first replica of each partition as leader; Kafka does so by itself every five minutes.

    Raises:
        RackgateError: a first replica is not in sync, or the cluster accepts no such request in time.
    """
    action = "elect preferred leaders"
    late: frozenset[str] = frozenset()

    def accepted() -> bool:
        nonlocal late
        # as in alter()
        try_states(client, [])
        waiting = _elect(client, action)
        late = late if waiting is None else waiting
        return waiting == frozenset()

    try:
        wait_for(accepted, goal=action, timeout_s=timeout_s, interval_s=0.2)
    except RackgateError as error:
        raise RackgateError(str(error), detail=f"last response: {'; '.join(sorted(late)) or 'nothing'}") from error


def settle_leader(client: AdminClient, spec: TopicSpec, timeout_s: float = READY_S) -> bool:
    """Wait until the brokers of all replicas are unfenced, and return whether one of them leads the topic.

    If none leads, none is eligible: the batch of records that unfences a broker also elects its replica.

    Raises:
        RackgateError: not all brokers are unfenced, or the topic is not described, in time.
    """

    def state() -> LeaderAndIsr | None:
        return try_states(client, [spec.name]).get(spec.name) if unfenced(client) >= set(spec.replicas) else None

    goal = f"brokers {sorted(spec.replicas)} to be unfenced and a description of {spec.name}"
    return wait_for(state, goal=goal, timeout_s=timeout_s, interval_s=0.5).leader >= 0


def elect_unclean(client: AdminClient, topics: Sequence[str], timeout_s: float = READY_S) -> dict[str, int]:
    """Elect leaders of topics without one from any live replica, which may lack committed records.

    Returns:
        The leader of each topic.

    Raises:
        RackgateError: the cluster rejects the request, or a topic has no leader in time.
    """
    action = f"unclean election for {', '.join(topics)}"

    def elected() -> bool:
        # as in alter()
        try_states(client, topics)
        return _elect(client, action, [(topic, 0) for topic in topics], unclean=True) == frozenset()

    wait_for(elected, goal=action, timeout_s=timeout_s, interval_s=0.2)
    return leaders(client, topics, timeout_s)


def _elect(
    client: AdminClient, action: str, chosen: Sequence[Partition] | None = None, *, unclean: bool = False
) -> frozenset[str] | None:
    """Request one election for partitions (default: all), preferred or unclean.

    Returns:
        Partitions without an electable replica, each with its error; None without a response.

    Raises:
        RackgateError: the cluster rejected the request.
    """
    from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition

    partitions = None if chosen is None else [TopicPartition(topic, number) for topic, number in chosen]
    # confluent-kafka 2.16.1 fails with either timeout argument of this call, so the client's own timeout applies.
    future = client.elect_leaders(ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED, partitions)
    try:
        results: dict[Any, Any] = future.result(timeout=REQUEST_S)
    except TimeoutError:
        return None
    except KafkaException as error:
        if _is_silent(error) or error.args[0].code() == KafkaError.NOT_CONTROLLER:
            return None
        raise RackgateError(f"{action}: rejected by the cluster: {error.args[0].str()}") from error
    late: set[str] = set()
    rejected: set[str] = set()
    for where, result in results.items():
        # 2.16.1 documents an exception but returns the error itself
        why = result.args[0] if isinstance(result, KafkaException) else result
        if why is None or why.code() == KafkaError.ELECTION_NOT_NEEDED:
            continue
        # other brokers may have reported this replica as in sync already
        waits = why.code() in {KafkaError.PREFERRED_LEADER_NOT_AVAILABLE, KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE}
        (late if waits else rejected).add(f"{where.topic}-{where.partition}: {why.str()}")
    if rejected:
        raise RackgateError(f"{action}: {'; '.join(sorted(rejected))}")
    return frozenset(late)


def _is_silent(error: Exception) -> bool:
    """Return whether a request had no response."""
    from confluent_kafka import KafkaError

    # librdkafka drops requests to a broker that leaves the metadata
    return error.args[0].code() in {KafkaError._TIMED_OUT, KafkaError._DESTROY_BROKER}


def racks_of(client: AdminClient) -> dict[int, str]:
    """Return the racks of all live brokers by broker id; ``""`` for a broker without a rack.

    Raises:
        RackgateError: the cluster does not respond, or returns an error.
    """
    cluster = _result(client.describe_cluster(request_timeout=REQUEST_S), "query the racks of the cluster")
    return {int(node.id): str(node.rack or "") for node in cluster.nodes}


def _result(future: Future[Any], action: str) -> Any:
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout=3 * REQUEST_S)
    except KafkaException as error:
        raise RackgateError(f"{action}: rejected by the cluster: {error.args[0].str()}") from error
    except TimeoutError as error:
        raise RackgateError(f"{action}: no response within {3 * REQUEST_S:.0f} s") from error
