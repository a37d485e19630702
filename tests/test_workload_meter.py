"""What asks brokers for their metrics, without brokers."""

from __future__ import annotations

from typing import Any

import pytest

from pyhooks.cluster.metrics import poll, rows
from pyhooks.errors import RackgateError
from pyhooks.jvm.jmx import Row
from pyhooks.wait import wait_for
from pyhooks.workload import meter
from pyhooks.workload.meter import PATTERNS, JmxSource, source


class Port:
    """A JMX port that answers, or does not."""

    made: list[Port] = []  # noqa: RUF012 - all of a test
    answers = True

    def __init__(self, host: str, port: int, *, timeout_s: float) -> None:
        if not Port.answers:
            raise RackgateError(f"{host}:{port}: nobody within {timeout_s:g} s")
        self.asked: list[str] = []
        self.closed = False
        Port.made.append(self)

    def query(self, pattern: str) -> tuple[Row, ...]:
        if not Port.answers:
            raise RackgateError("no answer")
        self.asked.append(pattern)
        if "RackCheckFailureRate" in pattern:
            return (Row(pattern, "Count", 3), Row(pattern, "EventType", "failures"), Row(pattern, "MeanRate", 0.1))
        if "IsrRackCount" in pattern:
            name = pattern.replace("*", "topic=t,partition=0")
            return (Row(name, "Value", 2),)
        return ()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> type[Port]:
    Port.made, Port.answers = [], True
    monkeypatch.setattr(meter, "Jmx", Port)
    return Port


def test_a_broker_is_asked_for_the_gate_alone(ports: Any) -> None:
    own = source("1,broker-1,a,10.77.1.10,9999")
    found = {(one.topic, one.partition, one.name): one.value for one in rows(poll(own, 1.0).event())}
    assert found == {("t", 0, "IsrRackCount"): 2, (None, None, "RackCheckFailureRate.Count"): 3}
    assert poll(own, 1.0).problem == ""
    assert len(ports.made) == 1
    assert ports.made[0].asked == list(PATTERNS) * 2


def test_a_broker_that_comes_back_is_connected_to_anew(ports: Any) -> None:
    own = source("1,broker-1,,10.77.1.10,9999")
    assert own.rack is None
    assert poll(own, 1.0).problem == ""
    ports.answers = False
    assert "broker-1: no metrics: no answer" in poll(own, 1.0).problem
    assert "nobody within 1 s" in poll(own, 1.0).problem
    ports.answers = True
    assert poll(own, 1.0).problem == ""
    wait_for(lambda: [one.closed for one in ports.made] == [True, False], what="the old one to be closed", timeout_s=5)


@pytest.mark.parametrize("text", ["", "1,broker-1,a,host", "x,broker-1,a,host,1", "1,broker-1,a,host,port"])
def test_what_names_no_broker_is_refused(text: str) -> None:
    with pytest.raises(RackgateError, match="expected id,name,rack,host,port"):
        source(text)
    assert isinstance(source("7,b,r,h,1"), JmxSource)
