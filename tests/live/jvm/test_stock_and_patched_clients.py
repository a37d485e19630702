"""Errors of the gate, as patched and stock clients of two patched brokers in rack a receive them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from loopback_brokers import Pair, rejected_attempt
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import DIES_WITH_PARENT, run
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event, History
from pyhooks.jvm import client
from pyhooks.jvm.admin import Admin
from pyhooks.jvm.gateway import Gateway
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.producer import Acknowledged, Producer
from pyhooks.patchset.distribution import Distribution

ERRORS = "org.apache.kafka.common.errors"
ONE_ATTEMPT = {"acks": "all", "retries": "0", "enable.idempotence": "false"}
EXTRA = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run two brokers in rack a, one of them also the controller; yield their addresses."""
    classpath = Distribution.load().classpath()
    pair = Pair(tmp_path_factory.mktemp("cluster"), extra=EXTRA)
    pair.format(classpath)
    with pair.running(classpath), Admin(pair.bootstrap) as admin:
        wait_for(lambda: topics_created(admin), goal="two brokers", timeout_s=90, interval_s=0.5)
        # replicas can be placed on a registered but fenced broker, but they are not in sync
        for topic in ("gated", "switched"):
            wait_for(partial(admin.in_sync, topic, (1, 2)), goal=f"both replicas of {topic} in sync", timeout_s=60)
        yield pair.bootstrap


def topics_created(admin: Admin) -> bool:
    """Create this module's topics once both brokers are unfenced."""
    gate = {"min.insync.replicas": "1", "min.insync.racks": "2"}
    try:
        admin.create_topic("gated", [[1, 2]], gate)
    except JavaError:
        return False
    admin.create_topic("capped", [[1]], gate)
    admin.create_topic("switched", [[1, 2]], gate)
    return True


def answer_of(bootstrap: str, topic: str, config: dict[str, str]) -> Acknowledged | JavaError:
    answers: list[Acknowledged | JavaError] = []
    with Producer(bootstrap, config) as producer:
        producer.send(topic, "key", "value", answers.append)
    assert len(answers) == 1
    return answers[0]


def probe(bootstrap: str, history: Path, *more: str) -> list[Event]:
    command = [sys.executable, "-m", "pyhooks.workload.producer", "--mode", "probe", "--bootstrap", bootstrap]
    command += ["--history", str(history)]
    run([*command, *more], task="probe", timeout_s=60)
    return list(History(history).events())


