"""Topic observer: observations, changed racks, and errors, which are recorded and raised to the caller."""

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


class FakeClient:
    """Fake clients of the observer.

    ``otherwise`` maps the number of an observation, from 1, to other racks or an error.
    """

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


def failing_with(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def install(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the fake client for metadata and for settings."""
    monkeypatch.setattr(topics, "admin", lambda _: client)
    monkeypatch.setattr(topic_observer, "MetadataClient", lambda _: client)


def observe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, otherwise: dict[int, Callable[[], object]], until: int
) -> list[Event]:
    client, history = FakeClient(otherwise), History(tmp_path / "h")
    install(client, monkeypatch)
    try:
        with observe_topics("x:1", ["t"], RACKS, history, interval_s=0.01):
            wait_for(lambda: client.observations >= until, goal="observations", timeout_s=5, interval_s=0.01)
    finally:
        events = list(history.events())
    return events


def test_observations_have_the_time_of_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = observe(tmp_path, monkeypatch, {}, until=40)
    observed = cluster_view.observations(events)[PartitionName("t", 0)]
    assert len(observed) >= 13
    assert all(each.since_ns < each.at_ns and each.isr == (1, 2) and each.racks == RACKS for each in observed)
    assert len([event for event in events if event.op == "settings"]) >= 3, (
        "first, last, and with every tenth observation"
    )
    assert not cluster_view.failed_observations(events)


def test_a_slow_settings_query_does_not_delay_observations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, history = FakeClient({}), History(tmp_path / "h")
    install(client, monkeypatch)
    with observe_topics("x:1", ["t"], RACKS, history, interval_s=0.01):
        monkeypatch.setattr(topics, "QUERY_S", 5.0)
        first: Future[Any] = Future()
        monkeypatch.setattr(
            client,
            "describe_configs",
            lambda resources, **_: dict.fromkeys(resources, Future() if first.done() else first),
        )
        observations = client.observations
        wait_for(lambda: client.observations >= observations + 20, goal="observations", timeout_s=5, interval_s=0.01)
        assert not any(event.op == topic_observer.SETTINGS_OBSERVATION for event in history.events()), (
            "the first query is still waiting"
        )
        monkeypatch.setattr(topics, "QUERY_S", 0.05)
        first.set_exception(TimeoutError())
    last_queries = [event for event in history.events() if event.op == topic_observer.SETTINGS_OBSERVATION]
    assert last_queries
    assert all(event.outcome == "unknown" for event in last_queries)


def test_a_missing_response_is_unknown_and_observations_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_response = failing_with(RackgateError("no broker responds"))
    events = observe(tmp_path, monkeypatch, {2: no_response}, until=4)
    assert len(cluster_view.failed_observations(events)) == 1
    assert len(cluster_view.observations(events)[PartitionName("t", 0)]) >= 4


def test_racks_are_updated_and_an_unlisted_broker_keeps_its_last_rack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_observation: dict[int, Callable[[], object]] = {1: lambda: {1: "a"}, 2: lambda: {1: "c"}, 3: lambda: {2: "d"}}
    observed = cluster_view.observations(observe(tmp_path, monkeypatch, by_observation, until=4))[PartitionName("t", 0)]
    assert [each.racks for each in observed[:4]] == [{1: "a", 2: "b"}, {1: "c", 2: "b"}, {1: "c", 2: "d"}, RACKS]


@pytest.mark.parametrize("which", [1, 3])
def test_any_other_error_is_recorded_and_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """The first observation runs in the caller, the third in the thread."""
    history = History(tmp_path / "h")
    error = "observing topics ended early: OverflowError: odd" if which == 3 else "^odd$"
    with pytest.raises((RackgateError, OverflowError), match=error):
        observe(tmp_path, monkeypatch, {which: failing_with(OverflowError("odd"))}, until=3)
    (ended,) = [event for event in history.events() if event.outcome == "unknown"]
    assert (ended.process, ended.op, ended.data["error"]) == (event_names.OBSERVER, "look", "OverflowError: odd")


def test_an_error_in_the_last_observation_is_raised_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, history = FakeClient({}), History(tmp_path / "h")
    install(client, monkeypatch)
    with pytest.raises(OverflowError, match="odd"), observe_topics("x:1", ["t"], RACKS, history, interval_s=60):
        client.otherwise = {2: failing_with(OverflowError("odd"))}
    assert len(cluster_view.failed_observations(history.events())) == 1


def test_an_observation_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_observer, "JOIN_S", 0.1)
    release = threading.Event()
    try:
        with pytest.raises(RackgateError, match="an observation still runs"):
            observe(tmp_path, monkeypatch, {2: lambda: release.wait(30)}, until=2)
        assert cluster_view.failed_observations(History(tmp_path / "h").events())
    finally:
        release.set()


def test_an_error_of_the_run_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, history = FakeClient({2: failing_with(OverflowError("odd"))}), History(tmp_path / "h")
    install(client, monkeypatch)

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
def test_the_program_observes_until_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, path = FakeClient({}), tmp_path / "h"
    install(client, monkeypatch)

    def end_program() -> None:
        # the program handles signals before it observes
        wait_for(lambda: client.observations >= 3, goal="three observations", timeout_s=30, interval_s=0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_program).start()
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
    observed = cluster_view.observations(History(path).events())[PartitionName("t", 0)]
    assert len(observed) >= 3
    assert {(each.isr, tuple(each.racks.items())) for each in observed} == {((1, 2), ((1, "a"), (2, "b")))}


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("text", ["1", "a=1", "1=a,=b"])
def test_invalid_racks_are_rejected(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--bootstrap", "x:1", "--topics", "t", "--racks", text, "--history", str(tmp_path / "h")]
    assert topic_observer.main(options) == 2
    assert f"--racks {text}: " in capsys.readouterr().err
