"""Conversion of a ``--command-config`` file for librdkafka, Java clients and Spark."""

from __future__ import annotations

import re

import pytest

from bench.run import client_security
from pyhooks.core.errors import RackgateError

PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required\n"
    ' username="ops"\n password="se\\"cr=et; 1";',
}
SCRAM = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required username=ops password='x y';",
}


def test_user_name_and_password_are_passed_to_each_client() -> None:
    plain = client_security.convert_properties(PLAIN, "f")
    assert plain.librdkafka == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ops",
        "sasl.password": 'se"cr=et; 1',
    }
    assert plain.java == PLAIN
    assert plain.spark == {f"kafka.{key}": value for key, value in PLAIN.items()}
    scram = client_security.convert_properties(SCRAM | {"ssl.endpoint.identification.algorithm": ""}, "f")
    assert scram.librdkafka == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ops",
        "sasl.password": "x y",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert scram.java["ssl.endpoint.identification.algorithm"] == ""


def test_an_unsecured_cluster_needs_no_settings() -> None:
    unsecured = client_security.read_security(None)
    assert (unsecured.java, unsecured.librdkafka, unsecured.spark) == ({}, {}, {})
    assert client_security.convert_properties({}, "f").librdkafka == {"security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (PLAIN | {"linger.ms": "3", "acks": "1"}, "acks, linger.ms: not supported"),
        ({"security.protocol": "TLS"}, "security.protocol is TLS"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is GSSAPI: all clients of a run support PLAIN, SCRAM"),
        (PLAIN | {"sasl.jaas.config": 'x.Krb5LoginModule required password="hidden";'}, "must be: org.apache.kafka"),
        (PLAIN | {"sasl.jaas.config": ""}, "must be: org.apache.kafka"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"}, "must be https or empty"),
        (
            {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/absent"},
            "/absent: .*No such file",
        ),
    ],
)
def test_settings_that_not_all_clients_support_are_an_error(given: dict[str, str], error: str) -> None:
    with pytest.raises(RackgateError, match=error) as caught:
        client_security.convert_properties(given, "client.properties")
    assert str(caught.value).startswith("--command-config client.properties: ")
    assert "\n" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_repr_of_the_settings_contains_no_secrets() -> None:
    assert "cr=et" not in repr(client_security.convert_properties(PLAIN, "f"))


SECURE_SETTINGS = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "abc-7",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
REMOTE_MASTER, LOCAL_MASTER = "spark://host:7077", "spark://127.0.0.1:7077"


@pytest.mark.parametrize(
    ("master", "changed", "missing"),
    [
        (REMOTE_MASTER, {"spark.authenticate": "false"}, ["spark.authenticate=true"]),
        (REMOTE_MASTER, {"spark.authenticate": "yes"}, ["spark.authenticate=true"]),
        (REMOTE_MASTER, {"spark.authenticate.secret": ""}, ["spark.authenticate.secret=…"]),
        (REMOTE_MASTER, {"spark.network.crypto.enabled": "false"}, ["spark.network.crypto.enabled=true"]),
        (REMOTE_MASTER, {"spark.io.encryption.enabled": ""}, ["spark.io.encryption.enabled=true"]),
        (
            "yarn",
            dict.fromkeys(SECURE_SETTINGS, "false"),
            ["spark.authenticate=true", "spark.network.crypto.enabled=true", "spark.io.encryption.enabled=true"],
        ),
        (LOCAL_MASTER, {"spark.authenticate": "false"}, ["spark.authenticate=true"]),
    ],
)
def test_a_spark_cluster_without_authentication_or_encryption_is_an_error(
    master: str, changed: dict[str, str], missing: list[str]
) -> None:
    with pytest.raises(RackgateError, match=f"^--master {master}: ") as caught:
        client_security.check_spark(master, SECURE_SETTINGS | changed)
    assert re.findall(r"spark[.][\w.]+=\S+?(?=,| in )", str(caught.value)) == missing
    assert "\n" not in str(caught.value)
    assert "abc-7" not in str(caught.value)


@pytest.mark.parametrize(
    ("master", "settings"),
    [
        (REMOTE_MASTER, SECURE_SETTINGS),
        (REMOTE_MASTER, SECURE_SETTINGS | {"spark.authenticate": " TRUE "}),
        (REMOTE_MASTER, SECURE_SETTINGS | {"spark.network.crypto.enabled": "false", "spark.ssl.rpc.enabled": "true"}),
        ("yarn", {name: value for name, value in SECURE_SETTINGS.items() if name != "spark.authenticate.secret"}),
        (LOCAL_MASTER, {"spark.authenticate": "true", "spark.authenticate.secret": "abc-7"}),
    ],
)
def test_a_secure_spark_cluster_is_accepted(master: str, settings: dict[str, str]) -> None:
    client_security.check_spark(master, settings)


@pytest.mark.parametrize(
    "name",
    ["spark.authenticate.secret", "spark.ssl.keyPassword", "spark.hadoop.fs.s3a.secret.key", "spark.x.oauthToken"],
)
def test_a_secret_in_conf_is_an_error(name: str) -> None:
    client_security.check_conf(
        ["spark.authenticate.secretBitLength", "spark.authenticate.secret.file", "spark.executor.memory"]
    )
    with pytest.raises(RackgateError, match=f"^--conf {name}: other users can read command lines: "):
        client_security.check_conf(["spark.executor.memory", name])
