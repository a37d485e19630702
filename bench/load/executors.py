"""Executors of a Spark cluster as load hosts: what Spark sends to them, and a survey of what they provide.

Spark sends the project's code as a py-file and the clients as archives: confluent-kafka with librdkafka, and the
patched Java producer with JPype. They are copies of this host's installation, so that every host loads the same
versions. Executors need a Python of the same minor version and platform with numpy, pandas and pyarrow, which Spark's
pandas functions need anyway. Where these are missing, ``--environment`` sends a packed environment, and the hosts' own
Python is not used.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import socket
import statistics
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from bench.load import clock_offsets
from pyhooks.core.errors import RackgateError
from pyhooks.core.spark import pack
from pyhooks.core.wait import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLIENTS, ENVIRONMENT = "rackgate-clients", "rackgate-environment"
JARS = "rackgate-jars"
CONFLUENT, JPYPE = "confluent-kafka", "jpype1"
# Kafka's jars that a producer needs; the overlay's jar precedes them on the classpath.
OVERLAY_JARS = ("clients-rackgate",)
PRODUCER_JARS = ("kafka-clients", "lz4-java", "snappy-java", "zstd-jni", "slf4j-api", "log4j-")
PACKAGES = ("bench", "pyhooks")
# Time limit for executors to start, which may include fetching images; time without a change; poll interval.
COME_S, STEADY_S, LOOK_S = 120.0, 3.0, 0.25
HANDSHAKES, REACH_S = 20, 3.0
SCHEMA = "survey string"


@dataclass(frozen=True)
class LoadHost:
    """An executor as a load host.

    Attributes:
        name: host and executor, as in the column ``host`` of the observations.
        cpus: number of CPUs that it may use.
        machine: platform of the host.
        versions: versions of Python and of the packages that a load needs; None for one that can't be imported.
        loaded: last component of the folders from which the project's code and the client were loaded.
        trouble: what can't be loaded and why, or empty.
        unreached: brokers that it can't connect to, and why.
        round_trips_ms: durations of TCP handshakes with each broker, by broker id.
        clock: difference between its clock and the driver's.
    """

    name: str
    cpus: int
    machine: str
    versions: Mapping[str, str | None]
    loaded: Mapping[str, str]
    trouble: str
    unreached: Mapping[str, str]
    round_trips_ms: Mapping[str, list[float]]
    clock: clock_offsets.ClockOffset

    def as_json(self) -> dict[str, Any]:
        """Return the entry for the manifest."""
        return {
            "host": self.name,
            "cpus": self.cpus,
            "machine": self.machine,
            "versions": dict(self.versions),
            "loaded": dict(self.loaded),
            "clock": {
                "ahead_ms": self.clock.ahead_ms,
                "error_ms": self.clock.error_ms,
                "how": self.clock.how,
                "same": self.clock.same,
            },
        }


def executor_name() -> str:
    """Return the name of the executor of this process: its host, and the folder in which Spark runs it."""
    return f"{socket.gethostname()}/{Path.cwd().name}"


def use_sent_client() -> None:
    """Put the client that was sent first on the import path; without one do nothing."""
    from pyspark import SparkFiles, TaskContext

    if TaskContext.get() is None:
        return  # not an executor
    # on executors the root directory is "."
    folder = str(Path(SparkFiles.getRootDirectory()).absolute() / CLIENTS)
    if folder not in sys.path and Path(folder).is_dir():
        sys.path.insert(0, folder)


def use_sent_jars() -> None:
    """Make the Java producer use the jars that were sent; without any do nothing."""
    from pyspark import SparkFiles, TaskContext

    from pyhooks.jvm import client
    from pyhooks.patchset.distribution import Distribution

    if TaskContext.get() is None:
        return  # not an executor
    folder = Path(SparkFiles.getRootDirectory()) / JARS
    if folder.is_dir():
        client.use(Distribution(folder.absolute()))


def python_of(environment: Path | None, *, near: bool) -> str:
    """Return the Python interpreter of executors.

    Args:
        environment: packed environment that is sent to them, or None.
        near: whether they run on this host.
    """
    if environment is not None:
        return f"./{ENVIRONMENT}/bin/python"
    return os.environ.get("PYSPARK_PYTHON") or (sys.executable if near else "python3")


def send(spark: SparkSession, work: Path, environment: Path | None, *, java: bool) -> None:
    """Send code and clients to the executors.

    Args:
        spark: session in which no job has run yet.
        work: folder for the packed files.
        environment: packed environment that replaces the Python packages of the clients, or None.
        java: whether the Java producer is needed.
    """
    context = spark.sparkContext
    context.addPyFile(str(pack(work, PACKAGES)))
    if environment is not None:
        context.addArchive(f"{environment.resolve()}#{ENVIRONMENT}")
    else:
        packages = (CONFLUENT, JPYPE) if java else (CONFLUENT,)
        context.addArchive(f"{_pack_installed(work, packages)}#{CLIENTS}")
    if java:
        context.addArchive(f"{_pack_jars(work)}#{JARS}")


def _pack_installed(work: Path, packages: Sequence[str]) -> Path:
    """Pack Python packages as installed on this host; return the archive."""
    file = work / f"{CLIENTS}.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in packages:
            for one in importlib.metadata.files(package) or ():
                source = Path(str(one.locate()))
                # scripts are outside the packages' folder
                if ".." not in one.parts and source.suffix != ".pyc":
                    packed.write(source, str(one))
    return file


def _pack_jars(work: Path) -> Path:
    """Pack the jars of a Java producer in the folders of the built distribution; return the archive."""
    from pyhooks.patchset.distribution import HOOKS, Distribution

    built, file = Distribution.load(), work / f"{JARS}.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
        for folder, names in (("overlay", OVERLAY_JARS), ("libs", PRODUCER_JARS)):
            for jar in sorted((built.root / folder).glob("*.jar")):
                if jar.name.startswith(names):
                    packed.write(jar, f"{folder}/{jar.name}")
        packed.write(built.hooks, HOOKS)
    return file


def await_slots(spark: SparkSession, tasks: int) -> int:
    """Wait until the executors have started; return how many tasks they run at a time.

    Raises:
        RackgateError: they run fewer than ``tasks`` at the end of the time limit.
    """
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    seen, since = -1, time.monotonic()

    def steady() -> bool:
        nonlocal seen, since
        now = int(context.maxNumConcurrentTasks(profile))
        if now != seen:
            seen, since = now, time.monotonic()
        return seen >= tasks and time.monotonic() - since >= STEADY_S

    try:
        wait_for(steady, what="executors", timeout_s=COME_S, interval_s=LOOK_S)
    except RackgateError as error:
        raise RackgateError(
            f"--master {spark.sparkContext.master}: its executors run {max(seen, 0)} tasks at a time after"
            f" {COME_S:.0f} s, and the load has {tasks}: use a lower --tasks, or free cores of the Spark cluster"
        ) from error
    return seen


def survey(
    spark: SparkSession, slots: int, brokers: Mapping[int, str], *, java: bool
) -> tuple[list[LoadHost], dict[str, int]]:
    """Survey all executors, and prepare their Python for the load.

    Args:
        spark: the session.
        slots: number of tasks that run at a time.
        brokers: broker id to address.
        java: whether the Java producer is needed.

    Returns:
        The executors in the order of their names, and the clock differences of their hosts, see ``clocks.distances``.

    Raises:
        RackgateError: an executor lacks what a load needs, or can't reach a broker.
    """
    conf = spark.sparkContext.getConf()
    reached = str(conf.get("spark.driver.host"))
    with clock_offsets.serving_clock(str(conf.get("spark.driver.bindAddress", reached))) as (_, port):
        address = reached, port

        def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield pd.DataFrame(
                    {"survey": [json.dumps(_survey_executor(brokers, address, java=java)) for _ in frame["id"]]}
                )

        frame = spark.range(0, slots, 1, slots).mapInPandas(work, schema=SCHEMA, barrier=True)
        # the first job loads Python and pandas everywhere; start and end of the second one bound the clock readings
        frame.collect()
        begun_ns = time.monotonic_ns()
        rows = [json.loads(row["survey"]) for row in frame.collect()]
        ended_ns = time.monotonic_ns()
    own = clock_offsets.boot_id()
    pairs: list[tuple[clock_offsets.ClockReading, clock_offsets.ClockOffset]] = []
    hosts: dict[str, LoadHost] = {}
    for row in rows:
        reading = clock_offsets.ClockReading(**row.pop("clock"))
        clock = clock_offsets.clock_offset(reading, own, begun_ns, ended_ns)
        pairs.append((reading, clock))
        known = hosts.get(row["name"])
        if known is None or clock.error_ms < known.clock.error_ms:
            hosts[row["name"]] = LoadHost(**row, clock=clock)
    found = [hosts[key] for key in sorted(hosts)]
    for host in found:
        _check(host)
    return found, clock_offsets.host_offsets(pairs)


def _survey_executor(brokers: Mapping[int, str], address: tuple[str, int], *, java: bool) -> dict[str, Any]:
    """Return what this executor provides."""
    use_sent_client()
    versions: dict[str, str | None] = {"python": platform.python_version()}
    loaded = {"code": Path(__file__).parents[2].name}
    trouble = ""
    for package in ("numpy", "pandas", "pyarrow", "confluent_kafka", *(["jpype"] if java else [])):
        try:
            module = __import__(package)
        except ImportError as error:
            versions[package], trouble = None, f"{package}: {error}"
        else:
            own = getattr(module, "__version__", None)
            if package == "confluent_kafka":
                loaded["client"] = Path(str(module.__file__)).parents[1].name
            versions[package] = str(own if own is not None else importlib.metadata.version(package))
    if java and not trouble:
        trouble = _java_trouble()
    trips: dict[str, list[float]] = {}
    unreached: dict[str, str] = {}
    for broker, where in brokers.items():
        try:
            trips[str(broker)] = handshakes(where)
        except OSError as error:
            unreached[str(broker)] = f"{where}: {error.strerror or error}"
    reading = clock_offsets.read_clocks(address)
    return {
        "name": executor_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "machine": f"{platform.machine()} {platform.system()}",
        "versions": versions,
        "loaded": loaded,
        "trouble": trouble,
        "unreached": unreached,
        "round_trips_ms": trips,
        "clock": reading.__dict__,
    }


def _java_trouble() -> str:
    """Return why no JVM can be started here, or an empty text."""
    import jpype

    try:
        jpype.getDefaultJVMPath()
    except jpype.JVMNotFoundException:
        return "Java (libjvm.so): set JAVA_HOME, as with --conf spark.executorEnv.JAVA_HOME=…"
    return ""


def handshakes(address: str, number: int = HANDSHAKES) -> list[float]:
    """Return the durations of several TCP handshakes with a broker, in milliseconds.

    Raises:
        OSError: the broker can't be reached.
    """
    host, _, port = address.rpartition(":")
    took = []
    for _ in range(number):
        begun = time.monotonic_ns()
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S):
            took.append((time.monotonic_ns() - begun) / 1e6)
    return took


def _check(host: LoadHost) -> None:
    """Check that an executor can carry load.

    Raises:
        RackgateError: it can't; the message names what is missing.
    """
    if host.trouble:
        raise RackgateError(
            f"executor {host.name} (Python {host.versions['python']}, {host.machine}) can't load {host.trouble};"
            " bench/README.md lists the requirements of executors"
        )
    for broker, why in host.unreached.items():
        raise RackgateError(f"executor {host.name} can't connect to broker {broker} at {why}")


def round_trips(hosts: Sequence[LoadHost]) -> list[dict[str, Any]]:
    """Return the handshakes of all executors as rows of a result's round trips."""
    return [round_trip_row(host.name, broker, took) for host in hosts for broker, took in host.round_trips_ms.items()]


def round_trip_row(source: str, broker: int | str, took_ms: Sequence[float]) -> dict[str, Any]:
    """Return one row of round trips; with so few handshakes the slowest one is the 99th percentile."""
    return {
        "source": source,
        "target": f"broker-{broker}",
        "p50_ms": statistics.median(took_ms),
        "p99_ms": max(took_ms),
    }
