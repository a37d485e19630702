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
    made = Simulated()
    made.rest(4)
    made.send(5)
    made.lose("b")
    made.send(2)
    made.heal("b")
    made.produce(lost_answer=True)
    made.produce(lost_answer=True)
    made.send(3)
    made.rest(4)
    before(made)
    made.look()
    made.end()
    last(made)
    made.read()
    spoil(made)
    made.stop_and_dump()
    return made.events


def holds(broker: int, offset: int, key: str | None) -> Callable[[Simulated], None]:
    def spoil(made: Simulated) -> None:
        made.logs[broker].keys[offset] = key

    return spoil


def shorter(broker: int, by: int) -> Callable[[Simulated], None]:
    def spoil(made: Simulated) -> None:
        del made.logs[broker].keys[-by:]

    return spoil


def tails(made: Simulated) -> None:
    """Behind what was read each has something else."""
    for broker, log in made.logs.items():
        log.keys.append(f"producer-1/t/0/9{broker}")


def lose_follower(made: Simulated) -> None:
    made.down.add(3)


def strikes(made: Simulated) -> None:
    """Another fault, without a later observation."""
    for step in ("inject", "proved", "heal", "healed"):
        made.step("kill-rack", "b", step, "ok" if step in ("proved", "healed") else None)


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
        ([one for one in stopped(holds(3, 6, "producer-1/t/0/99")) if one.op != "look"], "true"),
        ([one for one in stopped(holds(3, 6, "producer-1/t/0/99")) if one.process != "disks"], "true"),
    ],
)
def test_logs_in_sync_agree(events: Sequence[Event], valid: str) -> None:
    found = check_offsets(events)
    assert found.valid == valid, found
    assert not found.because or valid != "false" or "were in sync and differ at 1 offsets, at 6" in found.because[0]
