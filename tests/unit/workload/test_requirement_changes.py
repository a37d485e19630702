"""Changes of a topic's settings: the events in the history, whatever the result."""

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


def failed(code: int) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


def done(value: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class Client:
    """A cluster of brokers that each learn of a change after so many further questions; 4 has nothing of the topic.

    Attributes:
        lag: how many questions a broker still answers with the old values; -1 for one that does not answer at all.
        fenced: brokers that the metadata do not list.
        refuses: the errors with which it answers requests for a change, one after the other.
    """

    def __init__(self, lag: dict[int, int], *, refuses: tuple[int, ...] = (), racks: bool = True) -> None:
        self.lag, self.refuses, self.fenced = dict(lag), list(refuses), set[int]()
        self.known = {
            broker: {MIN_INSYNC_REPLICAS: "1"} | ({MIN_INSYNC_RACKS: "1"} if racks else {}) for broker in (1, 2, 3)
        }
        self.wanted: dict[str, str] = {}
        self.asked: list[int] = []

    def list_topics(self, timeout: float) -> Any:
        assert timeout > 0
        # a reassignment: who leads need not be a replica any more
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
        self.asked.append(broker)
        if self.lag.get(broker) == -1:
            return {resource: failed(KafkaError._TIMED_OUT)}
        if self.wanted:
            if self.lag.get(broker, 0) == 0:
                self.known[broker] |= self.wanted
            else:
                self.lag[broker] -= 1
        values = {name: SimpleNamespace(value=value) for name, value in self.known[broker].items()}
        return {resource: done(values)}

    def incremental_alter_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        assert request_timeout > 0
        (resource,) = resources
        if self.refuses:
            return {resource: failed(self.refuses.pop(0))}
        for entry in resource.incremental_configs:
            assert entry.incremental_operation == AlterConfigOpType.SET
            self.wanted[entry.name] = entry.value
        return {resource: done(None)}


def recorded(history: History) -> list[tuple[str, str | None, int, int]]:
    return [
        (str(one.data["step"]), one.outcome, one.data[MIN_INSYNC_REPLICAS], one.data[MIN_INSYNC_RACKS])
        for one in history.events()
        if one.op == "settings"
    ]


def test_a_change_settles_when_every_broker_reports_it(tmp_path: Path) -> None:
    client: Any = Client({2: 3})
    history = History(tmp_path / "h")
    found = change_topic(client, "t", history, min_racks=2)
    assert (found.before, found.value, found.brokers) == (Requirement(1, 1), Requirement(1, 2), (1, 2, 3))
    assert recorded(history) == [("seen", "ok", 1, 1), ("begin", "ok", 1, 2), ("settled", "ok", 1, 2)]
    assert client.asked.count(2) == 1 + 3 + 1, "before, three times too early, and in the end"
    assert 4 not in client.asked
    assert found.told_s > 0
    events = list(history.events())
    settings = RequirementTimeline(events)
    assert settings.possible("t", events[1].mono_ns + 1, events[2].mono_ns - 1) == {found.before, found.value}
    assert settings.possible("t", events[2].mono_ns + 1, 1 << 62) == {found.value}


def test_both_settings_or_only_the_requested_one_change(tmp_path: Path) -> None:
    client: Any = Client({})
    assert change_topic(client, "t", History(tmp_path / "h"), min_replicas=2, min_racks=3).value == Requirement(2, 3)
    assert client.wanted == {MIN_INSYNC_REPLICAS: "2", MIN_INSYNC_RACKS: "3"}
    other: Any = Client({})
    change_topic(other, "t", History(tmp_path / "i"), min_replicas=2)
    assert other.wanted == {MIN_INSYNC_REPLICAS: "2"}


def test_a_stock_broker_requires_one_rack(tmp_path: Path) -> None:
    client: Any = Client({}, racks=False)
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
    client: Any = Client(lag)
    history = History(tmp_path / "h")
    with pytest.raises(RackgateError, match=f"every broker of topic t to report .*min.insync.racks=2; {error}"):
        change_topic(client, "t", history, min_racks=2, timeout_s=0.3)
    assert recorded(history)[1:] == [("begin", "ok", 1, 2), ("settled", "unknown", 1, 2)]
    assert RequirementTimeline(list(history.events())).possible("t", 1 << 61, 1 << 62) == {
        Requirement(1, 1),
        Requirement(1, 2),
    }


def test_a_fenced_broker_is_not_awaited(tmp_path: Path) -> None:
    client: Any = Client({3: -1})
    client.fenced = {3}
    history = History(tmp_path / "h")
    found = change_topic(client, "t", history, min_racks=2)
    assert (found.brokers, found.fenced) == ((1, 2), (3,))
    last = list(history.events())[-1]
    assert (last.outcome, last.data["brokers"], last.data["fenced"]) == ("ok", [1, 2], [3])
    # without brokers there is none to report it
    client.fenced = {1, 2, 3}
    with pytest.raises(RackgateError, match="no broker reports it"):
        change_topic(client, "t", history, min_racks=1)


def test_a_missing_response_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Client({2: 1})
    answer_topics = client.list_topics
    calls = 0

    def list_topics(timeout: float) -> Any:
        nonlocal calls
        calls += 1
        # after the first question and the look of the request
        if calls == 3:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return answer_topics(timeout)

    monkeypatch.setattr(client, "list_topics", list_topics)
    assert change_topic(client, "t", History(tmp_path / "h"), min_racks=2).brokers == (1, 2, 3)
    assert calls == 5


@pytest.mark.parametrize(
    ("errors", "last"),
    [
        ((KafkaError.INVALID_CONFIG,), ("refused", "ok")),
        ((KafkaError.TOPIC_AUTHORIZATION_FAILED,), ("refused", "ok")),
        ((KafkaError._TRANSPORT,), ("settled", "unknown")),
        ((KafkaError.UNKNOWN,), ("settled", "unknown")),
        # the first may have been carried out
        ((KafkaError._TIMED_OUT, KafkaError.INVALID_CONFIG), ("settled", "unknown")),
    ],
)
def test_a_refusal_of_the_only_request_is_certain(
    tmp_path: Path, errors: tuple[int, ...], last: tuple[str, str]
) -> None:
    client: Any = Client({}, refuses=errors)
    history = History(tmp_path / "h")
    with pytest.raises(RackgateError, match="the cluster refused"):
        change_topic(client, "t", history, min_racks=2)
    assert [step[:2] for step in recorded(history)] == [("seen", "ok"), ("begin", "ok"), last]
    holds = RequirementTimeline(list(history.events())).possible("t", 1 << 61, 1 << 62)
    assert holds == {Requirement(1, 1)} | ({Requirement(1, 2)} if last[0] == "settled" else set())


def test_an_invalid_response_is_no_confirmation(tmp_path: Path) -> None:
    client: Any = Client({})
    client.known[2] = {MIN_INSYNC_RACKS: "1"}
    client.known[3] = {MIN_INSYNC_REPLICAS: "many"}
    history = History(tmp_path / "h")
    error = "every broker .*; broker 2: a response without a number: KeyError .*; broker 3: .*ValueError"
    with pytest.raises(RackgateError, match=error):
        change_topic(client, "t", history, min_racks=2, timeout_s=0.3)
    assert recorded(history)[-1][:2] == ("settled", "unknown")


def test_an_interruption_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Client({})

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pyhooks.kafka.topics.alter", interrupt)
    history = History(tmp_path / "h")
    with pytest.raises(KeyboardInterrupt):
        change_topic(client, "t", history, min_racks=2)
    assert recorded(history)[-1][:2] == ("settled", "unknown")


def test_a_change_that_cannot_begin_is_not_recorded(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    silent: Any = Client(dict.fromkeys((1, 2, 3), -1))
    with pytest.raises(RackgateError, match=r"unknown .*broker 1: "):
        change_topic(silent, "t", history, min_racks=2)
    differing: Any = Client({})
    differing.known[2] = {MIN_INSYNC_REPLICAS: "2", MIN_INSYNC_RACKS: "1"}
    with pytest.raises(RackgateError, match=r"they differ: broker 1: min.insync.replicas=1 .*; broker 2: min"):
        change_topic(differing, "t", history, min_racks=2)
    with pytest.raises(RackgateError, match="there is no such topic"):
        change_topic(differing, "u", history, min_racks=2)
    with pytest.raises(RackgateError, match="neither"):
        change_topic(differing, "t", history)
    assert not list(history.events())


def test_the_command_works_in_a_lab_and_writes_into_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = SimpleNamespace(name="l", bare=False, admin=Client({}), history_path=tmp_path / "history.jsonl")
    monkeypatch.setattr(lab_processes, "runs_inside", lambda name: name == "l")
    monkeypatch.setattr(Lab, "attach", lambda: lab)
    arguments = ["lab", "set", "t", "--lab", "l", "--min-racks", "2"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.exception
    assert "topic t: min.insync.replicas=1 and min.insync.racks=2 (before:" in shown.output
    assert "brokers 1, 2, 3 reported it" in shown.output
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert (found["before"], found["value"]) == ({"replicas": 1, "racks": 2},) * 2
    steps = [one.data["step"] for one in History(lab.history_path).events()]
    assert steps == ["seen", "begin", "settled"] * 2
    assert "lab set: needs" in str(CliRunner().invoke(app, arguments[:-2]).exception)
    lab.bare = True
    assert "it has no topics" in str(CliRunner().invoke(app, arguments).exception)


def test_settings_at_creation_apply_from_the_start(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    note_created(history, "t", Requirement(2, 2))
    assert recorded(history) == [("made", "ok", 2, 2)]
    settings = RequirementTimeline(list(history.events()))
    assert settings.possible("t", 0, 1 << 62) == {Requirement(2, 2)}
    assert settings.requests("t") == ()
    assert settings.unsettled_ns("t") is None


def test_a_change_of_the_cluster_settles_for_each_topic_that_inherits_it(tmp_path: Path) -> None:
    client: Any = Client({2: 3})
    history = History(tmp_path / "h")
    change_default(client, ["t"], history, lambda: client.wanted.update({MIN_INSYNC_RACKS: "2"}), min_racks=2)
    assert recorded(history) == [("seen", "ok", 1, 1), ("begin", "ok", 1, 2), ("settled", "ok", 1, 2)]
    # no broker applies it yet
    change_default(client, [], history, lambda: None, min_racks=1)
    assert len(recorded(history)) == 3


@pytest.mark.parametrize("fails", [True, False])
def test_an_unsettled_change_of_the_cluster_may_or_may_not_apply(tmp_path: Path, fails: bool) -> None:
    client: Any = Client({3: 9999})
    history = History(tmp_path / "h")

    def request() -> None:
        if fails:
            raise RackgateError("no")
        client.wanted[MIN_INSYNC_RACKS] = "2"

    with pytest.raises(RackgateError, match="no" if fails else "every broker of topic t to report"):
        change_default(client, ["t"], history, request, min_racks=2, timeout_s=0.2)
    assert recorded(history)[-1] == ("settled", "unknown", 1, 2)


def test_a_value_on_which_brokers_disagree_is_not_changed(tmp_path: Path) -> None:
    client: Any = Client({})
    client.known[2] = {MIN_INSYNC_REPLICAS: "1", MIN_INSYNC_RACKS: "3"}
    with pytest.raises(RackgateError, match="is unknown"):
        change_default(client, ["t"], History(tmp_path / "h"), lambda: None, min_racks=2)
