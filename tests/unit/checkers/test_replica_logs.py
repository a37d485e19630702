"""Logs of the replicas in the last observed ISR must be identical up to the end of the final read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pyhooks.checkers.offsets import check_offsets
from pyhooks.history.event_log import Event
from written_histories import Simulated


def stopped_cluster(
    change_disks: Callable[[Simulated], None] = lambda _: None,
    before_read: Callable[[Simulated], None] = lambda _: None,
    before_last_observation: Callable[[Simulated], None] = lambda _: None,
) -> Sequence[Event]:
    """Outage of rack b and two records with lost responses; then the final read and a stop of all brokers.

    Args:
        change_disks: change of the disks after the final read.
        before_read: action before the final read.
        before_last_observation: action before the last observation.
    """
    cluster = Simulated()
    cluster.rest(4)
    cluster.send(5)
    cluster.lose("b")
    cluster.send(2)
    cluster.heal("b")
    cluster.produce(lost_answer=True)
    cluster.produce(lost_answer=True)
    cluster.send(3)
    cluster.rest(4)
    before_last_observation(cluster)
    cluster.look()
    cluster.end()
    before_read(cluster)
    cluster.read()
    change_disks(cluster)
    cluster.stop_and_dump()
    return cluster.events


def replace_record(broker: int, offset: int, key: str | None) -> Callable[[Simulated], None]:
    def change_disks(cluster: Simulated) -> None:
        cluster.logs[broker].keys[offset] = key

    return change_disks


def truncate(broker: int, by: int) -> Callable[[Simulated], None]:
    def change_disks(cluster: Simulated) -> None:
        del cluster.logs[broker].keys[-by:]

    return change_disks


def append_unread_records(cluster: Simulated) -> None:
    """Append a different record to each log, behind the end of the final read."""
    for broker, log in cluster.logs.items():
        log.keys.append(f"producer-1/t/0/9{broker}")


def remove_follower(cluster: Simulated) -> None:
    cluster.down.add(3)


def unobserved_fault(cluster: Simulated) -> None:
    """Inject and heal another fault without a later observation."""
    for step in ("inject", "proved", "heal", "healed"):
        cluster.step("kill-rack", "b", step, "ok" if step in ("proved", "healed") else None)


@pytest.mark.parametrize(
    ("events", "valid"),
    [
        (stopped_cluster(), "true"),
        # only the leader has records that timed out and were read
        (stopped_cluster(replace_record(3, 6, "producer-1/t/0/99")), "false"),
        (stopped_cluster(replace_record(2, 6, None)), "false"),
        (stopped_cluster(replace_record(1, 6, None)), "false"),
        # a shorter log may lack the last records
        (stopped_cluster(truncate(3, 2)), "true"),
        (stopped_cluster(append_unread_records), "true"),
        # a replica that is not in sync may differ
        (stopped_cluster(replace_record(3, 6, "producer-1/t/0/99"), before_last_observation=remove_follower), "true"),
        # no observation after the last fault
        (stopped_cluster(replace_record(3, 6, "producer-1/t/0/99"), before_read=unobserved_fault), "true"),
        ([event for event in stopped_cluster(replace_record(3, 6, "producer-1/t/0/99")) if event.op != "look"], "true"),
        (
            [event for event in stopped_cluster(replace_record(3, 6, "producer-1/t/0/99")) if event.process != "disks"],
            "true",
        ),
    ],
)
def test_logs_of_in_sync_replicas_are_identical(events: Sequence[Event], valid: str) -> None:
    verdict = check_offsets(events)
    assert verdict.valid == valid, verdict
    assert not verdict.because or valid != "false" or "were in sync and differ at 1 offsets, at 6" in verdict.because[0]
