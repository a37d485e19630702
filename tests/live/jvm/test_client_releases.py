"""Java clients of other releases against overlay brokers whose ISR is in one rack: versions and error codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from fake_leader import produced
from loopback_brokers import Exchange, Pair, Wire, produce_error, rejected_attempt
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.jvm.gateway import Gateway
from pyhooks.jvm.java_exception import JavaError
from pyhooks.patchset import recipe
from pyhooks.patchset.client_classpaths import client_classpath, releases
from pyhooks.patchset.distribution import Distribution

ERRORS = "org.apache.kafka.common.errors"
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_RACKS = 137
ONE_ATTEMPT = {"acks": "all", "retries": "0", "enable.idempotence": "false", "max.block.ms": "20000"}
MATRIX = paths.OUT / "clients" / "matrix.json"


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    made = Wire([0, 0])
    yield made
    made.close()
    assert made.faults == []


@pytest.fixture(scope="module")
def pair(wire: Wire, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    classpath = Distribution.load().classpath()
    made = Pair(tmp_path_factory.mktemp("matrix"), advertised=wire.ports)
    wire.point(made.ports[:2])
    made.format(classpath)
    with made.running(classpath), Admin(made.bootstrap) as admin:
        admin.create_topic("gated", [[1, 2]], {"min.insync.replicas": "1", "min.insync.racks": "2"})
        wait_for(lambda: admin.in_sync("gated", (1, 2)), goal="both replicas in sync", timeout_s=60)
        yield made


@pytest.fixture(scope="module")
def rows() -> Iterator[dict[str, Any]]:
    """Collect observations and write them to a file at the end."""
    seen: dict[str, Any] = {}
    yield seen
    MATRIX.parent.mkdir(parents=True, exist_ok=True)
    MATRIX.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def rejected(wire: Wire, pair: Pair, classpath: str) -> tuple[Exchange, JavaError, int]:
    """Make one attempt with a Java producer; return the exchange on the wire, the exception, and its latest version."""
    wire.take()
    with Gateway(classpath) as gateway:
        error = rejected_attempt(gateway, pair.bootstrap, ONE_ATTEMPT)
        latest = gateway.produce_versions().latest
    (exchange,) = wire.take()
    return exchange, error, latest


def note(rows: dict[str, Any], name: str, exchange: Exchange, exception: str, latest: int | None) -> None:
    rows[name] = {**asdict(exchange), "exception": exception, "latest_version_of_client": latest}


# An earlier client's latest Produce version is negotiated, since the brokers support versions 3 to 14.
@pytest.mark.parametrize(
    ("release", "software", "version"),
    [
        ("2.8", "apache-kafka-java 2.8.2", 9),
        ("3.9", "apache-kafka-java 3.9.2", 11),
        ("4.4", "apache-kafka-java 4.4.0", 13),
    ],
)
def test_a_stock_client_of_another_release(
    wire: Wire, pair: Pair, rows: dict[str, Any], release: str, software: str, version: int
) -> None:
    exchange, error, latest = rejected(wire, pair, client_classpath(release))
    note(rows, f"client-{release}", exchange, error.java_class, latest)
    assert exchange.software == software
    assert (exchange.version, exchange.error) == (version, NOT_ENOUGH_REPLICAS)
    assert latest == version
    assert error.java_class == f"{ERRORS}.NotEnoughReplicasException"
    assert error.retriable
    # the message comes from the broker and names what is missing
    assert "min.insync.racks" in exchange.message
    assert exchange.message == error.text


@pytest.mark.parametrize(
    ("overlay", "version", "code", "exception"),
    [
        (False, 13, NOT_ENOUGH_REPLICAS, "NotEnoughReplicasException"),
        (True, 14, NOT_ENOUGH_RACKS, "NotEnoughRacksException"),
    ],
)
def test_the_client_of_this_release(
    wire: Wire, pair: Pair, rows: dict[str, Any], overlay: bool, version: int, code: int, exception: str
) -> None:
    exchange, error, latest = rejected(wire, pair, Distribution.load().classpath(overlay=overlay))
    note(rows, f"client-{paths.kafka_version()}{'-overlay' if overlay else ''}", exchange, error.java_class, latest)
    assert exchange.software == f"apache-kafka-java {paths.kafka_version()}"
    assert (exchange.version, exchange.error) == (version, code)
    assert latest == version
    assert error.java_class == f"{ERRORS}.{exception}"
    assert error.retriable
    assert "spans 1 rack(s)" in error.text


def test_the_clients_jar_of_the_overlay_alone_is_enough_for_an_application(
    wire: Wire, pair: Pair, rows: dict[str, Any]
) -> None:
    root = Distribution.load().root
    exchange, error, latest = rejected(wire, pair, f"{root}/overlay/clients-rackgate.jar:{root}/libs/*")
    note(rows, f"client-{paths.kafka_version()}-clients-jar", exchange, error.java_class, latest)
    assert (exchange.version, exchange.error) == (14, NOT_ENOUGH_RACKS)
    assert error.java_class == f"{ERRORS}.NotEnoughRacksException"


def test_librdkafka(wire: Wire, pair: Pair, rows: dict[str, Any]) -> None:
    wire.take()
    errors: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": pair.bootstrap, "acks": "all", "retries": 0, "log_level": 2}
    )
    producer.produce("gated", b"value", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(20) == 0
    (exchange,) = wire.take()
    note(rows, "librdkafka", exchange, errors[0].name(), None)
    assert exchange.software.startswith("confluent-kafka-python")
    assert exchange.version < 14
    assert exchange.error == NOT_ENOUGH_REPLICAS
    assert errors[0].code() == confluent_kafka.KafkaError.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("version", [9, 12, 13, 14])
def test_the_wire_is_read_as_it_is_defined(version: int) -> None:
    assert produce_error(produced(version, 137, b"too few"), version) == (137, "too few")
    assert produce_error(produced(version, 0), version) == (0, "")


def test_a_version_that_is_not_known_is_not_guessed() -> None:
    with pytest.raises(AssertionError, match="not known"):
        produce_error(produced(14, 137), 15)


def test_each_release_has_a_class_path_of_its_own() -> None:
    plan = recipe.load()
    versions = {role: plan.find("kafka-clients", role).version for role in sorted(recipe.CLIENT_ROLES)}
    assert versions == {"client-2.8": "2.8.2", "client-3.9": "3.9.2", "client-4.4": "4.4.0"}
    assert releases() == ("patched", plan.version, "2.8", "3.9", "4.4")
    for role in versions:
        clients = [artifact for artifact in plan.with_role(role) if artifact.name == "kafka-clients"]
        assert [artifact.version for artifact in clients] == [versions[role]]


def test_a_release_that_is_not_pinned_is_named_with_those_that_are() -> None:
    with pytest.raises(RackgateError, match=r"'3\.7' is known: patched, [\d.]+, 2\.8, 3\.9, 4\.4"):
        client_classpath("3.7")


def test_the_class_paths_differ_in_the_client_alone() -> None:
    built = Distribution.load()
    paths_of = {release: client_classpath(release).split(":") for release in releases()}
    assert all(words[-1] == str(built.hooks) for words in paths_of.values())
    assert paths_of["patched"][:-1] == built.classpath().split(":")
    assert paths_of[paths.kafka_version()][:-1] == built.classpath(overlay=False).split(":")
    for release in ("2.8", "3.9", "4.4"):
        names = [Path(word).name for word in paths_of[release]]
        client = recipe.load().find("kafka-clients", f"client-{release}")
        assert [name for name in names if name.startswith("kafka")] == [client.file_name]
