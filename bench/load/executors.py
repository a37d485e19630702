"""Executors of a Spark cluster as load hosts: what Spark sends to them, and a survey of what they provide.

Spark sends copies of this host's code and clients: confluent-kafka with librdkafka, and the patched Java producer with
JPype. Executors need a Python of the same minor version and platform with numpy, pandas and pyarrow, which Spark's
pandas functions need anyway, or a packed environment (``--environment``).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession

from bench.load import clock_offsets
from pyhooks.core.errors import RackgateError
from pyhooks.core.spark import pack
from pyhooks.core.wait import wait_for

CLIENTS, ENVIRONMENT = "rackgate-clients", "rackgate-environment"
JARS = "rackgate-jars"
CONFLUENT, JPYPE = "confluent-kafka", "jpype1"
# Kafka's jars that a producer needs; the overlay's jar precedes them on the classpath.
OVERLAY_JARS = ("clients-rackgate",)
PRODUCER_JARS = ("kafka-clients", "lz4-java", "snappy-java", "zstd-jni", "slf4j-api", "log4j-")
PACKAGES = ("bench", "pyhooks")
# Time limit for executors to start, which may include fetching images; time without a change; poll interval.
START_S, STEADY_S, POLL_S = 120.0, 3.0, 0.25
HANDSHAKES, CONNECT_S = 20, 3.0
SCHEMA = "survey string"


@dataclass(frozen=True)
class LoadHost:
    """An executor as a load host."""

    name: str  # host and executor, as in the column ``host`` of the observations
    cpus: int  # number of CPUs that it may use
    machine: str  # platform of the host
    # versions of Python and of the packages that a load needs; None for one that can't be imported
    versions: Mapping[str, str | None]
    loaded: Mapping[str, str]  # last component of the folders from which the project's code and the client were loaded
    trouble: str  # what it can't do for a load and why, or empty
    unreached: Mapping[str, str]  # brokers that it can't connect to, and why
    round_trips_ms: Mapping[str, list[float]]  # durations of TCP handshakes with each broker, by broker id
    clock: clock_offsets.ClockOffset  # difference between its clock and the driver's

    def as_json(self) -> dict[str, Any]:
        """Return the entry for the manifest."""
        fields = asdict(self)
        return {"host": self.name} | {name: fields[name] for name in ("cpus", "machine", "versions", "loaded", "clock")}


def executor_name() -> str:
    """Return the name of the executor of this process: its host, and the folder in which Spark runs it."""
    return f"{socket.gethostname()}/{Path.cwd().name}"


def _sent_folder(name: str) -> Path | None:
    """Return the folder of an archive that was sent to this executor; None without one, or outside of executors."""
    from pyspark import SparkFiles, TaskContext

    if TaskContext.get() is None:
        return None
    # on executors the root directory is "."
    folder = Path(SparkFiles.getRootDirectory()).absolute() / name
    return folder if folder.is_dir() else None


def use_sent_client() -> None:
    """Put the client that was sent first on the import path; without one do nothing."""
    if (folder := _sent_folder(CLIENTS)) and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def use_sent_jars() -> None:
    """Make the Java producer use the jars that were sent; without any do nothing."""
    from pyhooks.jvm import client
    from pyhooks.patchset.distribution import Distribution

    if folder := _sent_folder(JARS):
        client.use(Distribution(folder))


def python_of(environment: Path | None, *, near: bool) -> str:
    """Return the Python interpreter of executors, which may be ``near``, that is on this host."""
    if environment is not None:
        return f"./{ENVIRONMENT}/bin/python"
    return os.environ.get("PYSPARK_PYTHON") or (sys.executable if near else "python3")


def send(spark: SparkSession, work: Path, environment: Path | None, *, java: bool) -> None:
    """Send code and clients to the executors of a session in which no job has run yet."""
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
            for path in importlib.metadata.files(package) or ():
                source = Path(str(path.locate()))
                # scripts are outside the packages' folder
                if ".." not in path.parts and source.suffix != ".pyc":
                    packed.write(source, str(path))
    return file


def _pack_jars(work: Path) -> Path:
    """Pack the jars of a Java producer in the folders of the built distribution; return the archive."""
    from pyhooks.patchset.distribution import HOOKS, Distribution

    distribution, file = Distribution.load(), work / f"{JARS}.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
        for folder, names in (("overlay", OVERLAY_JARS), ("libs", PRODUCER_JARS)):
            for jar in sorted((distribution.root / folder).glob("*.jar")):
                if jar.name.startswith(names):
                    packed.write(jar, f"{folder}/{jar.name}")
        packed.write(distribution.hooks, HOOKS)
    return file


def await_slots(spark: SparkSession, tasks: int) -> int:
    """Wait until the executors have started; return how many tasks they run at a time.

    Raises:
        RackgateError: they run fewer than ``tasks`` at the end of the time limit.
    """
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    slots, since = -1, time.monotonic()

    def steady() -> bool:
        nonlocal slots, since
        now = int(context.maxNumConcurrentTasks(profile))
        if now != slots:
            slots, since = now, time.monotonic()
        return slots >= tasks and time.monotonic() - since >= STEADY_S

    try:
        wait_for(steady, goal="executors", timeout_s=START_S, interval_s=POLL_S)
    except RackgateError as error:
        raise RackgateError(
            f"--master {spark.sparkContext.master}: its executors run {max(slots, 0)} tasks at a time after"
            f" {START_S:.0f} s, and the load has {tasks}: use a lower --tasks, or free cores of the Spark cluster"
        ) from error
    return slots


def survey(
    spark: SparkSession, slots: int, brokers: Mapping[int, str], *, java: bool, shared: Path | None
) -> tuple[list[LoadHost], dict[str, int]]:
    """Survey all executors, and prepare their Python for the load.

    ``slots`` is the number of tasks that they run at a time, ``brokers`` has addresses by id. ``shared`` is the folder
    of the run to which executors must be able to write; None if they send observations here.

    Returns:
        The executors in the order of their names, and the clock differences of their hosts, see
        ``clock_offsets.host_offsets``.

    Raises:
        RackgateError: an executor lacks what a load needs, or can't reach a broker; or no executor reaches this host.
    """
    conf = spark.sparkContext.getConf()
    host_name = str(conf.get("spark.driver.host"))
    with ExitStack() as stack:
        listen = str(conf.get("spark.driver.bindAddress", host_name))
        clock_served = stack.enter_context(clock_offsets.serving_clock(listen))
        address = host_name, clock_served.at.address[1]
        probe = shared and Path(stack.enter_context(tempfile.TemporaryDirectory(dir=shared)))

        def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield pd.DataFrame(
                    {
                        "survey": [
                            json.dumps(_survey_executor(brokers, address, java=java, probe=probe)) for _ in frame["id"]
                        ]
                    }
                )

        frame = spark.range(0, slots, 1, slots).mapInPandas(work, schema=SCHEMA, barrier=True)
        # the first job loads Python and pandas everywhere; start and end of the second one bound the clock readings
        frame.collect()
        begun_ns = time.monotonic_ns()
        rows = [json.loads(row["survey"]) for row in frame.collect()]
        ended_ns = time.monotonic_ns()
    pairs: list[tuple[clock_offsets.ClockReading, clock_offsets.ClockOffset]] = []
    surveyed: list[LoadHost] = []
    for row in rows:
        reading = clock_offsets.ClockReading(**row.pop("clock"))
        clock = clock_offsets.clock_offset(reading, clock_offsets.boot_id(), begun_ns, ended_ns)
        pairs.append((reading, clock))
        surveyed.append(LoadHost(**row, clock=clock))
    # of several surveys of an executor, the one with the smallest clock error counts
    hosts = {host.name: host for host in sorted(surveyed, key=lambda host: (host.name, -host.clock.error_ms))}
    for host in hosts.values():
        _check(host)
    _check_clocks(list(hosts.values()), f"{address[0]}:{address[1]}")
    return list(hosts.values()), clock_offsets.host_offsets(pairs)


def _survey_executor(
    brokers: Mapping[int, str], address: tuple[str, int], *, java: bool, probe: Path | None
) -> dict[str, Any]:
    """Return what this executor provides; ``probe``: new folder of the driver that it must find."""
    use_sent_client()
    versions: dict[str, str | None] = {"python": platform.python_version()}
    loaded = {"code": Path(__file__).parents[2].name}
    trouble = ""
    for package in ("numpy", "pandas", "pyarrow", "confluent_kafka", *(["jpype"] if java else [])):
        try:
            module = __import__(package)
        except ImportError as error:
            versions[package], trouble = None, f"load {package}: {error}"
        else:
            version = getattr(module, "__version__", None)
            if package == "confluent_kafka":
                loaded["client"] = Path(str(module.__file__)).parents[1].name
            versions[package] = str(version if version is not None else importlib.metadata.version(package))
    if java and not trouble:
        trouble = _java_trouble()
    if probe is not None and not (probe.is_dir() and os.access(probe.parent, os.W_OK)):
        trouble = trouble or f"write to {probe.parent}, which --shared requires"
    trips: dict[str, list[float]] = {}
    unreached: dict[str, str] = {}
    for broker, broker_address in brokers.items():
        try:
            trips[str(broker)] = handshakes(broker_address)
        except OSError as error:
            unreached[str(broker)] = f"{broker_address}: {error.strerror or error}"
    return {
        "name": executor_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "machine": f"{platform.machine()} {platform.system()}",
        "versions": versions,
        "loaded": loaded,
        "trouble": trouble,
        "unreached": unreached,
        "round_trips_ms": trips,
        "clock": asdict(clock_offsets.read_clocks(address)),
    }


def _java_trouble() -> str:
    """Return why no JVM can be started here, or an empty text."""
    import jpype

    try:
        jpype.getDefaultJVMPath()
    except jpype.JVMNotFoundException:
        return "load Java (libjvm.so): set JAVA_HOME, as with --conf spark.executorEnv.JAVA_HOME=…"
    return ""


def handshakes(address: str) -> list[float]:
    """Return the durations of several TCP handshakes with a broker in ms; OSError if it can't be reached."""
    host, _, port = address.rpartition(":")
    durations_ms = []
    for _ in range(HANDSHAKES):
        begun = time.monotonic_ns()
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S):
            durations_ms.append((time.monotonic_ns() - begun) / 1e6)
    return durations_ms


