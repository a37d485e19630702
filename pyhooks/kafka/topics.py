"""Topics as a run makes, watches and changes them: one partition, replicas placed by hand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka.cluster_metadata import Asker

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

MIN_INSYNC_REPLICAS = "min.insync.replicas"
MIN_INSYNC_RACKS = "min.insync.racks"
# What is only observed, and never enforced.
MIN_INSYNC_RACKS_OBSERVE = "min.insync.racks.observe"
MINIMUM_MAX = 2**31 - 1
_MINIMUM = re.compile("[1-9][0-9]{0,9}", re.ASCII)
REQUEST_S = 10.0
SILENCE_MS = 2000
READY_S = 60.0
# A look may ask a broker that a fault took away: better ask again soon than wait long.
LOOK_S = 3.0


class RefusedError(RackgateError):
    """The cluster has refused a change, and nothing of it holds."""


@dataclass(frozen=True)
class TopicSpec:
    """A topic to be made.

    Attributes:
        name: its name.
        replicas: broker ids; the first leads.
        config: its configuration.
    """

    name: str
    replicas: tuple[int, ...]
    config: Mapping[str, str]


@dataclass(frozen=True)
class State:
    """A topic's only partition as the cluster tells it.

    Attributes:
        leader: broker id, or -1.
        isr: broker ids, sorted.
    """

    leader: int
    isr: tuple[int, ...]


def minimum(value: object) -> int | None:
    """The value of ``min.insync.replicas`` or ``min.insync.racks``; None for what Kafka would not take."""
    if not isinstance(value, str) or not _MINIMUM.fullmatch(value) or int(value) > MINIMUM_MAX:
        return None
    return int(value)


def admin(bootstrap: str, config: Mapping[str, str] | None = None) -> AdminClient:
    """An admin client that is quiet about brokers that a fault took away, and soon gives up on them.

    A connection that a cut has silenced looks sound; without a short ``socket.timeout.ms`` the client would ask the
    same dead broker again and again.

    Args:
        bootstrap: brokers.
        config: further properties of librdkafka, such as those of security.
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


def unfenced(client: AdminClient, timeout_s: float = LOOK_S) -> frozenset[int]:
    """Ids of the brokers that more than half of those that answer list, i.e. registered and not fenced.

    One alone may tell what was: who was away lists itself until it hears that it had been fenced meanwhile.

    Args:
        client: asked for the addresses of brokers.
        timeout_s: bound for that answer, and again for all of theirs, in seconds; nobody is unfenced without an answer.
    """
    from confluent_kafka import KafkaException

    try:
        listed = client.list_topics(timeout=timeout_s).brokers.values()
    except KafkaException:
        return frozenset()

    askers = [Asker(f"{one.host}:{one.port}", each_s=timeout_s) for one in listed]
    with ThreadPoolExecutor(max(1, len(askers))) as pool:
        told = [one for one in pool.map(lambda asker: asker.heard([], timeout_s), askers) if one is not None]
    votes = Counter(broker for one in told for broker in one.racks)
    return frozenset(broker for broker, count in votes.items() if 2 * count > len(told))


def create(client: AdminClient, specs: Sequence[TopicSpec]) -> None:
    """Makes topics and waits until each is led by its first replica with all replicas in sync.

    Raises:
        RackgateError: a topic exists already, the cluster refuses it, or it does not become ready.
    """
    from confluent_kafka.admin import NewTopic

    wanted = [
        NewTopic(spec.name, num_partitions=1, replica_assignment=[list(spec.replicas)], config=dict(spec.config))
        for spec in specs
    ]
    made = client.create_topics(wanted, operation_timeout=REQUEST_S, request_timeout=REQUEST_S)
    for name, future in made.items():
        _result(future, f"create topic {name}")
    wait_settled(client, specs)


def wait_settled(client: AdminClient, specs: Sequence[TopicSpec], timeout_s: float = READY_S) -> None:
    """Waits until each topic is led by its first replica with all replicas in sync.

    Where all are in sync and another one leads, as after a moment in which the first one was fenced, the first one is
    elected: Kafka itself does so every five minutes. Of other topics nothing changes.

    Raises:
        RackgateError: not in time, or an election was refused.
    """

    def settled() -> bool:
        now = look(client, [spec.name for spec in specs])
        if not all(spec.name in now and set(now[spec.name].isr) == set(spec.replicas) for spec in specs):
            return False
        others = [spec.name for spec in specs if now[spec.name].leader != spec.replicas[0]]
        if others:
            # what became of it is told by the next look
            _elect(client, "elect preferred leaders", others)
        return not others

    names = ", ".join(spec.name for spec in specs)
    wait_for(
        settled, what=f"all replicas in sync and preferred leaders of {names}", timeout_s=timeout_s, interval_s=0.3
    )


