"""Events of group members and followers, with scripted consumers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pyhooks.checkers.group_view import groups
from pyhooks.checkers.transaction_recovery import reader_progress
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.jvm.consumer import TopicPartition
from pyhooks.jvm.group_member import MemberPoll, RebalanceCallbacks
from pyhooks.jvm.java_exception import RETRIABLE, JavaError
from pyhooks.workload import group_members
from pyhooks.workload.committed_reader import CommittedReader
from pyhooks.workload.group_members import MemberRun, Membership, parse_memberships

D0, D1 = TopicPartition("d", 0), TopicPartition("d", 1)
TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"
REBALANCING = "org.apache.kafka.common.errors.RebalanceInProgressException"
Done = Callable[[JavaError | None], None]


class Scripted:
    """Fake ``GroupMember``: each poll runs the next step of a script; the last step stops the member."""

    steps: Sequence[Callable[[Scripted], Mapping[TopicPartition, MemberPoll]]] = ()
    close_fails: JavaError | None = None

    def __init__(self, *_: object) -> None:
        self.at = 0
        self.done: list[Done] = []
        self.offsets: list[Mapping[TopicPartition, int]] = []
        self.stop: Callable[[], None] = lambda: None

    def subscribe(self, _topics: Sequence[str], callbacks: RebalanceCallbacks) -> None:
        self.callbacks = callbacks

    def poll(self, _timeout_s: float) -> Mapping[TopicPartition, MemberPoll]:
        step = self.steps[self.at]
        self.at += 1
        if self.at == len(self.steps):
            self.stop()
        return step(self)

    def commit(self, offsets: Mapping[TopicPartition, int], done: Done) -> None:
        self.offsets.append(dict(offsets))
        self.done.append(done)

    def close(self) -> None:
        if self.close_fails is not None:
            raise self.close_fails


def run_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Sequence[Callable[[Any], Any]], **attributes: Any
) -> tuple[Scripted, list[Event]]:
    created: list[Scripted] = []

    def create(*arguments: object) -> Scripted:
        created.append(type("WithSteps", (Scripted,), {"steps": steps, **attributes})(*arguments))
        return created[-1]

    monkeypatch.setattr(group_members, "GroupMember", create)
    for name in ("COMMIT_S", "FETCH_S", "PAUSE_S"):
        monkeypatch.setattr(group_members, name, 0.0)
    history = History(tmp_path / "history.jsonl")
    member_run = MemberRun(Membership("g", "classic"), "b:1", ["d"], history, "r1")
    created[-1].stop = member_run.stop.set
    member_run.run()
    return created[-1], list(history.events())


def assigned(
    *partitions: TopicPartition, fetched: Mapping[TopicPartition, MemberPoll] | None = None
) -> Callable[[Any], Any]:
    def step(member: Any) -> Mapping[TopicPartition, MemberPoll]:
        member.callbacks.assigned(frozenset(partitions))
        return fetched or {}

    return step


def complete_commit(error: JavaError | None) -> Callable[[Any], Any]:
    def step(member: Any) -> Mapping[TopicPartition, MemberPoll]:
        member.done[-1](error)
        return {}

    return step


def revoked(*partitions: TopicPartition) -> Callable[[Any], Any]:
    def step(member: Any) -> Mapping[TopicPartition, MemberPoll]:
        member.callbacks.revoked(frozenset(partitions))
        return {}

    return step


def nothing(_: Any) -> Mapping[TopicPartition, MemberPoll]:
    return {}


def test_a_member_records_all_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [assigned(D0, D1, fetched={D0: MemberPoll(2, 5, 7)}), complete_commit(None), revoked(D1), nothing]
    java, events = run_member(tmp_path, monkeypatch, steps)
    assert [event.op for event in events if event.op != "commit"] == ["join", "assigned", "fetch", "revoked", "leave"]
    assert [event.data["now"] for event in events if "now" in event.data] == [["d-0", "d-1"], ["d-0"]]
    assert {event.data["run"] for event in events} == {"r1"}
    (fetch,) = [event for event in events if event.op == "fetch"]
    assert (fetch.data["count"], fetch.data["first"], fetch.data["next"]) == (2, {"d-0": 5}, {"d-0": 7})
    assert java.offsets[0] == {D0: 7}
    (group,) = groups(events)
    assert next(event.outcome for event in group.members[0].commits) == "ok"
    assert group.members[0].leave_ns is not None


@pytest.mark.parametrize(("name", "outcome"), [(TIMEOUT, "unknown"), (REBALANCING, "fail")])
def test_the_outcome_of_a_failed_commit_follows_from_its_error(
    name: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = JavaError([name, RETRIABLE], "why")
    _, events = run_member(
        tmp_path, monkeypatch, [assigned(D0, fetched={D0: MemberPoll(1, 0, 1)}), complete_commit(error), nothing]
    )
    first = next(event for event in events if event.op == "commit")
    assert (first.outcome, first.data["exception"], first.data["retriable"]) == (outcome, name, True)


def test_a_commit_without_a_response_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java, events = run_member(
        tmp_path, monkeypatch, [assigned(D0, fetched={D0: MemberPoll(1, 0, 1)}), nothing, nothing]
    )
    assert len(java.offsets) == 1  # the next commit waits for this one
    assert [(event.outcome, event.data["exception"]) for event in events if event.op == "commit"] == [
        ("unknown", "not-reported")
    ]


def test_revoked_partitions_are_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        assigned(D0, D1, fetched={D0: MemberPoll(1, 0, 1), D1: MemberPoll(1, 3, 4)}),
        complete_commit(None),
        revoked(D1),
        complete_commit(None),
        nothing,
    ]
    java, _ = run_member(tmp_path, monkeypatch, steps)
    assert java.offsets[0] == {D0: 1, D1: 4}
    assert java.offsets[-1] == {D0: 1}


def test_a_failed_poll_is_recorded_and_the_member_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> Mapping[TopicPartition, MemberPoll]:
        raise JavaError([TIMEOUT, RETRIABLE], "why")

    _, events = run_member(tmp_path, monkeypatch, [fails, assigned(D0), nothing])
    assert [event.op for event in events] == ["join", "poll", "assigned", "leave"]
    assert events[1].data["exception"] == TIMEOUT


def test_a_failed_leave_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, events = run_member(tmp_path, monkeypatch, [nothing], close_fails=JavaError([TIMEOUT, RETRIABLE], "why"))
    assert (events[-1].op, events[-1].outcome, events[-1].data["exception"]) == ("leave", "unknown", TIMEOUT)


def test_memberships_are_parsed() -> None:
    assert parse_memberships("a:classic,b:consumer") == [Membership("a", "classic"), Membership("b", "consumer")]
    for invalid in ("a", "a:share", ":classic", "a:classic,a:consumer"):
        with pytest.raises(RackgateError, match="--groups"):
            parse_memberships(invalid)


class Message:
    """Fake record, or an error such as the end of the partition."""

    def __init__(self, offset: int, error: int | None = None) -> None:
        self._offset, self._error = offset, error

    def error(self) -> KafkaError | None:
        return None if self._error is None else KafkaError(self._error)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class FakeConsumer:
    """Fake consumer that returns scripted batches; the last batch stops the reader."""

    def __init__(self, batches: Sequence[Sequence[Message]], end: int | None) -> None:
        self.batches, self.end = list(batches), end
        self.reader: CommittedReader | None = None

    def list_topics(self, _topic: str, timeout: float) -> Any:  # noqa: ARG002 - as in the real class
        return SimpleNamespace(topics={"t": SimpleNamespace(error=None, partitions={0: None})})

    def assign(self, _partitions: object) -> None:
        pass

    def consume(self, _max_records: int, _timeout_s: float) -> Sequence[Message]:
        found = self.batches.pop(0)
        if not self.batches and self.reader is not None:
            self.reader.stop.set()
        return found

    def get_watermark_offsets(self, _partition: object, timeout: float) -> tuple[int, int]:  # noqa: ARG002 - as in the real class
        if self.end is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return 0, self.end


def follow_topic(
    tmp_path: Path, batches: Sequence[Sequence[Message]], last_stable: int | None, end: int
) -> list[Event]:
    history = History(tmp_path / "history.jsonl")
    committed = FakeConsumer(batches, last_stable)
    committed.reader = CommittedReader(committed, FakeConsumer([], end), history, "r1")
    committed.reader.follow(["t"])
    return list(history.events())


def test_a_follower_records_its_position(tmp_path: Path) -> None:
    batches = [[Message(0), Message(1)], [Message(5, KafkaError._PARTITION_EOF)]]
    events = follow_topic(tmp_path, batches, 5, 9)
    last = events[-1]
    assert (last.outcome, last.data["position"], last.data["records"]) == ("ok", 5, 2)
    assert (last.data["stable"], last.data["end"]) == (5, 9)
    ((_, place),) = reader_progress(events)
    assert place == ("t", 0)


def test_an_end_offset_that_the_leader_does_not_return_is_unknown(tmp_path: Path) -> None:
    last = follow_topic(tmp_path, [[Message(0)], []], None, 9)[-1]
    assert (last.outcome, last.data["error"], last.data["position"]) == ("unknown", "_TIMED_OUT", 1)
    assert "end" not in last.data
