"""Observations beside a workload: any error that ends them is recorded and raised to the waiting caller."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyhooks.checkers import cluster_view
from pyhooks.checkers.record_view import PartitionName
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history import events as event_names
from pyhooks.history.event_log import Event, History
from pyhooks.kafka import gate, topics
from pyhooks.kafka.cluster_metadata import Metadata, Partition
from pyhooks.workload import topic_observer
from pyhooks.workload.topic_observer import observe_topics

RACKS = {1: "a", 2: "b"}
STATE = Partition(1, (2, 1), (1, 2))


class Client:
    """Brokers with correct responses, except for given observations: other racks, or no response."""

    def __init__(self, otherwise: dict[int, Callable[[], object]]) -> None:
        self.otherwise = otherwise
        self.observations = 0

    def query(self, names: Sequence[str], timeout_s: float) -> Metadata:
        assert (names, timeout_s) == (("t",), topic_observer.OBSERVATION_S)
        self.observations += 1
        racks = self.otherwise.get(self.observations, lambda: RACKS)()
        assert isinstance(racks, dict)
        return Metadata(racks, 1, {("t", 0): STATE})

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        assert request_timeout == topics.QUERY_S
        future: Future[Any] = Future()
        values = {gate.MIN_INSYNC_REPLICAS: "2", gate.MIN_INSYNC_RACKS: "2"}
        future.set_result({name: SimpleNamespace(value=value) for name, value in values.items()})
        return dict.fromkeys(resources, future)


def raises(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def beside(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the client stand for the brokers, in looks and in questions for settings."""
    monkeypatch.setattr(topics, "admin", lambda _: client)
    monkeypatch.setattr(topic_observer, "MetadataClient", lambda _: client)


def look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, otherwise: dict[int, Callable[[], object]], until: int
) -> list[Event]:
    client, history = Client(otherwise), History(tmp_path / "h")
    beside(client, monkeypatch)
    try:
        with observe_topics("x:1", ["t"], RACKS, history, interval_s=0.01):
            wait_for(lambda: client.observations >= until, goal="looks", timeout_s=5, interval_s=0.01)
    finally:
        events = list(history.events())
    return events


def test_observations_have_the_time_of_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = look(tmp_path, monkeypatch, {}, until=40)
    seen = cluster_view.observations(events)[PartitionName("t", 0)]
    assert len(seen) >= 13
    assert all(one.since_ns < one.at_ns and one.isr == (1, 2) and one.racks == RACKS for one in seen)
    assert len([one for one in events if one.op == "settings"]) >= 3, (
        "at first, at the end, and a tenth as often as looks"
    )
    assert not cluster_view.failed_observations(events)


def test_a_slow_query_of_settings_delays_no_observation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, history = Client({}), History(tmp_path / "h")
    beside(client, monkeypatch)
    with observe_topics("x:1", ["t"], RACKS, history, interval_s=0.01):
        monkeypatch.setattr(topics, "QUERY_S", 2.0)
        monkeypatch.setattr(client, "describe_configs", lambda resources, **_: dict.fromkeys(resources, Future()))
        observations = client.observations
        wait_for(lambda: client.observations >= observations + 20, goal="looks", timeout_s=5, interval_s=0.01)
        assert not any(one.op == topic_observer.SETTINGS_OBSERVATION for one in history.events()), (
            "the first one is still waiting"
        )
    late = [one for one in history.events() if one.op == topic_observer.SETTINGS_OBSERVATION]
    assert late
    assert all(one.outcome == "unknown" for one in late)


def test_a_missing_response_is_unknown_and_observations_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = raises(RackgateError("nobody"))
    events = look(tmp_path, monkeypatch, {2: silent}, until=4)
    assert len(cluster_view.failed_observations(events)) == 1
    assert len(cluster_view.observations(events)[PartitionName("t", 0)]) >= 4


def test_racks_are_current_and_an_absent_broker_keeps_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_round: dict[int, Callable[[], object]] = {1: lambda: {1: "a"}, 2: lambda: {1: "c"}, 3: lambda: {2: "d"}}
    seen = cluster_view.observations(look(tmp_path, monkeypatch, by_round, until=4))[PartitionName("t", 0)]
    assert [one.racks for one in seen[:4]] == [{1: "a", 2: "b"}, {1: "c", 2: "b"}, {1: "c", 2: "d"}, RACKS]


@pytest.mark.parametrize("which", [1, 3])
def test_any_other_error_is_recorded_and_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """The first look is made here, and the third one in the thread."""
    history = History(tmp_path / "h")
    error = "observing topics ended early: OverflowError: odd" if which == 3 else "^odd$"
    with pytest.raises((RackgateError, OverflowError), match=error):
        look(tmp_path, monkeypatch, {which: raises(OverflowError("odd"))}, until=3)
    (ended,) = [one for one in history.events() if one.outcome == "unknown"]
    assert (ended.process, ended.op, ended.data["error"]) == (event_names.OBSERVER, "look", "OverflowError: odd")


def test_an_error_in_the_last_observation_is_raised_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, history = Client({}), History(tmp_path / "h")
    beside(client, monkeypatch)
    with pytest.raises(OverflowError, match="odd"), observe_topics("x:1", ["t"], RACKS, history, interval_s=60):
        client.otherwise = {2: raises(OverflowError("odd"))}
    assert len(cluster_view.failed_observations(history.events())) == 1


def test_an_observation_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_observer, "JOIN_S", 0.1)
    free = threading.Event()
    try:
        with pytest.raises(RackgateError, match="an observation still runs"):
            look(tmp_path, monkeypatch, {2: lambda: free.wait(30)}, until=2)
        assert cluster_view.failed_observations(History(tmp_path / "h").events())
    finally:
        free.set()


def test_an_error_of_the_run_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, history = Client({2: raises(OverflowError("odd"))}), History(tmp_path / "h")
    beside(client, monkeypatch)

    def run() -> None:
        with observe_topics("x:1", ["t"], RACKS, history, interval_s=0.01):
            wait_for(
                lambda: cluster_view.failed_observations(history.events()), goal="the end", timeout_s=5, interval_s=0.01
            )
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError) as found:
        run()
    assert found.value.__notes__ == ["observing topics ended early: OverflowError: odd"]


@pytest.fixture
def signals() -> Iterator[None]:
    """Restore the signal handlers after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_as_a_process_it_observes_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, path = Client({}), tmp_path / "h"
    beside(client, monkeypatch)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    options = [
        "--bootstrap",
        "x:1",
        "--topics",
        "t",
        "--racks",
        "1=a,2=b",
        "--interval",
        "0.01",
        "--history",
        str(path),
    ]
    assert topic_observer.main([*options, "--run", "run-1"]) == 0
    seen = cluster_view.observations(History(path).events())[PartitionName("t", 0)]
    assert len(seen) >= 3
    assert {(one.isr, tuple(one.racks.items())) for one in seen} == {((1, 2), ((1, "a"), (2, "b")))}


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("text", ["1", "a=1", "1=a,=b"])
def test_invalid_racks_are_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--bootstrap", "x:1", "--topics", "t", "--racks", text, "--history", str(tmp_path / "h")]
    assert topic_observer.main(options) == 2
    assert f"--racks {text}: " in capsys.readouterr().err
