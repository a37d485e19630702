"""Translation of a ``--command-config`` file for each kind of client."""

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
    found = client_security.convert_properties(PLAIN, "f")
    assert found.librdkafka == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ops",
        "sasl.password": 'se"cr=et; 1',
    }
    assert found.java == PLAIN
    assert found.spark == {f"kafka.{key}": value for key, value in PLAIN.items()}
    other = client_security.convert_properties(SCRAM | {"ssl.endpoint.identification.algorithm": ""}, "f")
    assert other.librdkafka == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ops",
        "sasl.password": "x y",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert other.java["ssl.endpoint.identification.algorithm"] == ""


def test_an_open_cluster_needs_nothing() -> None:
    none = client_security.read_security(None)
    assert (none.java, none.librdkafka, none.spark) == ({}, {}, {})
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
def test_settings_that_some_client_does_not_support_are_refused(given: dict[str, str], error: str) -> None:
    with pytest.raises(RackgateError, match=error) as caught:
        client_security.convert_properties(given, "client.properties")
    assert str(caught.value).startswith("--command-config client.properties: ")
    assert "\n" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_secrets_are_in_no_representation_of_the_settings() -> None:
    assert "cr=et" not in repr(client_security.convert_properties(PLAIN, "f"))


SAFE = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "abc-7",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
REMOTE, NEAR = "spark://host:7077", "spark://127.0.0.1:7077"


@pytest.mark.parametrize(
    ("master", "changed", "missing"),
    [
        (REMOTE, {"spark.authenticate": "false"}, ["spark.authenticate=true"]),
        (REMOTE, {"spark.authenticate": "yes"}, ["spark.authenticate=true"]),
        (REMOTE, {"spark.authenticate.secret": ""}, ["spark.authenticate.secret=…"]),
        (REMOTE, {"spark.network.crypto.enabled": "false"}, ["spark.network.crypto.enabled=true"]),
        (REMOTE, {"spark.io.encryption.enabled": ""}, ["spark.io.encryption.enabled=true"]),
        (
            "yarn",
            dict.fromkeys(SAFE, "false"),
            ["spark.authenticate=true", "spark.network.crypto.enabled=true", "spark.io.encryption.enabled=true"],
        ),
        (NEAR, {"spark.authenticate": "false"}, ["spark.authenticate=true"]),
    ],
)
def test_a_spark_cluster_that_would_not_protect_the_secrets_is_refused(
    master: str, changed: dict[str, str], missing: list[str]
) -> None:
    with pytest.raises(RackgateError, match=f"^--master {master}: ") as caught:
        client_security.check_spark(master, SAFE | changed)
    assert re.findall(r"spark[.][\w.]+=\S+?(?=,| in )", str(caught.value)) == missing
    assert "\n" not in str(caught.value)
    assert "abc-7" not in str(caught.value)


@pytest.mark.parametrize(
    ("master", "settings"),
    [
        (REMOTE, SAFE),
        (REMOTE, SAFE | {"spark.authenticate": " TRUE "}),
        (REMOTE, SAFE | {"spark.network.crypto.enabled": "false", "spark.ssl.rpc.enabled": "true"}),
        ("yarn", {name: value for name, value in SAFE.items() if name != "spark.authenticate.secret"}),
        (NEAR, {"spark.authenticate": "true", "spark.authenticate.secret": "abc-7"}),
    ],
)
def test_a_spark_cluster_that_protects_the_secrets_is_accepted(master: str, settings: dict[str, str]) -> None:
    client_security.check_spark(master, settings)


@pytest.mark.parametrize(
    "name",
    ["spark.authenticate.secret", "spark.ssl.keyPassword", "spark.hadoop.fs.s3a.secret.key", "spark.x.oauthToken"],
)
def test_no_secret_is_on_the_command_line(name: str) -> None:
    client_security.check_conf(
        ["spark.authenticate.secretBitLength", "spark.authenticate.secret.file", "spark.executor.memory"]
    )
    with pytest.raises(RackgateError, match=f"^--conf {name}: other users can read command lines: "):
        client_security.check_conf(["spark.executor.memory", name])