def _check(host: LoadHost) -> None:
    """Raise an error that names what an executor lacks to carry load."""
    if host.trouble:
        raise RackgateError(
            f"executor {host.name} (Python {host.versions['python']}, {host.machine}) can't {host.trouble};"
            " bench/README.md lists the requirements of executors"
        )
    for broker, reason in host.unreached.items():
        raise RackgateError(f"executor {host.name} can't connect to broker {broker} at {reason}")


def _check_clocks(hosts: Sequence[LoadHost], address: str) -> None:
    """Raise an error if no executor reaches the driver's clock: one must report the starts of loads."""
    if all(host.clock.how == "job" for host in hosts):
        raise RackgateError(f"no executor can connect to the driver at {address}: {clock_offsets.REMEDY}")


def round_trips(hosts: Sequence[LoadHost]) -> list[dict[str, Any]]:
    """Return the handshakes of all executors as rows of a result's round trips."""
    return [
        round_trip_row(host.name, broker, durations_ms)
        for host in hosts
        for broker, durations_ms in host.round_trips_ms.items()
    ]


def round_trip_row(source: str, broker: int | str, durations_ms: Sequence[float]) -> dict[str, Any]:
    """Return one row of round trips; with so few handshakes the slowest one is the 99th percentile."""
    return {
        "source": source,
        "target": f"broker-{broker}",
        "p50_ms": statistics.median(durations_ms),
        "p99_ms": max(durations_ms),
    }