def wait_isr(client: AdminClient, topic: str, isr: frozenset[int], timeout_s: float = READY_S) -> None:
    """Waits until the ISR of ``topic`` is exactly ``isr``.

    Raises:
        RackgateError: not in time.
    """
    wait_isrs(client, {topic: isr}, timeout_s)


def wait_isrs(client: AdminClient, wanted: Mapping[str, frozenset[int]], timeout_s: float = READY_S) -> None:
    """Waits until the ISRs of topics are exactly these, and each has a leader that is in it.

    Raises:
        RackgateError: not in time; it tells what was seen last.
    """
    seen: dict[str, State] = {}

    def reached() -> bool:
        nonlocal seen
        seen = look(client, tuple(wanted)) or seen
        return all(
            topic in seen and frozenset(seen[topic].isr) == isr and seen[topic].leader in isr
            for topic, isr in wanted.items()
        )

    what = "; ".join(f"ISR {sorted(isr)} of {topic}" for topic, isr in wanted.items())
    try:
        wait_for(reached, what=what, timeout_s=timeout_s, interval_s=0.2)
    except RackgateError as error:
        last = "; ".join(f"{topic}: {state}" for topic, state in seen.items())
        raise RackgateError(str(error), detail=f"seen last: {last or 'nothing'}") from error


def leaders(client: AdminClient, topics: Sequence[str], timeout_s: float = READY_S) -> dict[str, int]:
    """Who leads, once each topic is led by somebody.

    Raises:
        RackgateError: not in time.
    """

    def all_led() -> dict[str, int]:
        found = {topic: state.leader for topic, state in look(client, topics).items() if state.leader >= 0}
        return found if set(found) == set(topics) else {}

    return wait_for(all_led, what=f"leaders of {', '.join(topics)}", timeout_s=timeout_s, interval_s=0.2)


def states(client: AdminClient, topics: Sequence[str], *, timeout_s: float) -> dict[str, State]:
    """Leader and ISR of topics; a topic that the answer lacks is left out.

    Raises:
        confluent_kafka.KafkaException: no broker answered in time.
    """
    found = client.list_topics(timeout=timeout_s).topics
    answer: dict[str, State] = {}
    for topic in topics:
        if topic not in found or found[topic].error is not None or 0 not in found[topic].partitions:
            continue
        partition = found[topic].partitions[0]
        answer[topic] = State(leader=int(partition.leader), isr=tuple(sorted(int(broker) for broker in partition.isrs)))
    return answer


def look(client: AdminClient, topics: Sequence[str]) -> dict[str, State]:
    """``states`` for those who ask again: nothing if nobody answered."""
    from confluent_kafka import KafkaException

    try:
        return states(client, topics, timeout_s=LOOK_S)
    except KafkaException:
        return {}


