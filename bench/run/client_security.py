"""Security settings of clients: one file of Kafka properties, converted for librdkafka, Java and Spark.

The file has the format of ``--command-config`` of Kafka's tools. Key and trust stores (JKS, PKCS12, PEM) are sent as
PEM inside the settings: executors on other hosts don't have the files, and librdkafka can't read Java stores. Spark
sends the settings to executors in the code of tasks and may write them to local disks, so its cluster must
authenticate, and encrypt connections and files unless it is on this machine.
"""

from __future__ import annotations

import re
from base64 import encodebytes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyhooks.core import spark
from pyhooks.core.errors import RackgateError

PLAIN_KEYS = ("security.protocol", "sasl.mechanism", "ssl.endpoint.identification.algorithm")
JAAS, KEY_PASSWORD = "sasl.jaas.config", "ssl.key.password"
STORES = ("truststore", "keystore")
STORE_KEYS = tuple(f"ssl.{store}.{key}" for store in STORES for key in ("type", "location", "password"))
CERTIFICATES, CHAIN, KEY = "ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"
ACCEPTED = frozenset({*PLAIN_KEYS, JAAS, KEY_PASSWORD, *STORE_KEYS, CERTIFICATES, CHAIN, KEY})
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# librdkafka needs a user name and a password for these. Kerberos and OAuth have no form that both clients share.
MECHANISMS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# Options that Spark must hide in plans and in its log, in addition to those that it hides by itself.
REDACTED = r"(?i)secret|password|passphrase|token|access[.]?key|jaas|keystore[.]key"

# Names of Spark settings with secret values, which --conf would expose on command lines.
_SECRET_SETTING = re.compile(r"(?i)(secret|password|passphrase|token|access[.]?key|secret[.]?key)$")

_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_KEY_BLOCK = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.+?-----END \1-----", re.DOTALL)
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class ClientSecurity:
    """Security settings in the form of each kind of client; empty for an open cluster."""

    java: Mapping[str, str] = field(default_factory=dict, repr=False)
    librdkafka: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def spark(self) -> dict[str, str]:
        """Options of Spark's Kafka source."""
        return {f"kafka.{key}": value for key, value in self.java.items()}

    def __or__(self, other: ClientSecurity) -> ClientSecurity:
        return ClientSecurity({**self.java, **other.java}, {**self.librdkafka, **other.librdkafka})


def read_security(file: Path | None) -> ClientSecurity:
    """Read a file of properties.

    Raises:
        RackgateError: it can't be read, or has a key or value that not all clients of a run support. The message never
            contains values that may be secret.
    """
    if file is None:
        return ClientSecurity()
    from pyhooks.placement.cluster_query import client_config

    return convert_properties(client_config(file), str(file))


def check_spark(master: str, settings: Mapping[str, str]) -> None:
    """Check that a Spark cluster protects the secrets of ``--command-config``.

    Raises:
        RackgateError: settings are missing; the message names them.
    """

    def is_on(name: str) -> bool:
        return settings.get(name, "").strip().lower() == "true"

    missing = [] if is_on(spark.AUTHENTICATE) else [f"{spark.AUTHENTICATE}=true"]
    # other cluster managers create a secret for each application
    if master.startswith("spark://") and not settings.get(spark.SECRET):
        missing.append(f"{spark.SECRET}=…")
    if not spark.near(master):
        missing += [] if is_on(spark.ENCRYPT) or is_on(spark.ENCRYPT_TLS) else [f"{spark.ENCRYPT}=true"]
        missing += [] if is_on(spark.ENCRYPT_FILES) else [f"{spark.ENCRYPT_FILES}=true"]
    if missing:
        raise RackgateError(
            f"--master {master}: the secrets of --command-config would be sent unprotected: set"
            f" {', '.join(missing)} in {spark.defaults_file()}, as the cluster has it"
        )


def check_conf(names: Iterable[str]) -> None:
    """Check that ``--conf`` sets no secret.

    Raises:
        RackgateError: a setting is secret; the message names it.
    """
    for name in names:
        if _SECRET_SETTING.search(name):
            raise RackgateError(
                f"--conf {name}: other users can read command lines: set it in {spark.defaults_file()}, with mode 0600"
            )


def convert_properties(values: Mapping[str, str], source: str) -> ClientSecurity:
    """Convert Kafka properties to the settings of all clients.

    Raises:
        RackgateError: see ``read_security``.
    """
    return _KafkaProperties(values, source).convert()


