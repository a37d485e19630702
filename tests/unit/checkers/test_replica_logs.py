"""Logs of brokers that were last in sync must agree: histories that are accepted, refused and called unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pyhooks.checkers.offsets import check_offsets
from pyhooks.history.event_log import Event
from written_histories import Simulated


def stopped(
    spoil: Callable[[Simulated], None] = lambda _: None,
    last: Callable[[Simulated], None] = lambda _: None,
    before: Callable[[Simulated], None] = lambda _: None,
) -> Sequence[Event]:
    """An outage of rack b with two records whose answers are lost; then all is read, everything stops.

    Args:
        spoil: what becomes of the disks after the final read.
        last: what is done before the final read.
        before: what is done before the last look.
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
    before(cluster)
    cluster.look()
    cluster.end()
    last(cluster)
    cluster.read()
    spoil(cluster)
    cluster.stop_and_dump()
    return cluster.events


def holds(broker: int, offset: int, key: str | None) -> Callable[[Simulated], None]:
    def spoil(cluster: Simulated) -> None:
        cluster.logs[broker].keys[offset] = key

    return spoil


def shorter(broker: int, by: int) -> Callable[[Simulated], None]:
    def spoil(cluster: Simulated) -> None:
        del cluster.logs[broker].keys[-by:]

    return spoil


def tails(cluster: Simulated) -> None:
    """Behind what was read each has something else."""
    for broker, log in cluster.logs.items():
        log.keys.append(f"producer-1/t/0/9{broker}")


def lose_follower(cluster: Simulated) -> None:
    cluster.down.add(3)


def strikes(cluster: Simulated) -> None:
    """Another fault, without a later observation."""
    for step in ("inject", "proved", "heal", "healed"):
        cluster.step("kill-rack", "b", step, "ok" if step in ("proved", "healed") else None)


@pytest.mark.parametrize(
    ("events", "valid"),
    [
        (stopped(), "true"),
        # only the leader has records that timed out and were read
        (stopped(holds(3, 6, "producer-1/t/0/99")), "false"),
        (stopped(holds(2, 6, None)), "false"),
        (stopped(holds(1, 6, None)), "false"),
        # who is shorter may not have what came last
        (stopped(shorter(3, 2)), "true"),
        (stopped(tails), "true"),
        # who is not in sync may have anything
        (stopped(holds(3, 6, "producer-1/t/0/99"), before=lose_follower), "true"),
        # no observation after the last fault, or it is not healed
        (stopped(holds(3, 6, "producer-1/t/0/99"), last=strikes), "true"),
        ([event for event in stopped(holds(3, 6, "producer-1/t/0/99")) if event.op != "look"], "true"),
        ([event for event in stopped(holds(3, 6, "producer-1/t/0/99")) if event.process != "disks"], "true"),
    ],
)
def test_logs_in_sync_agree(events: Sequence[Event], valid: str) -> None:
    verdict = check_offsets(events)
    assert verdict.valid == valid, verdict
    assert not verdict.because or valid != "false" or "were in sync and differ at 1 offsets, at 6" in verdict.because[0]