def alter(client: AdminClient, topic: str, config: Mapping[str, str]) -> None:
    """Sets configuration values of a topic and leaves the others as they are.

    Raises:
        RefusedError: the cluster refuses, and so nothing has changed.
        RackgateError: it can't be told what became of the request, or the cluster takes none in time.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    what = f"set {dict(config)} on topic {topic}"
    # Answers to a request that was looked at and not carried out.
    refusals = {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    silent = False

    def taken() -> bool:
        nonlocal silent
        # Brokers name one of them as the place for such requests, and the one that the client remembers may be
        # dead by now; a look at the topics learns of another.
        look(client, [topic])
        (future,) = client.incremental_alter_configs([resource], request_timeout=LOOK_S).values()
        try:
            future.result(timeout=REQUEST_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._TIMED_OUT:
                silent = True
                return False
            # of what timed out before nobody knows
            kind = RefusedError if error.args[0].code() in refusals and not silent else RackgateError
            raise kind(f"{what}: the cluster refused: {error.args[0].str()}") from error
        return True

    wait_for(taken, what=what, timeout_s=READY_S, interval_s=0.2)


def elect_preferred(client: AdminClient, timeout_s: float = READY_S) -> None:
    """Has the first replica of each partition lead; Kafka does so every five minutes by itself.

    Raises:
        RackgateError: a first replica is not in sync, or the cluster takes no such request in time.
    """
    what = "elect preferred leaders"
    late: frozenset[str] = frozenset()

    def taken() -> bool:
        nonlocal late
        # as in alter()
        look(client, [])
        told = _elect(client, what)
        late = late if told is None else told
        return told == frozenset()

    try:
        wait_for(taken, what=what, timeout_s=timeout_s, interval_s=0.2)
    except RackgateError as error:
        raise RackgateError(str(error), detail=f"told last: {'; '.join(sorted(late)) or 'nothing'}") from error


def settle_leader(client: AdminClient, spec: TopicSpec, timeout_s: float = READY_S) -> bool:
    """Wait until the brokers of all replicas are unfenced, and return whether one of these leads the topic.

    If none does, none is eligible, because a replica is elected in the batch of records that unfences its broker.

    Raises:
        RackgateError: a broker is not unfenced, or the topic not described, in time.
    """

    def state() -> State | None:
        return look(client, [spec.name]).get(spec.name) if unfenced(client) >= set(spec.replicas) else None

    what = f"brokers {sorted(spec.replicas)} to be unfenced and a description of {spec.name}"
    return wait_for(state, what=what, timeout_s=timeout_s, interval_s=0.5).leader >= 0


def elect_unclean(client: AdminClient, topics: Sequence[str], timeout_s: float = READY_S) -> dict[str, int]:
    """Elect leaders of topics without one from any live replica, which may lack committed records.

    Returns:
        The leader of each topic.

    Raises:
        RackgateError: the cluster refuses, or a topic has no leader in time.
    """
    what = f"unclean election for {', '.join(topics)}"

    def elected() -> bool:
        # as in alter()
        look(client, topics)
        return _elect(client, what, topics, unclean=True) == frozenset()

    wait_for(elected, what=what, timeout_s=timeout_s, interval_s=0.2)
    return leaders(client, topics, timeout_s)


def _elect(
    client: AdminClient, what: str, topics: Sequence[str] | None = None, *, unclean: bool = False
) -> frozenset[str] | None:
    """Request one election for topics, of all by default: of the first replicas, or an unclean one.

    Returns:
        The partitions without a replica that can be elected, each with the error; None without a response.

    Raises:
        RackgateError: the cluster refused.
    """
    from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition

    partitions = None if topics is None else [TopicPartition(topic, 0) for topic in topics]
    # confluent-kafka 2.16.1 fails at either bound that could be given here: the client's own holds
    future = client.elect_leaders(ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED, partitions)
    try:
        found: dict[Any, Any] = future.result(timeout=REQUEST_S)
    except TimeoutError:
        return None
    except KafkaException as error:
        if error.args[0].code() in {KafkaError._TIMED_OUT, KafkaError.NOT_CONTROLLER}:
            return None
        raise RackgateError(f"{what}: the cluster refused: {error.args[0].str()}") from error
    late: set[str] = set()
    refused: set[str] = set()
    for where, told in found.items():
        # 2.16.1 documents an exception, and gives the error itself
        why = told.args[0] if isinstance(told, KafkaException) else told
        if why is None or why.code() == KafkaError.ELECTION_NOT_NEEDED:
            continue
        # it may have been in sync by what another broker told
        waits = why.code() in {KafkaError.PREFERRED_LEADER_NOT_AVAILABLE, KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE}
        (late if waits else refused).add(f"{where.topic}-{where.partition}: {why.str()}")
    if refused:
        raise RackgateError(f"{what}: {'; '.join(sorted(refused))}")
    return frozenset(late)


def racks_of(client: AdminClient) -> dict[int, str]:
    """Racks of all live brokers by broker id; ``""`` for a broker without one.

    Raises:
        RackgateError: the cluster does not answer.
    """
    cluster = _result(client.describe_cluster(request_timeout=REQUEST_S), "ask the cluster for its racks")
    return {int(node.id): str(node.rack or "") for node in cluster.nodes}


def _result(future: Future[Any], what: str) -> Any:
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout=3 * REQUEST_S)
    except KafkaException as error:
        raise RackgateError(f"{what}: the cluster refused: {error.args[0].str()}") from error
    except TimeoutError as error:
        raise RackgateError(f"{what}: no answer within {3 * REQUEST_S:.0f} s") from error