def test_the_patched_producer_is_rejected_by_name_and_nothing_enters_the_log(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        before = admin.log_bytes("gated", 1)
        answer = answer_of(bootstrap, "gated", ONE_ATTEMPT)
        assert isinstance(answer, JavaError)
        assert answer.java_class == f"{ERRORS}.NotEnoughRacksException"
        assert answer.retriable
        assert "spans 1 rack(s)" in answer.text
        assert "1 (a), 2 (a)" in answer.text
        assert admin.log_bytes("gated", 1) == before


def test_acks_1_and_a_single_replica_are_not_rejected(bootstrap: str) -> None:
    assert isinstance(answer_of(bootstrap, "switched", {**ONE_ATTEMPT, "acks": "1"}), Acknowledged)
    assert answer_of(bootstrap, "capped", ONE_ATTEMPT) == Acknowledged("capped", 0, 0)


def test_a_lowered_config_accepts_the_record(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.set_topic_config("switched", "min.insync.racks", "1")

        def acknowledged() -> bool:
            return isinstance(answer_of(bootstrap, "switched", ONE_ATTEMPT), Acknowledged)

        wait_for(acknowledged, goal="an acknowledgement", timeout_s=60)
        with pytest.raises(JavaError) as caught:
            admin.set_topic_config("switched", "min.insync.racks", "0")
        assert caught.value.java_class == f"{ERRORS}.InvalidConfigurationException"
        assert not caught.value.retriable


def test_the_stock_java_client_gets_a_known_error(bootstrap: str) -> None:
    with Gateway(Distribution.load().classpath(overlay=False)) as stock:
        error = rejected_attempt(stock, bootstrap, ONE_ATTEMPT)
    assert error.java_class == f"{ERRORS}.NotEnoughReplicasException"
    assert error.retriable
    # the message comes from the broker and still says that racks are missing
    assert "min.insync.racks" in error.text


def test_librdkafka_gets_a_known_error(bootstrap: str) -> None:
    errors: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "retries": 0, "log_level": 2})
    producer.produce("gated", b"value", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(20) == 0
    assert errors[0].code() == confluent_kafka.KafkaError.NOT_ENOUGH_REPLICAS


def test_the_probe_writes_each_attempt(bootstrap: str, tmp_path: Path) -> None:
    events = probe(bootstrap, tmp_path / "h.jsonl", "--topics", "gated,capped", "--rate", "20", "--count", "3")
    attempts = [event for event in events if event.op == "produce"]
    gated = [event for event in attempts if event.data["topic"] == "gated"]
    capped = [event for event in attempts if event.data["topic"] == "capped"]
    assert sorted(event.data["seq"] for event in gated) == [0, 1, 2]
    assert {event.outcome for event in gated} == {"fail"}
    assert {event.data["exception"] for event in gated} == {f"{ERRORS}.NotEnoughRacksException"}
    assert [event.outcome for event in capped] == ["ok"] * 3
    assert len({event.data["key"] for event in attempts}) == 6
    assert len([event for event in events if event.op == "end"]) == 2


def test_default_settings_end_in_a_timeout(bootstrap: str, tmp_path: Path) -> None:
    more = ("--topics", "gated", "--count", "1", "--defaults", "--delivery-timeout-ms", "2000")
    (attempt,) = (event for event in probe(bootstrap, tmp_path / "h.jsonl", *more) if event.op == "produce")
    assert attempt.outcome == "unknown"
    assert attempt.data["exception"] == f"{ERRORS}.TimeoutException"
    assert attempt.data["latency_ms"] >= 2000
    assert attempt.data["defaults"] is True


def test_a_probe_of_a_missing_topic_ends(bootstrap: str, tmp_path: Path) -> None:
    more = ("--topics", "absent", "--seconds", "1", "--rate", "10", "--timeout-ms", "700")
    events = probe(bootstrap, tmp_path / "h.jsonl", *more)
    attempts = [event for event in events if event.op == "produce"]
    assert 1 <= len(attempts) <= 3, "slots that pass while the producer waits are left out"
    assert {event.outcome for event in attempts} == {"unknown"}


def test_a_terminated_probe_records_every_attempt(bootstrap: str, tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    command = [sys.executable, "-m", "pyhooks.workload.producer", "--mode", "probe", "--bootstrap", bootstrap]
    command += ["--history", str(path)]
    command += ["--topics", "gated", "--rate", "20", "--seconds", "120"]
    with subprocess.Popen([*DIES_WITH_PARENT, *command], stderr=subprocess.DEVNULL) as child:
        wait_for(path.exists, goal="the first attempt", timeout_s=90)
        child.terminate()
        assert child.wait(timeout=20) == 0
    events = list(History(path).events())
    (end,) = (event for event in events if event.op == "end")
    seqs = sorted(event.data["seq"] for event in events if event.op == "produce")
    assert seqs == list(range(end.data["attempts"]))


def test_errors_of_a_callback_are_not_swallowed(bootstrap: str) -> None:
    def broken(_answer: object) -> None:
        raise ValueError("disk full")

    producer = Producer(bootstrap, ONE_ATTEMPT)
    producer.send("capped", "key", "value", broken)
    with pytest.raises(ValueError, match="disk full"):
        producer.close()


def test_a_rejected_configuration_is_a_java_error(bootstrap: str) -> None:
    with pytest.raises(JavaError) as caught:
        Producer(bootstrap, {"acks": "some"})
    assert caught.value.java_class == "org.apache.kafka.common.config.ConfigException"


def test_one_machine_one_class_path(bootstrap: str) -> None:
    Admin(bootstrap).close()
    with pytest.raises(RackgateError, match="another class path"):
        client.ensure_started("elsewhere")


def test_a_topic_that_the_broker_does_not_know_yet_is_not_in_sync(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        assert not admin.in_sync("not-created", (1, 2))
        assert admin.in_sync("gated", (2, 1))
        assert not admin.in_sync("gated", (1,))