@dataclass(frozen=True)
class _KafkaProperties:
    """Kafka properties of a client, without ``bootstrap.servers``; ``source`` names them in error messages."""

    values: Mapping[str, str] = field(repr=False)
    source: str

    def _wrong(self, text: str) -> RackgateError:
        return RackgateError(f"--command-config {self.source}: {text}")

    def convert(self) -> ClientSecurity:
        """Return the properties in the form of each kind of client."""
        if unknown := sorted(set(self.values) - ACCEPTED):
            raise self._wrong(f"{', '.join(unknown)}: not supported; supported keys: {', '.join(sorted(ACCEPTED))}")
        protocol = self.values.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise self._wrong(f"security.protocol is {protocol}, must be one of {', '.join(PROTOCOLS)}")
        security = ClientSecurity({"security.protocol": protocol}, {"security.protocol": protocol})
        if protocol.startswith("SASL_"):
            security |= self._sasl()
        return security | self._ssl() if protocol.endswith("SSL") else security

    def _sasl(self) -> ClientSecurity:
        mechanism, jaas = self.values.get("sasl.mechanism", "GSSAPI"), self.values.get(JAAS, "")
        if mechanism not in MECHANISMS:
            raise self._wrong(f"sasl.mechanism is {mechanism}: all clients of a run support {', '.join(MECHANISMS)}")
        module, _, rest = jaas.strip().partition(" ")
        options = {name: _plain(a or b or c) for name, a, b, c in _OPTION.findall(rest)}
        if module != MECHANISMS[mechanism] or not {"username", "password"} <= set(options):
            raise self._wrong(f'{JAAS} must be: {MECHANISMS[mechanism]} required username="…" password="…";')
        login = {"sasl.username": options["username"], "sasl.password": options["password"]}
        return ClientSecurity({"sasl.mechanism": mechanism, JAAS: jaas}, {"sasl.mechanism": mechanism, **login})

    def _ssl(self) -> ClientSecurity:
        java: dict[str, str] = {}
        rdkafka: dict[str, str] = {}
        name = "ssl.endpoint.identification.algorithm"
        if (algorithm := self.values.get(name)) is not None:
            if algorithm not in ("", "https"):
                raise self._wrong(f"{name} is {algorithm!r}, must be https or empty")
            java[name], rdkafka[name] = algorithm, algorithm or "none"
        if (trusted := self._trust_store()) is not None:
            java |= {"ssl.truststore.type": "PEM", CERTIFICATES: trusted}
            rdkafka["ssl.ca.pem"] = trusted
        if (key_store := self._key_store()) is not None:
            chain, key, password = key_store
            java |= {"ssl.keystore.type": "PEM", CHAIN: chain, KEY: key}
            rdkafka |= {"ssl.certificate.pem": chain, "ssl.key.pem": key}
            if password:
                java[KEY_PASSWORD] = rdkafka[KEY_PASSWORD] = password
        return ClientSecurity(java, rdkafka)

    def _trust_store(self) -> str | None:
        """Return the certificates of the trust store as PEM; None without one, so that clients use their own."""
        if CERTIFICATES in self.values:
            return self.values[CERTIFICATES]
        if "ssl.truststore.location" not in self.values:
            return None
        if self._is_pem("truststore"):
            return self._text("truststore")
        store = self._java_store("truststore")
        certificates = [store.getCertificate(alias) for alias in store.aliases()]
        return "\n".join(_pem("CERTIFICATE", certificate) for certificate in certificates if certificate is not None)

    def _key_store(self) -> tuple[str, str, str] | None:
        """Return the certificate chain and the private key as PEM, and the key's password; None without a key store."""
        password = self.values.get(KEY_PASSWORD, "")
        if KEY in self.values:
            return self.values.get(CHAIN, ""), self.values[KEY], password
        if "ssl.keystore.location" not in self.values:
            return None
        if self._is_pem("keystore"):
            text = self._text("keystore")
            key, chain = _KEY_BLOCK.search(text), _CERTIFICATE.findall(text)
            if key is None or not chain:
                raise self._wrong("ssl.keystore.location has no private key with its certificates in PEM")
            return "\n".join(chain), key.group(), password
        store = self._java_store("keystore")
        for alias in store.aliases():
            if store.isKeyEntry(alias):
                secret = store.getKey(alias, _chars(password or self.values.get("ssl.keystore.password", "")))
                certificates = [_pem("CERTIFICATE", certificate) for certificate in store.getCertificateChain(alias)]
                return "\n".join(certificates), _pem("PRIVATE KEY", secret), ""
        raise self._wrong("ssl.keystore.location has no private key")

    def _is_pem(self, store: str) -> bool:
        return self.values.get(f"ssl.{store}.type", "JKS").upper() == "PEM"

    def _text(self, store: str) -> str:
        file = self.values[f"ssl.{store}.location"]
        try:
            return Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise self._wrong(f"{file}: {error}") from error

    def _java_store(self, store: str) -> Any:
        """Return a Java key store of any type, loaded by Java."""
        import jpype

        from pyhooks.jvm.client import start_jvm
        from pyhooks.jvm.java_exception import JavaError

        file, password = self.values[f"ssl.{store}.location"], self.values.get(f"ssl.{store}.password")
        start_jvm()
        kind = jpype.JClass("java.security.KeyStore")
        try:
            # Java detects JKS and PKCS12 by the contents of the file
            chars = _chars(password) if password is not None else None
            return kind.getInstance(jpype.JClass("java.io.File")(file), jpype.JObject(chars, jpype.JChar[:]))
        except jpype.JException as error:
            failure = JavaError.of(error)
            raise self._wrong(f"ssl.{store}.location {file}: {failure.text or failure.java_class}") from error


def _plain(text: str) -> str:
    """Return a quoted value without its backslashes."""
    return re.sub(r"\\(.)", r"\1", text)


def _chars(text: str) -> Any:
    import jpype

    return jpype.JString(text).toCharArray()


def _pem(label: str, encodable: Any) -> str:
    """Return a certificate or key of Java as PEM."""
    text = encodebytes(bytes(encodable.getEncoded())).decode("ascii")
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----"
