"""Changes of M and R: the history gets the events of successful, failed and unconfirmed changes."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType
from typer.testing import CliRunner

from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.cli import app
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS, Requirement
from pyhooks.lab import lab_processes
from pyhooks.lab.lab import Lab
from pyhooks.workload.requirement_changes import change_default, change_topic, note_created


def failed_future(code: int) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


def completed_future(value: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class FakeAdmin:
    """Fake admin client of brokers 1 to 4, each of which applies a change late. Broker 4 has no replica of the topic.

    Attributes:
        lag: queries to which a broker still returns the old values; -1 if it does not respond.
        fenced: brokers that the metadata does not list.
        errors: errors of the next requests for a change, in order.
        reported: settings that each broker reports.
        requested: settings after the change.
        queried: brokers queried, in order.
    """

    def __init__(self, lag: dict[int, int], *, errors: tuple[int, ...] = (), racks: bool = True) -> None:
        self.lag, self.errors, self.fenced = dict(lag), list(errors), set[int]()
        self.reported = {
            broker: {MIN_INSYNC_REPLICAS: "1"} | ({MIN_INSYNC_RACKS: "1"} if racks else {}) for broker in (1, 2, 3)
        }
        self.requested: dict[str, str] = {}
        self.queried: list[int] = []

    def list_topics(self, timeout: float) -> Any:
        assert timeout > 0
        # during a reassignment the leader may no longer be in the replica list
        partitions = {
            0: SimpleNamespace(leader=1, replicas=[2, 3], isrs=[2, 3]),
            1: SimpleNamespace(leader=-1, replicas=[3], isrs=[]),
        }
        alive = {broker: object() for broker in (1, 2, 3, 4) if broker not in self.fenced}
        return SimpleNamespace(brokers=alive, topics={"t": SimpleNamespace(error=None, partitions=partitions)})

    def describe_configs(self, resources: list[Any], request_timeout: float, broker: int) -> dict[Any, Future[Any]]:
        assert request_timeout > 0
        (resource,) = resources
        assert resource.name == "t"
        self.queried.append(broker)
        if self.lag.get(broker) == -1:
            return {resource: failed_future(KafkaError._TIMED_OUT)}
        if self.requested:
            if self.lag.get(broker, 0) == 0:
                self.reported[broker] |= self.requested
            else:
                self.lag[broker] -= 1
        values = {name: SimpleNamespace(value=value) for name, value in self.reported[broker].items()}
        return {resource: completed_future(values)}

    def incremental_alter_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        assert request_timeout > 0
        (resource,) = resources
        if self.errors:
            return {resource: failed_future(self.errors.pop(0))}
        for entry in resource.incremental_configs:
            assert entry.incremental_operation == AlterConfigOpType.SET
            self.requested[entry.name] = entry.value
        return {resource: completed_future(None)}


def recorded_settings(history: History) -> list[tuple[str, str | None, int, int]]:
    return [
        (str(event.data["step"]), event.outcome, event.data[MIN_INSYNC_REPLICAS], event.data[MIN_INSYNC_RACKS])
        for event in history.events()
        if event.op == "settings"
    ]


def test_a_change_settles_when_every_broker_reports_it(tmp_path: Path) -> None:
    client: Any = FakeAdmin({2: 3})
    history = History(tmp_path / "h")
    change = change_topic(client, "t", history, min_racks=2)
    assert (change.before, change.value, change.brokers) == (Requirement(1, 1), Requirement(1, 2), (1, 2, 3))
    assert recorded_settings(history) == [("seen", "ok", 1, 1), ("begin", "ok", 1, 2), ("settled", "ok", 1, 2)]
    assert client.queried.count(2) == 1 + 3 + 1, (
        "before the change, three times with the old value, and once with the new"
    )
    assert 4 not in client.queried
    assert change.reported_s > 0
    events = list(history.events())
    settings = RequirementTimeline(events)
    assert settings.possible("t", events[1].mono_ns + 1, events[2].mono_ns - 1) == {change.before, change.value}
    assert settings.possible("t", events[2].mono_ns + 1, 1 << 62) == {change.value}


def test_both_settings_or_only_the_requested_one_change(tmp_path: Path) -> None:
    client: Any = FakeAdmin({})
    assert change_topic(client, "t", History(tmp_path / "h"), min_replicas=2, min_racks=3).value == Requirement(2, 3)
    assert client.requested == {MIN_INSYNC_REPLICAS: "2", MIN_INSYNC_RACKS: "3"}
    other: Any = FakeAdmin({})
    change_topic(other, "t", History(tmp_path / "i"), min_replicas=2)
    assert other.requested == {MIN_INSYNC_REPLICAS: "2"}


def test_a_broker_without_the_setting_requires_one_rack(tmp_path: Path) -> None:
    client: Any = FakeAdmin({}, racks=False)
    assert change_topic(client, "t", History(tmp_path / "h"), min_replicas=2).value == Requirement(2, 1)


@pytest.mark.parametrize(
    ("lag", "error"),
    [
        ({3: 9999}, "broker 3 reports min.insync.replicas=1 and min.insync.racks=1"),
        ({3: -1}, "broker 3: .*[Tt]imed out"),
    ],
)
def test_a_broker_that_does_not_report_the_change_leaves_it_unknown(
    tmp_path: Path, lag: dict[int, int], error: str
) -> None:
    client: Any = FakeAdmin(lag)
    history = History(tmp_path / "h")
    with pytest.raises(RackgateError, match=f"every broker of topic t to report .*min.insync.racks=2; {error}"):
        change_topic(client, "t", history, min_racks=2, timeout_s=0.3)
    assert recorded_settings(history)[1:] == [("begin", "ok", 1, 2), ("settled", "unknown", 1, 2)]
    assert RequirementTimeline(list(history.events())).possible("t", 1 << 61, 1 << 62) == {
        Requirement(1, 1),
        Requirement(1, 2),
    }


def test_a_fenced_broker_is_not_awaited(tmp_path: Path) -> None:
    client: Any = FakeAdmin({3: -1})
    client.fenced = {3}
    history = History(tmp_path / "h")
    change = change_topic(client, "t", history, min_racks=2)
    assert (change.brokers, change.fenced) == ((1, 2), (3,))
    last = list(history.events())[-1]
    assert (last.outcome, last.data["brokers"], last.data["fenced"]) == ("ok", [1, 2], [3])
    # with all brokers fenced, none can report it
    client.fenced = {1, 2, 3}
    with pytest.raises(RackgateError, match="no broker reports it"):
        change_topic(client, "t", history, min_racks=1)


def test_a_missing_response_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = FakeAdmin({2: 1})
    list_topics_of_client = client.list_topics
    calls = 0

    def list_topics(timeout: float) -> Any:
        nonlocal calls
        calls += 1
        # after the query of the old values and the one of the request
        if calls == 3:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return list_topics_of_client(timeout)

    monkeypatch.setattr(client, "list_topics", list_topics)
    assert change_topic(client, "t", History(tmp_path / "h"), min_racks=2).brokers == (1, 2, 3)
    assert calls == 5


@pytest.mark.parametrize(
    ("errors", "last"),
    [
        ((KafkaError.INVALID_CONFIG,), ("rejected", "ok")),
        ((KafkaError.TOPIC_AUTHORIZATION_FAILED,), ("rejected", "ok")),
        ((KafkaError._TRANSPORT,), ("settled", "unknown")),
        ((KafkaError.UNKNOWN,), ("settled", "unknown")),
        # the first request may have succeeded
        ((KafkaError._TIMED_OUT, KafkaError.INVALID_CONFIG), ("settled", "unknown")),
    ],
)
def test_a_rejection_of_the_only_request_is_certain(
    tmp_path: Path, errors: tuple[int, ...], last: tuple[str, str]
) -> None:
    client: Any = FakeAdmin({}, errors=errors)
    history = History(tmp_path / "h")
    with pytest.raises(RackgateError, match="rejected by the cluster"):
        change_topic(client, "t", history, min_racks=2)
    assert [step[:2] for step in recorded_settings(history)] == [("seen", "ok"), ("begin", "ok"), last]
    possible = RequirementTimeline(list(history.events())).possible("t", 1 << 61, 1 << 62)
    assert possible == {Requirement(1, 1)} | ({Requirement(1, 2)} if last[0] == "settled" else set())


def test_an_invalid_response_does_not_confirm_the_change(tmp_path: Path) -> None:
    client: Any = FakeAdmin({})
    client.reported[2] = {MIN_INSYNC_RACKS: "1"}
    client.reported[3] = {MIN_INSYNC_REPLICAS: "many"}
    history = History(tmp_path / "h")
    error = "every broker .*; broker 2: a response without a number: KeyError .*; broker 3: .*ValueError"
    with pytest.raises(RackgateError, match=error):
        change_topic(client, "t", history, min_racks=2, timeout_s=0.3)
    assert recorded_settings(history)[-1][:2] == ("settled", "unknown")


def test_an_interruption_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = FakeAdmin({})

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pyhooks.kafka.topics.alter", interrupt)
    history = History(tmp_path / "h")
    with pytest.raises(KeyboardInterrupt):
        change_topic(client, "t", history, min_racks=2)
    assert recorded_settings(history)[-1][:2] == ("settled", "unknown")


def test_a_change_that_cannot_begin_is_not_recorded(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    unresponsive: Any = FakeAdmin(dict.fromkeys((1, 2, 3), -1))
    with pytest.raises(RackgateError, match=r"unknown .*broker 1: "):
        change_topic(unresponsive, "t", history, min_racks=2)
    differing: Any = FakeAdmin({})
    differing.reported[2] = {MIN_INSYNC_REPLICAS: "2", MIN_INSYNC_RACKS: "1"}
    with pytest.raises(RackgateError, match=r"they differ: broker 1: min.insync.replicas=1 .*; broker 2: min"):
        change_topic(differing, "t", history, min_racks=2)
    with pytest.raises(RackgateError, match="there is no such topic"):
        change_topic(differing, "u", history, min_racks=2)
    with pytest.raises(RackgateError, match="specify a value"):
        change_topic(differing, "t", history)
    assert not list(history.events())


def test_the_command_works_in_a_lab_and_writes_into_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = SimpleNamespace(name="l", bare=False, admin=FakeAdmin({}), history_path=tmp_path / "history.jsonl")
    monkeypatch.setattr(lab_processes, "runs_inside", lambda name: name == "l")
    monkeypatch.setattr(Lab, "attach", lambda: lab)
    arguments = ["lab", "set", "t", "--lab", "l", "--min-racks", "2"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.exception
    assert "topic t: min.insync.replicas=1 and min.insync.racks=2 (before:" in shown.output
    assert "brokers 1, 2, 3 reported it" in shown.output
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert (found["before"], found["value"]) == ({"replicas": 1, "racks": 2},) * 2
    steps = [event.data["step"] for event in History(lab.history_path).events()]
    assert steps == ["seen", "begin", "settled"] * 2
    assert "lab set: needs" in str(CliRunner().invoke(app, arguments[:-2]).exception)
    lab.bare = True
    assert "it has no topics" in str(CliRunner().invoke(app, arguments).exception)


def test_settings_at_creation_apply_from_the_start(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    note_created(history, "t", Requirement(2, 2))
    assert recorded_settings(history) == [("made", "ok", 2, 2)]
    settings = RequirementTimeline(list(history.events()))
    assert settings.possible("t", 0, 1 << 62) == {Requirement(2, 2)}
    assert settings.requests("t") == ()
    assert settings.unsettled_ns("t") is None


def test_a_new_cluster_default_settles_for_each_topic_that_inherits_it(tmp_path: Path) -> None:
    client: Any = FakeAdmin({2: 3})
    history = History(tmp_path / "h")
    change_default(client, ["t"], history, lambda: client.requested.update({MIN_INSYNC_RACKS: "2"}), min_racks=2)
    assert recorded_settings(history) == [("seen", "ok", 1, 1), ("begin", "ok", 1, 2), ("settled", "ok", 1, 2)]
    # no topic, so nothing to record
    change_default(client, [], history, lambda: None, min_racks=1)
    assert len(recorded_settings(history)) == 3


@pytest.mark.parametrize("fails", [True, False])
def test_an_unconfirmed_cluster_default_is_unknown(tmp_path: Path, fails: bool) -> None:
    client: Any = FakeAdmin({3: 9999})
    history = History(tmp_path / "h")

    def request() -> None:
        if fails:
            raise RackgateError("no")
        client.requested[MIN_INSYNC_RACKS] = "2"

    with pytest.raises(RackgateError, match="no" if fails else "every broker of topic t to report"):
        change_default(client, ["t"], history, request, min_racks=2, timeout_s=0.2)
    assert recorded_settings(history)[-1] == ("settled", "unknown", 1, 2)


def test_a_value_on_which_brokers_disagree_is_not_changed(tmp_path: Path) -> None:
    client: Any = FakeAdmin({})
    client.reported[2] = {MIN_INSYNC_REPLICAS: "1", MIN_INSYNC_RACKS: "3"}
    with pytest.raises(RackgateError, match="is unknown"):
        change_default(client, ["t"], History(tmp_path / "h"), lambda: None, min_racks=2)
