"""Metrics: parsing, history events and the poller, without a JVM."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event, History
from pyhooks.history.events import PollDetails
from pyhooks.lab.mbeans import BEANS, MetricsReading, SocketSource, parse_metrics
from pyhooks.lab.metrics import Metric, Poll, Poller, metrics_of, poll_once, record_polls, rows

PARTITION = "kafka.cluster:type=Partition,name=IsrRackCount,topic=or-ders.x,partition=7"


def test_mbeans_become_metrics_with_kafka_names() -> None:
    responses = (
        (PARTITION, "Value", "2"),
        ("kafka.server:type=ReplicaManager,name=RackCheckFailureRate", "OneMinuteRate", "0.25"),
        ("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=orders", "Count", "10"),
        ("kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=Produce,error=NOT_ENOUGH_RACKS", "Count", "3"),
        ("kafka.network:error=NONE,name=ErrorsPerSec,request=Produce,type=RequestMetrics", "Count", "4"),
        ("kafka.server:type=KafkaServer,name=ClusterId", "Value", "abc"),
        ('x:type=T,name=Quoted,topic="a,b=c"', "Value", "NaN"),
    )
    metrics = metrics_of(MetricsReading(responses), 1, 5, 6)
    assert [(metric.topic, metric.partition, metric.name, metric.value) for metric in metrics] == [
        ("or-ders.x", 7, "IsrRackCount", 2),
        (None, None, "RackCheckFailureRate.OneMinuteRate", 0.25),
        ("orders", None, "BytesInPerSec.Count", 10),
        (None, None, "ErrorsPerSec.Produce.NOT_ENOUGH_RACKS.Count", 3),
        (None, None, "ErrorsPerSec.Produce.NONE.Count", 4),
        (None, None, "ClusterId", None),
        ('"a,b=c"', None, "Quoted", None),
    ]


NAMES = st.sampled_from(["IsrRackCount", "LogEndOffset", "A.Count", "ErrorsPerSec.Produce.NONE.Count"])
TOPICS = st.sampled_from(["orders", "a-b", "a-1", "__consumer_offsets", "x.y_z"])
KEYS = st.one_of(
    st.tuples(st.none(), st.none(), NAMES),
    st.tuples(TOPICS, st.none(), NAMES),
    st.tuples(TOPICS, st.integers(0, 3), NAMES),
)
VALUES = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False))


@given(st.dictionaries(KEYS, VALUES), st.integers(0, 10**15))
def test_a_poll_survives_a_round_trip_through_its_event(
    values: dict[tuple[str | None, int | None, str], float], mono_ns: int
) -> None:
    metrics = tuple(Metric(3, *key, value, mono_ns, 77) for key, value in values.items())
    event = Poll(3, "broker-3", "b", mono_ns, mono_ns, 77, 1.5, 99, metrics).event()
    assert PollDetails.describes(event)
    assert set(rows(Event.parse(event.line()))) == set(metrics)


def test_a_failed_poll_has_an_error_and_no_rows() -> None:
    event = Poll(3, "broker-3", "b", 5, 6, 7, problem="broker-3: no metrics: dead").event()
    assert (event.outcome, event.rack, event.data["problem"]) == ("unknown", "b", "broker-3: no metrics: dead")
    assert list(rows(event)) == []


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (b"", "ends early"),
        (b"=\tx\tValue\t1\n", "ends early"),
        (b"=\tx\tValue\t1\n.\t2\t0\n", "ends early"),
        (b"=\tx\tValue\n.\t1\t0\n", "can't read the line"),
        (b"!\t\tbusy: ask again\n.\t0\t1\n", "busy: ask again"),
        (b"GET / HTTP/1.1\n", "can't read the line"),
    ],
)
def test_invalid_responses_are_errors(response: bytes, text: str) -> None:
    with pytest.raises(RackgateError, match=text):
        parse_metrics(response, "broker-1")


def test_a_response_may_report_unreadable_mbeans() -> None:
    reading = parse_metrics(b"=\tx:a=1\tValue\ta\\tb\\\\\n!\ty:a=1\tgone\n.\t1\t1\n", "broker-1")
    assert reading.rows == (("x:a=1", "Value", "a\tb\\"),)
    assert reading.errors == ("y:a=1: gone",)


@contextmanager
def socket_server(path: Path, response: bytes, *, hang: bool = False) -> Iterator[list[bytes]]:
    """Serve one response on a Unix socket, or none with ``hang``; yield the received requests."""
    requests: list[bytes] = []
    done = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(8)

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                requests.append(client.recv(65536))
                if hang:
                    done.wait(10)
                # A client that timed out has closed the connection.
                with suppress(OSError):
                    client.sendall(response)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield requests
        done.set()
        thread.join(5)


def test_all_mbeans_are_requested_from_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with socket_server(path, b"=\tx:a=1\tValue\t1\n.\t1\t0\n") as requests:
        reading = SocketSource(1, "broker-1", "a", path).read(5)
    assert reading.rows == (("x:a=1", "Value", "1"),)
    fields = requests[0].decode().rstrip("\n").split("\t")
    assert list(zip(fields[::2], fields[1::2], strict=True)) == list(BEANS)


def test_a_poll_of_an_unresponsive_jvm_times_out(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with socket_server(path, b"", hang=True):
        started = time.monotonic()
        poll = poll_once(SocketSource(1, "broker-1", "a", path), 0.2)
    assert time.monotonic() - started < 2
    assert poll.problem.startswith("broker-1: no metrics within 0.2 s")
    assert poll_once(SocketSource(1, "broker-1", "a", tmp_path / "none"), 1).problem.startswith(
        "broker-1: no metrics: "
    )
    stale = poll_once(SocketSource(1, "broker-1", "a", path), 1)
    assert "refused" in stale.problem, "the socket file of a killed process"


@dataclass
class SlowSource:
    """Fake metrics source: each read takes the next of ``takes_s``; then every read fails."""

    takes_s: list[float]
    broker: int = 1
    name: str = "broker-1"
    rack: str | None = "a"
    timeout_s: float = 5

    def read(self, timeout_s: float) -> MetricsReading:
        assert timeout_s == self.timeout_s
        if not self.takes_s:
            raise RackgateError("broker-1: no metrics: dead")
        time.sleep(self.takes_s.pop(0))
        return MetricsReading(((PARTITION, "Value", "2"),), (), 10)


@dataclass
class PollList:
    """Sink that keeps all polls."""

    polls: list[Poll] = field(default_factory=list)

    def __call__(self, poll: Poll) -> None:
        self.polls.append(poll)

    def of(self, broker: int) -> list[Poll]:
        return [poll for poll in self.polls if poll.broker == broker]


def test_each_source_has_one_poll_per_interval() -> None:
    sink = PollList()
    slow_source, fast_source = SlowSource([0.0, 3.5, 0.0, 0.0]), SlowSource([0.0] * 99, broker=2)
    with Poller([slow_source, fast_source], sink, interval_s=1.0, timeout_s=5):
        wait_for(lambda: len(sink.of(1)) >= 8 and len(sink.of(2)) >= 8, goal="polls", timeout_s=30, interval_s=0.01)
    slow_polls = sink.of(1)
    gaps = {round((right.due_ns - left.due_ns) / 1e9) for left, right in pairwise(slow_polls)}
    assert gaps == {1}, "no interval is skipped"
    problems = [poll.problem for poll in slow_polls[:8]]
    assert problems[:2] == ["", ""]
    missed = [problem for problem in problems if "missed" in problem]
    assert 2 <= len(missed) <= 3, problems
    assert problems[-1] == "broker-1: no metrics: dead"
    assert all(not poll.problem for poll in sink.of(2)[:8]), "a slow broker does not delay another"


def test_polls_are_recorded_in_a_history(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    with record_polls([SlowSource([0.0], timeout_s=1)], history, interval_s=0.5):
        wait_for(lambda: len(list(history.events())) >= 3, goal="events", timeout_s=10, interval_s=0.01)
    events = [event for event in history.events() if PollDetails.describes(event)]
    assert [event.outcome for event in events[:3]] == ["ok", "unknown", "unknown"]
    assert [(metric.topic, metric.partition, metric.name, metric.value) for metric in rows(events[0])] == [
        ("or-ders.x", 7, "IsrRackCount", 2)
    ]


def test_a_history_that_cannot_be_written_is_an_error() -> None:
    failed = threading.Event()

    def sink(_: Poll) -> None:
        failed.set()
        raise OSError("no space left on device")

    with (
        pytest.raises(RackgateError, match="polls failed: OSError"),
        Poller([SlowSource([0.0])], sink, interval_s=0.05, timeout_s=5),
    ):
        assert failed.wait(10)


def test_an_interval_of_zero_is_an_error() -> None:
    with pytest.raises(RackgateError, match="interval 0 s"):
        Poller([], PollList(), interval_s=0)
