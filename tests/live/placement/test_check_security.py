"""``rackgate check`` with wrong security settings: one line with the reason, within the timeout."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from check_command import check, check_in_new_process
from loopback_brokers import HOST, Brokers, free_ports
from pyhooks.patchset.distribution import Distribution

pytestmark = pytest.mark.timeout(300)
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SECRET = "hidden-from-all"  # noqa: S105 - of a broker on loopback
TIMEOUT_S, SLACK_S = 6.0, 10.0


@dataclass(frozen=True)
class Secured:
    """Broker with a plaintext, a SASL and a TLS listener; the certificate is only for ``localhost``.

    Attributes:
        ports: ports of the listeners ``plain``, ``sasl`` and ``tls``.
        folder: folder for client files; its ``ca.pem`` has the certificate.
    """

    ports: dict[str, int]
    folder: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, keys = tmp_path_factory.mktemp("secured"), tmp_path_factory.mktemp("keys") / "broker.p12"
    store = ["-storetype", "PKCS12", "-keystore", str(keys), "-storepass", SECRET, "-alias", "broker"]
    keytool = shutil.which("keytool")
    assert keytool, "a JDK has it"
    named = ["-keyalg", "EC", "-dname", "CN=localhost", "-ext", "SAN=dns:localhost"]
    subprocess.run([keytool, "-genkeypair", *named, *store], check=True, capture_output=True, timeout=60)
    export = ["-exportcert", "-rfc", "-file", str(folder / "ca.pem")]
    subprocess.run([keytool, *export, *store], check=True, capture_output=True, timeout=60)
    sasl, tls, plain, control = free_ports(4)
    listeners = {"PLAINTEXT": (HOST, plain), "SASL": (HOST, sasl), "TLS": ("localhost", tls)}
    at = [f"{name}://{host}:{port}" for name, (host, port) in listeners.items()]
    extra = {
        "listeners": ",".join([*at, f"CONTROLLER://{HOST}:{control}"]),
        "advertised.listeners": ",".join(at),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": f"1@{HOST}:{control}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} user_ops="{SECRET}";',
        "listener.name.tls.ssl.keystore.location": str(keys),
        "listener.name.tls.ssl.keystore.password": SECRET,
        "listener.name.tls.ssl.keystore.type": "PKCS12",
    }
    classpath = Distribution.load().classpath()
    brokers = Brokers(folder, {1: "a"}, controller=1, extra=extra)
    brokers.format(classpath)
    with brokers.running(classpath):
        yield Secured({"plain": plain, "sasl": sasl, "tls": tls}, folder)


def jaas(password: str, module: str = PLAIN) -> str:
    return f'sasl.jaas.config={module} username="ops" password="{password}";\n'


SASL = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
TLS = "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={folder}/ca.pem\n"


@pytest.mark.parametrize(
    ("listener", "properties", "reason"),
    [
        ("sasl", SASL + jaas("guessed"), "Authentication failed: Invalid username or password"),
        ("sasl", SASL.replace("=PLAIN\n", "=SCRAM-SHA-256\n") + jaas("x", SCRAM), "enabled mechanisms are [PLAIN]"),
        ("sasl", SASL, "JAAS configuration"),
        ("sasl", SASL + "sasl.jaas.config=nonsense\n", "JAAS config"),
        ("sasl", SASL + jaas(SECRET, "no.such.Module required"), "No LoginModule found for no.such.Module"),
        ("sasl", "", "requires SASL (PLAIN): set security.protocol to SASL_PLAINTEXT, not PLAINTEXT"),
        ("sasl", TLS, "speaks no TLS and requires SASL (PLAIN)"),
        ("plain", SASL + jaas(SECRET), "enabled mechanisms are []"),
        ("plain", TLS, "speaks no TLS: set security.protocol to PLAINTEXT, not SSL"),
        ("tls", "", "speaks TLS: set security.protocol to SSL or SASL_SSL"),
        ("tls", SASL + jaas(SECRET), "speaks TLS: set security.protocol to SSL or SASL_SSL"),
        ("tls localhost", "security.protocol=SSL\n", "unable to find valid certification path"),
        ("tls", TLS, "No subject alternative names matching IP address 127.0.0.1 found"),
        ("tls localhost", TLS.replace("ca.pem", "absent.pem"), "absent.pem"),
        ("tls", "security.protocol=[F\x1bOO]\n", "Invalid value [F\\x1bOO] for configuration security.protocol"),
        ("plain", "odd=\\u12\n", "--command-config"),
    ],
)
def test_each_mistake_is_one_line_with_its_reason(
    secured: Secured, tmp_path: Path, listener: str, properties: str, reason: str
) -> None:
    name, _, host = listener.partition(" ")
    file = tmp_path / "client.properties"
    file.write_text(properties.replace("{folder}", str(secured.folder)), encoding="utf-8")
    begun = time.monotonic()
    address = f"{host or HOST}:{secured.ports[name]}"
    # of a failed authentication, a client whose log is not disabled from its start on would log most
    run = check_in_new_process if reason.startswith("Authentication failed") else check
    done = run(address, "--timeout", f"{TIMEOUT_S:g}", "--command-config", str(file))
    assert time.monotonic() - begun < TIMEOUT_S + SLACK_S
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert SECRET not in done.stderr


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_an_unreadable_file_is_named(secured: Secured, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "client.properties"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    done = check(f"{HOST}:{secured.ports['plain']}", "--command-config", str(file))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert str(file) in done.stderr


@pytest.mark.parametrize(
    ("listener", "properties"), [("plain", ""), ("sasl", SASL + jaas(SECRET)), ("tls localhost", TLS)]
)
def test_correct_settings_are_accepted(secured: Secured, tmp_path: Path, listener: str, properties: str) -> None:
    name, _, host = listener.partition(" ")
    file = tmp_path / "client.properties"
    file.write_text(properties.replace("{folder}", str(secured.folder)), encoding="utf-8")
    done = check_in_new_process(f"{host or HOST}:{secured.ports[name]}", "--command-config", str(file))
    assert (done.returncode, done.stderr) == (0, "")
