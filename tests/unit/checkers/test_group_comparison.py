"""Groups where two racks are required differ from groups where one is only as their coordinator's partition does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pyhooks.checkers.group_comparison import SLOWER_S, check_group_comparison
from pyhooks.checkers.groups import TOPIC
from pyhooks.checkers.registry import CHECKERS
from pyhooks.history.event_log import Event, Outcome
from written_histories import S, event

RACKS = {"1": "a", "2": "a", "3": "b"}
RETRIABLE = "org.apache.kafka.clients.consumer.RetriableCommitFailedException"
PROVED, HEAL, HEALED, END = 31, 60, 65, 120
# the second outage is as the first one, so much later
LATER_S = 200
PAIRS = [["r2", "r1"]]


def at(moment_s: float) -> int:
    return round(moment_s * S)


def outage(racks: int, replicas: Sequence[int], later_s: float) -> list[Event]:
    """Rack b is down from 30 to 65, with two observations a second."""
    fields: dict[str, Any] = {"topic": TOPIC, "min.insync.replicas": 1, "min.insync.racks": racks}
    changes = ((0.1, "begin"), (0.2, "settled")) if later_s else ((0.1, "seen"), (END, "seen"))
    found = [event(at(later_s + moment), "isr-watch", "settings", step=step, **fields) for moment, step in changes]
    steps: list[tuple[float, str, Outcome | None]] = [
        (30, "inject", None), (PROVED, "proved", "ok"), (HEAL, "heal", None), (HEALED, "healed", "ok")
    ]  # fmt: skip
    found += [event(at(later_s + moment), "fault", "kill-rack", how, "b", step=step) for moment, step, how in steps]
    for half in range(2, END * 2):
        moment = half / 2
        isr = [one for one in replicas if one != 3 or not PROVED <= moment < HEALED - 1]
        state = {"leader": replicas[0], "isr": isr, "replicas": list(replicas)}
        partitions = {f"{TOPIC}-0": state}
        found.append(event(at(later_s + moment), "isr-watch", "look", racks=RACKS, partitions=partitions))
    return found


class Group:
    """Events of two members of a group in an outage, and of a third that joins in it and leaves after it."""

    def __init__(self, name: str, later_s: float) -> None:
        self.name, self.later_s = name, later_s
        self.events: list[Event] = []
        for run, place, more in (("m1", "d-0", ["d-2"]), ("m2", "d-1", [])):
            self.tell(2, "join", run)
            self.has(3, run, place, *more)
            self.fetch(run, place, 4, END)
        self.events += self.left("m1", 115) + self.left("m2", 115)

    def tell(self, moment_s: float, op: str, run: str, outcome: Outcome | None = None, **more: Any) -> None:
        fields: dict[str, Any] = {"run": f"{self.name}-{run}", "group": self.name, "protocol": "classic", **more}
        self.events.append(event(at(self.later_s + moment_s), "member", op, outcome, **fields))

    def has(self, moment_s: float, run: str, *now: str) -> Group:
        self.tell(moment_s, "assigned", run, partitions=list(now), now=list(now))
        return self

    def fetch(self, run: str, place: str, from_s: float, to_s: float) -> Group:
        for half in range(round(from_s * 2), round(to_s * 2)):
            moment = half / 2
            from_ns = at(self.later_s + moment - 0.5)
            self.tell(moment, "fetch", run, count=1, next={place: half}, from_ns=from_ns)
        return self

    def left(self, run: str, moment_s: float) -> list[Event]:
        self.tell(moment_s + 0.5, "leave", run, "ok", begun_ns=at(self.later_s + moment_s), latency_ms=500.0)
        return [self.events.pop()]

    def commit(self, run: str, from_s: float, to_s: float, why: str | None = None, took_s: float = 0.01) -> Group:
        moment = from_s
        while moment + took_s <= to_s:
            fields: dict[str, Any] = {"begun_ns": at(self.later_s + moment), "latency_ms": took_s * 1000, "offsets": {}}
            fields |= {} if why is None else {"exception": why, "message": "", "retriable": True}
            self.tell(moment + took_s, "commit", run, "ok" if why is None else "unknown", **fields)
            moment += took_s + 1
        return self

    def joins(self, moment_s: float = 40, over_s: float = 42) -> Group:
        """A third one joins."""
        self.tell(moment_s, "join", "m3")
        self.has(over_s, "m1", "d-0").has(over_s, "m2", "d-1").has(over_s, "m3", "d-2")
        self.commit("m3", over_s + 1, 100)
        self.fetch("m3", "d-2", over_s, 110)
        self.events += self.left("m3", 110)
        return self.has(112, "m1", "d-0", "d-2")

    def goes_on(self, took_s: float = 0.01) -> Group:
        for run in ("m1", "m2"):
            self.commit(run, 4, 115, took_s=took_s)
        return self

    def waits(self, again_s: float = 70) -> Group:
        """Commits are not answered in the outage."""
        for run in ("m1", "m2"):
            self.commit(run, 4, 29).commit(run, 33, 60, RETRIABLE, 5).commit(run, again_s, 115)
        return self


def history(
    two: Group, one: Group, replicas: Sequence[int] = (1, 2, 3), pairs: Sequence[Sequence[str]] = PAIRS
) -> list[Event]:
    found = [*outage(2, replicas, 0), *outage(1, replicas, LATER_S), *two.events, *one.events]
    found.append(event(at(1), "test", "alike", None, pairs=pairs))
    return sorted(found, key=lambda own: own.mono_ns)


def r2() -> Group:
    return Group("r2", 0)


def r1() -> Group:
    return Group("r1", LATER_S)


def waiting() -> Group:
    return r2().waits().joins(over_s=68)


def going_on() -> Group:
    return r1().goes_on().joins()


def test_groups_differ_while_one_coordinator_has_too_few_racks() -> None:
    verdict = check_group_comparison(history(waiting(), going_on()))
    assert verdict.valid == "true", verdict.because
    assert "r2 and r1, during the outage: 0 and 75 commits, medians None ms and 10.0 ms" in " ".join(verdict.notes)


def test_groups_do_not_differ_with_a_single_replica() -> None:
    verdict = check_group_comparison(history(r2().goes_on().joins(), going_on(), (1,)))
    assert verdict.valid == "true", verdict.because
    assert "r2 and r1: join during the outage: over after 2 s and 2 s" in verdict.notes


@pytest.mark.parametrize(
    ("two", "one", "replicas", "expected"),
    [
        # one required rack is not enough of a reason to wait
        (waiting(), going_on(), (1,), "no commit of r2 succeeded, and its partition is enough"),
        (waiting(), r1().waits().joins(over_s=68), (1, 2, 3), "no commit of r1 succeeded, and its partition is enough"),
        (r2().goes_on().joins(over_s=68), going_on(), (1, 2, 3), "commits of r2 succeeded, and its partition is not"),
        (r2().waits().joins(), going_on(), (1, 2, 3), "join during the outage: over before the heal in r2"),
        (r2().goes_on().joins(over_s=42.5 + SLOWER_S), going_on(), (1,), "over after 17.5 s in r2, 2 s in r1"),
        (r2().goes_on(0.6).joins(), going_on(), (1,), "the median of a commit is 600 ms with r2, 10 ms with r1"),
        (r2().waits(109).joins(over_s=68), going_on(), (1, 2, 3), "all have committed again after 49 s with r2"),
        (r2().waits(200).joins(over_s=68), going_on(), (1, 2, 3), "a member of r2 has not committed after the heal"),
    ],
)
def test_any_other_difference_is_wrong(two: Group, one: Group, replicas: Sequence[int], expected: str) -> None:
    verdict = check_group_comparison(history(two, one, replicas))
    assert verdict.valid == "false", verdict
    assert any(expected in reason for reason in verdict.because), verdict.because


def test_a_longer_pause_of_reading_is_wrong() -> None:
    two = r2().goes_on().joins()
    two.events = [
        own
        for own in two.events
        if own.op != "fetch" or own.data["run"] != "r2-m1" or not 32 * S < own.mono_ns < 58 * S
    ]
    verdict = check_group_comparison(history(two, going_on(), (1,)))
    assert (verdict.valid, len(verdict.because)) == ("false", 1)
    assert "r2 read nothing for 26 s" in verdict.because[0]


@pytest.mark.parametrize(
    ("two", "one", "pairs", "expected"),
    [
        (waiting(), going_on(), [], "no event names the groups"),
        (waiting(), going_on(), [["r2", "r3"]], "r3: not exactly one outage during its lifetime"),
        (r2().waits(), going_on(), PAIRS, "different changes of members"),
        (r2().waits(), r1().goes_on(), PAIRS, "no join or leave in the outage"),
        (waiting(), r1().joins(), PAIRS, "r1 tried no commit"),
    ],
)
def test_missing_evidence_is_unknown(two: Group, one: Group, pairs: Sequence[Sequence[str]], expected: str) -> None:
    verdict = check_group_comparison(history(two, one, pairs=pairs))
    assert verdict.valid == "unknown", verdict
    assert any(expected in reason for reason in verdict.because), verdict.because


def test_without_observations_the_comparison_is_unknown() -> None:
    events = [own for own in history(waiting(), going_on()) if own.op != "look"]
    verdict = check_group_comparison(events)
    assert verdict.valid == "unknown"
    assert any(reason.startswith("r2: whether its partition was enough") for reason in verdict.because)
    # an outage that cannot be distinguished from another one
    twice = [*history(waiting(), going_on())]
    again = [replace(own, mono_ns=own.mono_ns + at(45)) for own in twice if own.process == "fault"]
    verdict = check_group_comparison(sorted([*twice, *again], key=lambda own: own.mono_ns))
    assert any(reason.startswith("r2: ") and "one outage" in reason for reason in verdict.because)


def test_the_checker_applies_to_pairs() -> None:
    assert CHECKERS["alike"].applies(event(1, "test", "alike", None, pairs=PAIRS))
    assert not CHECKERS["alike"].applies(event(1, "test", "phase", None))
