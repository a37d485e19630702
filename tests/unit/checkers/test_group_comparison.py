"""Checker that compares a group with R=2 and one with R=1: they may differ only while the coordinator lacks racks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from planted_violations import planted
from pyhooks.checkers.group_comparison import SLOWER_S, check_group_comparison
from pyhooks.checkers.groups import TOPIC
from pyhooks.checkers.registry import CHECKERS
from pyhooks.history.event_log import Event, Outcome
from written_histories import S, event

RACKS = {"1": "a", "2": "a", "3": "b"}
RETRIABLE = "org.apache.kafka.clients.consumer.RetriableCommitFailedException"
PROVED, HEAL, HEALED, END = 31, 60, 65, 120
# Offset of the second outage, which is identical to the first one.
LATER_S = 200
PAIRS = [["r2", "r1"]]


def at(moment_s: float) -> int:
    return round(moment_s * S)


def outage(racks: int, replicas: Sequence[int], later_s: float) -> list[Event]:
    """Rack b is down from 30 to 65, with two observations a second."""
    fields: dict[str, Any] = {"topic": TOPIC, "min.insync.replicas": 1, "min.insync.racks": racks}
    changes = ((0.1, "begin"), (0.2, "settled")) if later_s else ((0.1, "seen"), (END, "seen"))
    events = [event(at(later_s + moment), "isr-watch", "settings", step=step, **fields) for moment, step in changes]
    steps: list[tuple[float, str, Outcome | None]] = [
        (30, "inject", None), (PROVED, "proved", "ok"), (HEAL, "heal", None), (HEALED, "healed", "ok")
    ]  # fmt: skip
    events += [
        event(at(later_s + moment), "fault", "kill-rack", outcome, "b", step=step) for moment, step, outcome in steps
    ]
    for half in range(2, END * 2):
        moment = half / 2
        isr = [broker for broker in replicas if broker != 3 or not PROVED <= moment < HEALED - 1]
        state = {"leader": replicas[0], "isr": isr, "replicas": list(replicas)}
        partitions = {f"{TOPIC}-0": state}
        events.append(event(at(later_s + moment), "isr-watch", "look", racks=RACKS, partitions=partitions))
    return events


class Group:
    """Events of a group with two members through an outage; a third may join in the outage and leave after it."""

    def __init__(self, name: str, later_s: float) -> None:
        self.name, self.later_s = name, later_s
        self.events: list[Event] = []
        for run, partition, more in (("m1", "d-0", ["d-2"]), ("m2", "d-1", [])):
            self.note(2, "join", run)
            self.assign(3, run, partition, *more)
            self.fetch(run, partition, 4, END)
        self.events += self.leave("m1", 115) + self.leave("m2", 115)

    def note(self, moment_s: float, op: str, run: str, outcome: Outcome | None = None, **more: Any) -> None:
        fields: dict[str, Any] = {"run": f"{self.name}-{run}", "group": self.name, "protocol": "classic", **more}
        self.events.append(event(at(self.later_s + moment_s), "member", op, outcome, **fields))

    def assign(self, moment_s: float, run: str, *now: str) -> Group:
        self.note(moment_s, "assigned", run, partitions=list(now), now=list(now))
        return self

    def fetch(self, run: str, partition: str, from_s: float, to_s: float) -> Group:
        for half in range(round(from_s * 2), round(to_s * 2)):
            moment = half / 2
            from_ns = at(self.later_s + moment - 0.5)
            self.note(moment, "fetch", run, count=1, next={partition: half}, from_ns=from_ns)
        return self

    def leave(self, run: str, moment_s: float) -> list[Event]:
        self.note(moment_s + 0.5, "leave", run, "ok", begun_ns=at(self.later_s + moment_s), latency_ms=500.0)
        return [self.events.pop()]

    def commit(
        self, run: str, from_s: float, to_s: float, exception: str | None = None, duration_s: float = 0.01
    ) -> Group:
        moment = from_s
        while moment + duration_s <= to_s:
            fields: dict[str, Any] = {
                "begun_ns": at(self.later_s + moment),
                "latency_ms": duration_s * 1000,
                "offsets": {},
            }
            fields |= {} if exception is None else {"exception": exception, "message": "", "retriable": True}
            self.note(moment + duration_s, "commit", run, "ok" if exception is None else "unknown", **fields)
            moment += duration_s + 1
        return self

    def third_joins(self, moment_s: float = 40, over_s: float = 42) -> Group:
        """A third member joins at ``moment_s``; the rebalance is over at ``over_s``."""
        self.note(moment_s, "join", "m3")
        self.assign(over_s, "m1", "d-0").assign(over_s, "m2", "d-1").assign(over_s, "m3", "d-2")
        self.commit("m3", over_s + 1, 100)
        self.fetch("m3", "d-2", over_s, 110)
        self.events += self.leave("m3", 110)
        return self.assign(112, "m1", "d-0", "d-2")

    def commits_throughout(self, duration_s: float = 0.01) -> Group:
        for run in ("m1", "m2"):
            self.commit(run, 4, 115, duration_s=duration_s)
        return self

    def commits_blocked(self, resume_s: float = 70) -> Group:
        """Both members commit, without a response during the outage; commits succeed again from ``resume_s``."""
        for run in ("m1", "m2"):
            self.commit(run, 4, 29).commit(run, 33, 60, RETRIABLE, 5).commit(run, resume_s, 115)
        return self


def history(
    r2_group: Group, r1_group: Group, replicas: Sequence[int] = (1, 2, 3), pairs: Sequence[Sequence[str]] = PAIRS
) -> list[Event]:
    events = [*outage(2, replicas, 0), *outage(1, replicas, LATER_S), *r2_group.events, *r1_group.events]
    events.append(event(at(1), "test", "alike", None, pairs=pairs))
    return sorted(events, key=lambda entry: entry.mono_ns)


def r2() -> Group:
    return Group("r2", 0)


def r1() -> Group:
    return Group("r1", LATER_S)


def r2_blocked() -> Group:
    return r2().commits_blocked().third_joins(over_s=68)


def r1_unaffected() -> Group:
    return r1().commits_throughout().third_joins()


def test_groups_may_differ_while_one_coordinator_has_too_few_racks() -> None:
    verdict = check_group_comparison(history(r2_blocked(), r1_unaffected()))
    assert verdict.valid == "true", verdict.because
    assert "r2 and r1, during the outage: 0 and 75 commits, medians None ms and 10.0 ms" in " ".join(verdict.notes)


def test_groups_with_a_single_replica_do_not_differ() -> None:
    verdict = check_group_comparison(history(r2().commits_throughout().third_joins(), r1_unaffected(), (1,)))
    assert verdict.valid == "true", verdict.because
    assert "r2 and r1: join during the outage: over after 2 s and 2 s" in verdict.notes


@pytest.mark.parametrize(
    ("r2_group", "r1_group", "replicas", "expected"),
    [
        # the coordinator's partition is sufficient, so commits must succeed
        (r2_blocked(), r1_unaffected(), (1,), "no commit of r2 succeeded, and its partition is enough"),
        (
            r2_blocked(),
            r1().commits_blocked().third_joins(over_s=68),
            (1, 2, 3),
            "no commit of r1 succeeded, and its partition is enough",
        ),
        (
            r2().commits_throughout().third_joins(over_s=68),
            r1_unaffected(),
            (1, 2, 3),
            "commits of r2 succeeded, and its partition is not",
        ),
        (
            r2().commits_blocked().third_joins(),
            r1_unaffected(),
            (1, 2, 3),
            "join during the outage: over before the heal in r2",
        ),
        (
            r2().commits_throughout().third_joins(over_s=42.5 + SLOWER_S),
            r1_unaffected(),
            (1,),
            "over after 17.5 s in r2, 2 s in r1",
        ),
        (
            r2().commits_throughout(0.6).third_joins(),
            r1_unaffected(),
            (1,),
            "the median of a commit is 600 ms with r2, 10 ms with r1",
        ),
        (
            r2().commits_blocked(109).third_joins(over_s=68),
            r1_unaffected(),
            (1, 2, 3),
            "all have committed again after 49 s with r2",
        ),
        (
            r2().commits_blocked(200).third_joins(over_s=68),
            r1_unaffected(),
            (1, 2, 3),
            "a member of r2 has not committed after the heal",
        ),
    ],
)
def test_any_other_difference_is_wrong(
    r2_group: Group, r1_group: Group, replicas: Sequence[int], expected: str
) -> None:
    verdict = check_group_comparison(history(r2_group, r1_group, replicas))
    assert verdict.valid == "false", verdict
    assert any(expected in reason for reason in verdict.because), verdict.because


def test_a_longer_pause_in_fetches_is_wrong() -> None:
    r2_group = r2().commits_throughout().third_joins()
    r2_group.events = [
        entry
        for entry in r2_group.events
        if entry.op != "fetch" or entry.data["run"] != "r2-m1" or not 32 * S < entry.mono_ns < 58 * S
    ]
    verdict = check_group_comparison(history(r2_group, r1_unaffected(), (1,)))
    assert (verdict.valid, len(verdict.because)) == ("false", 1)
    assert "r2 read nothing for 26 s" in verdict.because[0]


@pytest.mark.parametrize(
    ("r2_group", "r1_group", "pairs", "expected"),
    [
        (r2_blocked(), r1_unaffected(), [], "no event names the groups"),
        (r2_blocked(), r1_unaffected(), [["r2", "r3"]], "r3: not exactly one outage during its lifetime"),
        (r2().commits_blocked(), r1_unaffected(), PAIRS, "different changes of members"),
        (r2().commits_blocked(), r1().commits_throughout(), PAIRS, "no join or leave in the outage"),
        (r2_blocked(), r1().third_joins(), PAIRS, "r1 tried no commit"),
    ],
)
def test_missing_evidence_is_unknown(
    r2_group: Group, r1_group: Group, pairs: Sequence[Sequence[str]], expected: str
) -> None:
    verdict = check_group_comparison(history(r2_group, r1_group, pairs=pairs))
    assert verdict.valid == "unknown", verdict
    assert any(expected in reason for reason in verdict.because), verdict.because


def test_without_observations_the_comparison_is_unknown() -> None:
    events = [entry for entry in history(r2_blocked(), r1_unaffected()) if entry.op != "look"]
    verdict = check_group_comparison(events)
    assert verdict.valid == "unknown"
    assert any(reason.startswith("r2: whether its partition was enough") for reason in verdict.because)
    # two overlapping outages cannot be distinguished
    twice = [*history(r2_blocked(), r1_unaffected())]
    again = [replace(entry, mono_ns=entry.mono_ns + at(45)) for entry in twice if entry.process == "fault"]
    verdict = check_group_comparison(sorted([*twice, *again], key=lambda entry: entry.mono_ns))
    assert any(reason.startswith("r2: ") and "one outage" in reason for reason in verdict.because)


def test_the_checker_applies_to_pairs() -> None:
    assert CHECKERS["alike"].applies(event(1, "test", "alike", None, pairs=PAIRS))
    assert not CHECKERS["alike"].applies(event(1, "test", "phase", None))


def test_the_planted_violation_slow_commits_is_found() -> None:
    for events in planted("slow-commits", history(r2_blocked(), r1_unaffected())):
        assert check_group_comparison(events).valid == "false"
