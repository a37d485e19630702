"""Risks of acks=0 and acks=1 where two racks are required and one is unavailable."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from loopback_brokers import Brokers
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.producer import Producer
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.final_reader import REQUEST_S, open_consumer

pytestmark = [pytest.mark.long, pytest.mark.timeout(420)]
TOPIC = "two-racks"
LEADER, OTHER, CONTROLLER = 1, 2, 100
RACKS = {LEADER: "a", OTHER: "b"}
BOTH = (LEADER, OTHER)
# acks=0 gets no response, so a later record with acks=1 shows that the leader has appended the earlier ones
ONE_ATTEMPT = {"retries": "0", "enable.idempotence": "false", "linger.ms": "0"}


def write(bootstrap: str, acks: str, value: bytes) -> int:
    """Produce a record in a single attempt and return its offset, -1 with acks=0.

    Raises:
        JavaError: the record was rejected.
    """
    with Producer(bootstrap, {"acks": acks, **ONE_ATTEMPT}) as producer:
        sent = producer.send_batch(TOPIC, [value], partitions=0).result(60)
    if sent.errors:
        raise sent.errors[0]
    return int(sent.offset[0])


def shown(bootstrap: str) -> list[bytes]:
    """Return the values of all records visible to consumers."""
    with open_consumer(bootstrap) as consumer:
        _, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=REQUEST_S)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[bytes] = []

        def all_read() -> bool:
            messages = consumer.consume(100, timeout=0.5)
            found.extend(one.value() or b"" for one in messages if one.error() is None)
            return len(found) >= int(high)

        wait_for(all_read, goal=f"{high} records", timeout_s=30, interval_s=0)
    return found


def outage(brokers: Brokers, name: str) -> list[bytes]:
    """Stop rack b; the leader appends records with acks=0 and acks=1, rejects acks=all, and none becomes visible.

    Returns:
        The values expected to be visible once rack b is back.
    """
    before = shown(brokers.bootstrap)
    brokers.stop(OTHER)
    first = brokers.address(LEADER)
    with Admin(first) as admin:
        wait_for(partial(admin.in_sync, TOPIC, (LEADER,)), goal="an ISR of one", timeout_s=60)
    taken = [f"{name}, acks={acks}".encode() for acks in (0, 1)]
    assert write(first, "0", taken[0]) == -1
    # the offset shows that the record with acks=0 is in the log
    assert write(first, "1", taken[1]) == len(before) + 1
    with pytest.raises(JavaError, match=r"errors\.NotEnoughRacksException"):
        write(first, "all", b"never")
    assert shown(first) == before
    return [*before, *taken]


def starts(brokers: Brokers, node: int, classpath: str) -> None:
    brokers.start(node, classpath)
    wait_for(partial(brokers.serves, node), goal=f"broker {node}", timeout_s=120)


def settled(brokers: Brokers, leader: int) -> None:
    """Wait until both replicas are in sync again, and check which one leads."""
    with Admin(brokers.address(leader)) as admin:
        known = wait_for(partial(admin.in_sync, TOPIC, BOTH), goal="both in sync", timeout_s=90)
        assert known.leader == leader


def test_what_one_rack_took_is_shown_after_the_heal_and_lost_with_the_rack(tmp_path: Path) -> None:
    classpath = Distribution.load().classpath()
    brokers = Brokers(tmp_path, RACKS, CONTROLLER, extra={"auto.leader.rebalance.enable": "false"})
    brokers.format(classpath)
    with brokers.running(classpath):
        with Admin(brokers.bootstrap) as admin:
            admin.create_topic(TOPIC, [BOTH], {"min.insync.replicas": "1", "min.insync.racks": "2"})
            wait_for(partial(admin.in_sync, TOPIC, BOTH), goal="both in sync", timeout_s=60)
        assert write(brokers.bootstrap, "all", b"in both racks") == 0

        # the other rack returns: no record is lost
        healed = outage(brokers, "healed")
        starts(brokers, OTHER, classpath)
        settled(brokers, LEADER)
        wait_for(lambda: shown(brokers.bootstrap) == healed, goal="what the leader took to be shown", timeout_s=30)

        # the leader's rack is destroyed before: only the records that it alone had are lost
        outage(brokers, "destroyed")
        brokers.kill(LEADER)
        brokers.wipe(LEADER)
        brokers.format(classpath, nodes=[LEADER])
        starts(brokers, LEADER, classpath)
        starts(brokers, OTHER, classpath)
        settled(brokers, OTHER)
        assert shown(brokers.bootstrap) == healed
        assert write(brokers.bootstrap, "all", b"goes on") == len(healed)
