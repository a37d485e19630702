"""Losses that a checker must not judge true, and correct histories that it must not judge false; each was once."""

from __future__ import annotations

from histories import Simulated, event, is_, without

from pyhooks.checker.delivery import check_delivery
from pyhooks.checker.offsets import check_offsets
from pyhooks.history import Event

# -- the final read ---------------------------------------------------------------------------------------------------


def test_a_read_before_the_fault_is_no_final_read() -> None:
    made = Simulated()
    made.rest(4)
    for _ in range(5):
        made.produce()
    made.end()
    made.read()
    made.lose("b")
    made.heal("b")
    for log in made.logs.values():
        log.keys.clear()
    for check in (check_delivery, check_offsets):
        found = check(made.events)
        assert found.valid == "unknown"
        assert found.because == ("t: the final read (read_uncommitted) began before kill-rack b: 'healed'",)


def test_a_read_before_a_producer_is_over_is_no_final_read() -> None:
    made = Simulated()
    made.rest(4)
    made.produce()
    made.read()
    made.end()
    assert check_delivery(made.events).because == (
        "t: the final read (read_uncommitted) began before run producer-1 was over",
    )


def two_partitions(name: str, number: int, keys: list[str], at_ns: int) -> Event:
    """A read of one of two partitions of ``t`` that holds these keys."""
    return event(
        at_ns, "reader", "read", **{"pass": name}, topic="t", partition=number, partitions=2,
        isolation="read_uncommitted", low=0, end=len(keys), begin=0, next=len(keys), keys=keys,
        runs=[[0, len(keys)]] if keys else [],
    )  # fmt: skip


def test_an_aborted_pass_is_not_filled_up_from_an_earlier_one() -> None:
    made = Simulated()
    made.rest(4)
    name = made.produce()
    made.end()
    first = [two_partitions("p1", 0, [name], made.now + 1), two_partitions("p1", 1, [], made.now + 2)]
    second = [two_partitions("p2", 0, [name], made.now + 3), two_partitions("p2", 1, [], made.now + 4)]
    whole = [*made.events, *first, *second]
    assert check_delivery(whole).valid == "true"
    for number in (0, 1):
        torn = without(whole, is_("read", **{"pass": "p2"}, partition=number))
        assert check_delivery(torn).because == (f"t-{number}: no final read (read_uncommitted)",)
