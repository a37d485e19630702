"""Spark sessions: small heap, no terminal output, all files below one folder, closed to other users.

On this machine all Spark processes listen on loopback. A session within this process authenticates with a secret that
Spark generates. A cluster's secret is in ``spark-defaults.conf`` in ``SPARK_CONF_DIR``, which only its owner may read.
It must not be a session setting: those are on the command line of Spark's JVM, where every user can read them.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import secrets
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_HEAP_MB = 1024
HOST = "127.0.0.1"
# addresses of the driver when master and executors are on this machine
LOOPBACK = {"spark.driver.bindAddress": HOST, "spark.driver.host": HOST}
AUTHENTICATE, SECRET = "spark.authenticate", "spark.authenticate.secret"
# encryption of traffic between executors and driver (RPC, blocks, files) and of their local scratch files
ENCRYPT, ENCRYPT_TLS, ENCRYPT_FILES = (
    "spark.network.crypto.enabled",
    "spark.ssl.rpc.enabled",
    "spark.io.encryption.enabled",
)
CONF_DIR, LOCAL_IP, DEFAULTS = "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "spark-defaults.conf"
_LOCAL = re.compile(r"local(\[(?P<cores>\d+)\])?")
_IN_PROCESS = re.compile(r"local(\[[^]]*\])?")
# the line of a properties file that sets the secret
_SECRET_LINE = re.compile(rf"^[ \t]*{re.escape(SECRET)}([ \t=:]|$)", re.MULTILINE)
# requires a signed token; its key is in spark-defaults.conf, and the project never creates a token
_WEB_FILTER = "org.apache.spark.ui.JWSFilter"
_SECRET_BYTES = 32
_END_S = 20.0


def in_process(master: str) -> bool:
    """Return whether the executors of a master are threads of the driver's JVM, as with ``local[2]``."""
    return _IN_PROCESS.fullmatch(master) is not None


def near(master: str) -> bool:
    """Return whether a master and all its executors are on this machine, so that loopback addresses suffice."""
    if in_process(master) or master.startswith("local-cluster["):
        return True
    scheme, _, addresses = master.partition("://")
    return scheme == "spark" and all(_is_loopback(address.rpartition(":")[0]) for address in addresses.split(","))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def slots(master: str) -> int | None:
    """Return how many tasks a master runs at a time, or None if its name does not give it as ``local[2]`` does."""
    match = _LOCAL.fullmatch(master)
    return int(match["cores"] or 1) if match else None


def pack(folder: Path, packages: Sequence[str]) -> Path:
    """Write the code of packages of this project to a zip file for ``addPyFile`` and return its path."""
    file = folder / "rackgate-code.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in packages:
            for source in sorted((paths.REPO / package).rglob("*.py")):
                packed.write(source, str(source.relative_to(paths.REPO)))
    return file


def start_session(work: Path, *, master: str, name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start a Spark session.

    For a session on a cluster, this process's Spark JVM is restarted so that it reads ``spark-defaults.conf`` again.
    Otherwise it would use the secret of an earlier session within the process instead of the cluster's.

    Args:
        work: existing folder for Spark's scratch files, warehouse and log.
        master: Spark master, such as ``local[2]``.
        name: name of the application.
        settings: further Spark properties; none of them secret.

    Raises:
        RackgateError: ``spark-defaults.conf`` can't be read, or has a secret that other users can read.
    """
    from pyspark.sql import SparkSession

    own = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{DRIVER_HEAP_MB}m",
        "spark.local.dir": str(work / "spark-local"),
        "spark.sql.warehouse.dir": str(work / "spark-warehouse"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_logging(work)} -XX:+UseSerialGC",
        **(LOOPBACK if near(master) else {}),
        **(settings or {}),
    }
    if in_process(master):
        own[AUTHENTICATE] = "true"
    else:
        check_defaults_file()
        end_jvm()
    builder = SparkSession.builder.master(master).appName(name).config(map=own)
    # without it Spark resolves the host name, which fails on some machines
    with environment({LOCAL_IP: HOST} if near(master) else {}):
        return builder.getOrCreate()


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process within the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def end_jvm() -> None:
    """End the JVM that PySpark keeps between sessions of this process, if there is one."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        _end_gateway(gateway)
        SparkContext._gateway = SparkContext._jvm = None


def _end_gateway(gateway: Any) -> None:
    gateway.shutdown()
    end(gateway.proc, grace_s=_END_S)


def effective_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the effective properties of a session with these settings without starting it.

    The others come from ``PYSPARK_SUBMIT_ARGS`` and ``spark-defaults.conf``.

    Raises:
        RackgateError: Spark does not start, for example because it can't read ``spark-defaults.conf``.
    """
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    check_defaults_file()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        try:
            gateway = launch_gateway(popen_kwargs={"stdout": log, "stderr": log})
        except PySparkRuntimeError as error:
            log.seek(0)
            raise RackgateError("Spark does not start, so its configuration is unknown", detail=log.read()) from error
        try:
            known = dict(SparkConf(_jvm=gateway.jvm).getAll())
        finally:
            _end_gateway(gateway)
    return known | dict(settings)


def defaults_file() -> Path:
    """Return the path of the ``spark-defaults.conf`` that Spark reads, whether it exists or not."""
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get(CONF_DIR)
    return (Path(folder) if folder else Path(_find_spark_home()) / "conf") / DEFAULTS


def check_defaults_file() -> None:
    """Check that no other user can read a secret in ``spark-defaults.conf``.

    If another user owns the file, such as an administrator, its group may read it.

    Raises:
        RackgateError: other users can read it, or this process can't.
    """
    file = defaults_file()
    try:
        text = file.read_text(encoding="utf-8")
        status = file.stat()
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise RackgateError(f"{file}: Spark's configuration can't be read: {error}") from error
    closed = 0o077 if status.st_uid == os.geteuid() else 0o007
    if _SECRET_LINE.search(text) and status.st_mode & closed:
        raise RackgateError(
            f"{file} has {SECRET} and mode {stat.S_IMODE(status.st_mode):04o}, so other users can read it: chmod 600"
        )


def write_defaults_file(folder: Path, settings: Mapping[str, str]) -> None:
    """Write ``spark-defaults.conf`` for a cluster on this machine, with a new secret for master, workers and drivers.

    ``folder`` exists and is the ``SPARK_CONF_DIR`` of all of them.
    """
    key = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).decode("ascii")
    own = {
        AUTHENTICATE: "true",
        SECRET: secrets.token_hex(_SECRET_BYTES),
        # the REST server has no authentication and is enabled by default
        "spark.master.rest.enabled": "false",
        "spark.ui.filters": _WEB_FILTER,
        f"spark.{_WEB_FILTER}.param.secretKey": key,
        **settings,
    }
    file = folder / DEFAULTS
    file.touch(mode=0o600, exist_ok=False)
    file.write_text("".join(f"{name} {value}\n" for name, value in own.items()), encoding="utf-8")


def _logging(work: Path) -> Path:
    """Write Spark's logging configuration and return its path.

    Warnings go to ``spark.log``, nothing goes to the terminal: Spark's errors reach Python as exceptions.
    """
    lines = (
        "status = error",
        "appender.file.type = File",
        "appender.file.name = file",
        f"appender.file.fileName = {work / 'spark.log'}",
        "appender.file.layout.type = PatternLayout",
        "appender.file.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex",
        "rootLogger.level = warn",
        "rootLogger.appenderRef.file.ref = file",
    )
    file = work / "log4j2.properties"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
