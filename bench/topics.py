"""The benchmark's topics: made as the plan says, awaited until every replica is in sync, watched during a fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.scenarios import Arm
from pyhooks.errors import RackgateError
from pyhooks.history import History
from pyhooks.wait import wait_for

REQUEST_S = 10.0
READY_S = 60.0
POLL_REQUEST_S = 2.0


@dataclass(frozen=True)
class State:
    """A topic's only partition as the cluster tells it.

    Attributes:
        leader: broker id, or -1.
        isr: broker ids, sorted.
        racks: racks of the ISR's members, without repetition, sorted; a broker without a rack counts as ``""``.
    """

    leader: int
    isr: tuple[int, ...]
    racks: tuple[str, ...]


def admin(bootstrap: str) -> AdminClient:
    """An admin client that does not talk on standard error about brokers that a fault took away."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2, "client.id": "rackgate-bench-admin"})


def racks_of(client: AdminClient) -> dict[int, str]:
    """Racks of all live brokers by broker id; ``""`` for a broker without one."""
    cluster = _result(client.describe_cluster(request_timeout=REQUEST_S), "ask the cluster for its racks")
    return {int(node.id): str(node.rack or "") for node in cluster.nodes}


def settings(arm: Arm) -> dict[str, str]:
    """The topic configuration of an arm.

    ``min.insync.racks`` is left at its default where the arm does not use it, so that such an arm is what a
    topic on an unpatched Kafka is.
    """
    config = {"min.insync.replicas": str(arm.min_insync_replicas)}
    if arm.min_insync_racks > 1:
        config["min.insync.racks"] = str(arm.min_insync_racks)
    return config


def create(client: AdminClient, arms: Sequence[Arm]) -> None:
    """Makes the topics of all arms and waits until each has its preferred leader and a full ISR.

    Raises:
        RackgateError: a topic exists already, the cluster refuses it, or it does not become ready.
    """
    wanted = [
        NewTopic(
            arm.topic,
            num_partitions=1,
            replica_assignment=[list(arm.replicas)],
            config=settings(arm),
        )
        for arm in arms
    ]
    made: Mapping[str, Future[None]] = client.create_topics(
        wanted, operation_timeout=REQUEST_S, request_timeout=REQUEST_S
    )
    for topic, future in made.items():
        _result(future, f"create topic {topic}")

    def ready() -> bool:
        now = states(client, [arm.topic for arm in arms], {}, timeout_s=REQUEST_S)
        return all(
            arm.topic in now
            and now[arm.topic].leader == arm.replicas[0]
            and set(now[arm.topic].isr) == set(arm.replicas)
            for arm in arms
        )

    wait_for(ready, what="all replicas in sync, preferred leaders leading", timeout_s=READY_S, interval_s=0.3)


def states(
    client: AdminClient, topics: Sequence[str], racks: Mapping[int, str], *, timeout_s: float
) -> dict[str, State]:
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
        isr = tuple(sorted(int(broker) for broker in partition.isrs))
        answer[topic] = State(
            leader=int(partition.leader),
            isr=isr,
            racks=tuple(sorted({racks.get(broker, "") for broker in isr})),
        )
    return answer


@contextmanager
def watched(
    bootstrap: str,
    topics: Sequence[str],
    racks: Mapping[int, str],
    history: History,
    *,
    interval_s: float,
) -> Iterator[None]:
    """Notes leader and ISR of topics in the history, every ``interval_s`` seconds, while the block runs.

    Each look is an event of process ``isr-watch``; a look that got no answer has outcome ``unknown``.
    """
    stop = threading.Event()
    client = admin(bootstrap)

    def look() -> None:
        while not stop.wait(interval_s):
            try:
                now = states(client, topics, racks, timeout_s=POLL_REQUEST_S)
            except KafkaException as error:
                history.note("isr-watch", "look", "unknown", error=str(error.args[0].name()))
                continue
            seen = {topic: asdict(state) for topic, state in now.items()}
            history.note("isr-watch", "look", "ok", topics=seen)

    thread = threading.Thread(target=look, name="isr-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=2 * POLL_REQUEST_S)


def _result(future: Future[Any], what: str) -> Any:
    try:
        return future.result(timeout=3 * REQUEST_S)
    except KafkaException as error:
        raise RackgateError(f"{what}: the cluster refused: {error.args[0].str()}") from error
    except TimeoutError as error:
        raise RackgateError(f"{what}: no answer within {3 * REQUEST_S:.0f} s") from error
