"""Share groups: the checker, and the members that it relies on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pyhooks.checkers.registry import CHECKERS
from pyhooks.checkers.share_groups import check_share_groups, share_groups, unconfirmed
from pyhooks.history.event_log import Event, History
from pyhooks.jvm.consumer import TopicPartition
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.share_member import DeliveredRecord
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory
from pyhooks.workload import share_members
from pyhooks.workload.share_members import ShareMemberRun
from written_histories import S, chunks, event

TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"
LOST_S, BACK_S, END_S = 20.0, 50.0, 130.0
T = TopicPartition("t", 0)


@dataclass
class Run:
    """Run of 130 s with rack b out of the ISR of the groups' state from 20 s to 50 s, and a batch of ten every 5 s.

    Attributes:
        racks: R of the state's topic.
        confirms: times at which a batch is confirmed; by default those with enough racks in sync.
        skips: first offsets of batches that are not delivered.
        again: whether all batches are delivered once more at the end.
    """

    racks: int = 2
    confirms: Sequence[float] | None = None
    skips: tuple[int, ...] = ()
    again: bool = False
    polls_fail: bool = False
    observed: bool = True
    events: list[Event] = field(default_factory=list)

    def note(self, at_s: float, process: str, op: str, outcome: Any = "ok", **data: Any) -> None:
        self.events.append(event(round(at_s * S), process, op, outcome, **data))

    def history(self) -> list[Event]:
        settings = {"min.insync.replicas": 2, "min.insync.racks": self.racks, "step": "seen"}
        self.note(0, "isr-watch", "settings", **settings, topic="__share_group_state")
        for step in range(int(2 * END_S) if self.observed else 0):
            at_s = step / 2
            isr = [1, 2] if LOST_S <= at_s < BACK_S else [1, 2, 3]
            state = {"leader": 1, "isr": isr, "replicas": [1, 2, 3]}
            racks = {"1": "a", "2": "a", "3": "b"}
            self.note(at_s, "isr-watch", "look", racks=racks, partitions={"__share_group_state-0": state})
        times = [float(at_s) for at_s in range(2, int(END_S), 5)]
        for number, at_s in enumerate(times):
            first = 10 * number
            enough = self.racks == 1 or not LOST_S <= at_s < BACK_S
            if first not in self.skips:
                self.batch(at_s, first, confirmed=enough if self.confirms is None else at_s in self.confirms)
        count = 10 * len(times)
        if self.again:
            self.batch(END_S, 0, confirmed=True, again=10)
        if self.polls_fail:
            self.note(END_S, "share-member", "poll", "unknown", run="m", group="g", exception=TIMEOUT)
        place: dict[str, Any] = {"pass": "p", "topic": "t", "partition": 0, "partitions": 1}
        for part in chunks([(offset, f"k{offset}") for offset in range(count)], 1000, count):
            self.note(END_S + 2, "reader", "read", **place, isolation="read_uncommitted", low=0, end=count, **part)
        return self.events

    def batch(self, at_s: float, first: int, *, confirmed: bool, again: int = 0) -> None:
        member: dict[str, Any] = {"run": "m", "group": "g", "begun_ns": round(at_s * S)}
        self.note(at_s + 0.1, "share-member", "delivered", None, **member, offsets={"t-0": [[first, 10]]}, again=again)
        ack: dict[str, Any] = {"partition": "t-0", "offsets": [[first, 10]], "latency_ms": 1000.0}
        ack |= {} if confirmed else {"exception": TIMEOUT}
        self.note(at_s + 1, "share-member", "acknowledge", "ok" if confirmed else "unknown", **member, **ack)


@pytest.mark.parametrize("racks", [2, 1])
def test_acknowledgements_follow_the_racks_of_the_state(racks: int) -> None:
    verdict = check_share_groups(Run(racks).history())
    assert verdict.valid == "true", verdict
    failed = "none" if racks == 1 else "6 with TimeoutException"
    lost = 0 if racks == 1 else 60
    count = 26 - (0 if racks == 1 else 6)
    assert verdict.notes == (
        f"g: {count} acknowledgements confirmed, failed: {failed}; 0 repeated deliveries, {lost} records delivered and"
        " never confirmed",
    )


def test_an_acknowledgement_with_too_few_racks_is_wrong() -> None:
    verdict = check_share_groups(Run(confirms=[2.0, 37.0]).history())
    assert verdict.valid == "false"
    assert any("10 records of t-0 were acknowledged while" in reason for reason in verdict.because)


def test_an_acknowledgement_that_never_comes_with_enough_racks_is_wrong() -> None:
    verdict = check_share_groups(Run(confirms=[2.0]).history())
    assert any("no acknowledgement was confirmed within 60 s" in reason for reason in verdict.because)


def test_a_record_that_was_confirmed_is_not_delivered_again() -> None:
    verdict = check_share_groups(Run(again=True).history())
    assert verdict.valid == "false"
    assert verdict.because == (
        "g: 10 records of t-0 were delivered after their acknowledgement was confirmed, the first is at offset 0",
    )


def test_a_record_that_was_not_confirmed_may_be_delivered_again() -> None:
    history = Run(confirms=[float(at_s) for at_s in range(57, 130, 5)], again=True).history()
    assert check_share_groups(history).valid == "true"


def test_a_skipped_record_is_wrong() -> None:
    verdict = check_share_groups(Run(skips=(20,)).history())
    assert verdict.because == ("g: 10 records of t-0 were not delivered, the first is at offset 20",)


def test_a_failed_poll_is_wrong() -> None:
    assert check_share_groups(Run(polls_fail=True).history()).because == (f"g: a poll failed with {TIMEOUT}",)


def test_missing_evidence_is_unknown() -> None:
    assert check_share_groups([]).valid == "unknown"
    assert check_share_groups(Run(observed=False).history()).valid == "unknown"
    verdict = check_share_groups([one for one in Run().history() if one.op != "read"])
    assert verdict.because == ("g: t: no final read (read_uncommitted)",)
    verdict = check_share_groups([one for one in Run().history() if one.op != "acknowledge"])
    assert verdict.because == ("g: no acknowledgement could be judged", "g: no acknowledgement was confirmed")


def test_the_checker_applies_to_members_of_share_groups() -> None:
    assert any(map(CHECKERS["shares"].applies, Run().history()))
    assert not CHECKERS["shares"].applies(event(1, "member", "poll", run="m", group="g", exception="x"))


def test_a_member_notes_deliveries_and_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(share_members, "PAUSE_S", 0.0)

    class Scripted:
        def __init__(self, *_: object) -> None:
            self.polls = 0
            self.commits = 0

        def __enter__(self) -> Scripted:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def subscribe(self, _: Sequence[str]) -> None:
            pass

        def poll(self, _: float) -> list[DeliveredRecord]:
            self.polls += 1
            if self.polls == 2:
                raise JavaError([TIMEOUT], "no")
            if self.polls == 5:
                member.stop.set()
                return []
            return [DeliveredRecord(T, offset, self.polls) for offset in (0, 1, 3)]

        def commit(self, _: float) -> dict[TopicPartition, JavaError | None]:
            self.commits += 1
            if self.commits == 2:
                raise JavaError([TIMEOUT], "late")
            return {T: None} if self.commits == 1 else {}

    monkeypatch.setattr(share_members, "ShareMember", Scripted)
    history = History(tmp_path / "h.jsonl")
    member = ShareMemberRun("g", "b:1", ["t"], history, "m")
    member.run()
    events = list(history.events())
    assert [(one.op, one.outcome) for one in events] == [
        ("delivered", None), ("acknowledge", "ok"), ("poll", "unknown"),
        ("delivered", None), ("acknowledge", "unknown"), ("delivered", None), ("acknowledge", "unknown"),
    ]  # fmt: skip
    assert [one.data["exception"] for one in events if one.op == "acknowledge" and one.outcome != "ok"] == [
        TIMEOUT,
        "not-reported",
    ]
    group = share_groups(events)["g"]
    assert group.again == 6
    assert unconfirmed(group) == frozenset()


def test_a_planted_violation_is_found() -> None:
    (violation,) = [one for one in VIOLATIONS if one.name == "deliver-again"]
    for seed in range(5):
        planted = violation.plant(StoredHistory(Run().history()), random.Random(seed))  # noqa: S311 - a seeded test
        assert planted is not None
        assert check_share_groups(planted).valid == "false"
