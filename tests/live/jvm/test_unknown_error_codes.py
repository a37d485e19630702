"""A producer does not retry on an unknown error code, so brokers send older versions a known one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import confluent_kafka
import pytest

from fake_leader import TOPIC, leader
from pyhooks.core import paths
from pyhooks.jvm.gateway import Gateway
from pyhooks.jvm.producer import Producer
from pyhooks.patchset.client_classpaths import client_classpath

NOT_ENOUGH_REPLICAS, NOT_ENOUGH_RACKS, NOT_ENOUGH_RACKS_AFTER_APPEND = 19, 137, 138
UNKNOWN = (NOT_ENOUGH_RACKS, NOT_ENOUGH_RACKS_AFTER_APPEND)
IDEMPOTENCE = ("true", "false")
LIBRDKAFKA = "librdkafka"
# clients, and the Produce version that each negotiates with a stock broker of this release
STOCK = {"3.9": 11, paths.kafka_version(): 13, LIBRDKAFKA: 10}
PATCHED = "patched"
WAIT_S = 60
TABLE = paths.OUT / "clients" / "unknown-codes.json"
# Function that sends a record with the given configuration and returns its error, or an empty string.
Send = Callable[[Mapping[str, str]], str]


@pytest.fixture(scope="module")
def table() -> Iterator[list[dict[str, Any]]]:
    """Collect observations and write them to a file at the end."""
    rows: list[dict[str, Any]] = []
    yield rows
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


@pytest.fixture(scope="module", params=[*STOCK])
def client(request: pytest.FixtureRequest) -> Iterator[tuple[str, Send]]:
    name = str(request.param)
    if name == LIBRDKAFKA:
        yield name, _send_by_librdkafka
    else:
        with Gateway(client_classpath(name)) as home:
            yield name, _send_by(home)


def _send_by(home: Gateway) -> Send:
    def send(config: Mapping[str, str]) -> str:
        with Producer(config["bootstrap.servers"], config, home=home) as producer:
            sent = producer.send_batch(TOPIC, [b"value"], partitions=0).result(WAIT_S)
        return "" if sent.acked.all() else sent.errors[0].java_class.rpartition(".")[2]

    return send


def _send_by_librdkafka(config: Mapping[str, str]) -> str:
    ends: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer({**config, "log_level": 2})
    producer.produce(TOPIC, b"value", partition=0, on_delivery=lambda error, _: ends.append(error))
    assert producer.flush(WAIT_S) == 0
    (error,) = ends
    return "" if error is None else str(error.code())


def attempts(
    client: tuple[str, Send], table: list[dict[str, Any]], code: int, idempotent: str
) -> tuple[list[tuple[int, int]], str]:
    """Send one record with the client's default retries; return its requests and result."""
    name, send = client
    with leader(code) as broker:
        error = send({"bootstrap.servers": broker.address, "acks": "all", "enable.idempotence": idempotent})
    table.append({"client": name, "idempotent": idempotent, "code": code, "answered": broker.produced, "error": error})
    return broker.produced, error


@pytest.mark.parametrize("idempotent", IDEMPOTENCE)
@pytest.mark.parametrize("code", UNKNOWN)
def test_an_unknown_code_is_not_retried_and_the_record_is_lost(
    client: tuple[str, Send], table: list[dict[str, Any]], code: int, idempotent: str
) -> None:
    name, _ = client
    seen, error = attempts(client, table, code, idempotent)
    assert seen == [(STOCK[name], code)]
    assert error == (str(code) if name == LIBRDKAFKA else "UnknownServerException")


@pytest.mark.parametrize("idempotent", IDEMPOTENCE)
def test_the_code_that_stands_for_them_is_retried(
    client: tuple[str, Send], table: list[dict[str, Any]], idempotent: str
) -> None:
    name, _ = client
    seen, error = attempts(client, table, NOT_ENOUGH_REPLICAS, idempotent)
    assert seen == [(STOCK[name], NOT_ENOUGH_REPLICAS), (STOCK[name], 0)]
    assert error == ""


def test_a_client_that_knows_them_tries_again(table: list[dict[str, Any]]) -> None:
    """Control: the missing retries above are caused by the error codes and not by the fake broker."""
    with Gateway(client_classpath(PATCHED)) as home:
        for code in UNKNOWN:
            for idempotent in IDEMPOTENCE:
                seen, error = attempts((PATCHED, _send_by(home)), table, code, idempotent)
                assert [answer for _, answer in seen] == [code, 0]
                assert error == ""
