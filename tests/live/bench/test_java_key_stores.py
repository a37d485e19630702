"""Key stores of Java's clients, converted to PEM for librdkafka."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.run import client_security
from pyhooks.core.errors import RackgateError


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a key store and a trust store of each Java type, and the same certificates in PEM."""
    folder = tmp_path_factory.mktemp("stores")

    def keytool(*arguments: str) -> str:
        done = subprocess.run(
            ["keytool", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    for kind in ("PKCS12", "JKS"):
        own = ("-storetype", kind, "-storepass", "changeit", "-keystore")
        keytool("-genkeypair", "-alias", "me", "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=me",
                *own, f"own.{kind}", "-keypass", "changeit")  # fmt: skip
        keytool("-exportcert", "-rfc", "-alias", "me", "-file", f"{kind}.pem", *own, f"own.{kind}")
        keytool("-importcert", "-noprompt", "-alias", "ca", "-file", f"{kind}.pem", *own, f"trust.{kind}")
    return folder


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_java_key_stores_are_converted_to_pem(stores: Path, kind: str) -> None:
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(stores / f"trust.{kind}"),
        "ssl.truststore.password": "changeit",
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(stores / f"own.{kind}"),
        "ssl.keystore.password": "changeit",
        "ssl.key.password": "changeit",
    }
    found = client_security.convert_properties(given, "f")
    expected = "".join((stores / f"{kind}.pem").read_text(encoding="ascii").split())
    for key in ("ssl.ca.pem", "ssl.certificate.pem"):
        assert "".join(found.librdkafka[key].split()) == expected
    assert found.java["ssl.truststore.certificates"] == found.librdkafka["ssl.ca.pem"]
    assert found.java["ssl.keystore.certificate.chain"] == found.librdkafka["ssl.certificate.pem"]
    assert found.java["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----\nMII")
    assert "changeit" not in str(found.java) + str(found.librdkafka)
    assert "location" not in str(found.java)

    # both clients accept them
    from confluent_kafka import Producer

    from pyhooks.jvm.producer import Producer as JavaProducer

    Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **found.librdkafka})
    with JavaProducer("127.0.0.1:1", found.java, close_timeout_s=0.1):
        pass

    # PEM files give the same result
    whole = stores / f"whole-{kind}.pem"
    whole.write_text(found.java["ssl.keystore.key"] + "\n" + found.java["ssl.keystore.certificate.chain"], "ascii")
    in_pem = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores / f"{kind}.pem"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(whole),
    }
    again = client_security.convert_properties(in_pem, "f")
    for key, value in found.java.items():
        assert "".join(again.java[key].split()) == "".join(value.split()), key


def test_a_wrong_store_password_is_a_one_line_error(stores: Path) -> None:
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(stores / "trust.PKCS12"),
        "ssl.truststore.password": "guessed",
    }
    with pytest.raises(RackgateError, match=r"trust\.PKCS12: .*password") as caught:
        client_security.convert_properties(given, "f")
    assert "guessed" not in str(caught.value)
