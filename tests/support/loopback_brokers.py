"""Brokers in racks on loopback that tests start and stop, and a proxy that records their produce traffic."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import jpype
import pytest
from py4j.protocol import Py4JJavaError

from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.core.wait import wait_for
from pyhooks.jvm.client import start_jvm
from pyhooks.jvm.gateway import Gateway
from pyhooks.jvm.java_exception import JavaError
from pyhooks.lab.class_data_sharing import ensure_archive
from pyhooks.lab.disk_format import format_disks
from pyhooks.lab.kafka_process import METRICS_SOCKET, java_command, new_id, performance_options, render
from pyhooks.lab.lab_processes import namespace_method
from pyhooks.lab.mbeans import SocketSource
from pyhooks.patchset.distribution import Distribution

HOST = "127.0.0.1"
PRODUCE = 0
API_VERSIONS = 18
STOP_S, END_S, RESTART_S = 120.0, 30.0, 90.0
STRINGS = {
    "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
    "value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
}


# Below the ports that the kernel gives out, since a broker may listen only minutes later. Each worker has its own.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw9").removeprefix("gw"))
_PORTS = cycle(range(12_000 + 2_000 * _WORKER, 14_000 + 2_000 * _WORKER))


def free_ports(number: int) -> list[int]:
    """Return free TCP ports, no port twice."""
    return list(islice(filter(_is_free, _PORTS), number))


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
    return True


@contextmanager
def closed_port() -> Iterator[int]:
    """Reserve a TCP port that refuses connections."""
    with socket.socket() as holder:
        holder.bind((HOST, 0))
        yield int(holder.getsockname()[1])


@cache
def shared_classes(classpath: str) -> tuple[str, ...]:
    """Return JVM options for the build's class archive, which halves a start's CPU time; empty for other builds."""
    built = Distribution.load()
    for overlay in (True, False):
        if classpath == built.classpath(overlay=overlay):
            archive = ensure_archive(built.classes(overlay=overlay), classpath, namespace_method().prefix)
            return (f"-XX:SharedArchiveFile={archive}",) if archive else ()
    return ()


def format_in_process(calls: Sequence[Sequence[str]]) -> None:
    """Format disks as ``format_disks`` does, with the built overlay, in this process's JVM, which saves a start."""
    start_jvm()
    output = jpype.JClass("java.io.ByteArrayOutputStream")()
    out = jpype.JClass("java.io.PrintStream")(output)
    tool = jpype.JClass("kafka.tools.StorageTool")
    for call in calls:
        status = int(tool.execute(jpype.JArray(jpype.JString)(call), out))
        assert status == 0, str(output)


def jmx_options(port: int) -> list[str]:
    """Return JVM options that serve JMX on loopback only."""
    at = "com.sun.management.jmxremote"
    settings = {"port": port, "rmi.port": port, "host": HOST, "authenticate": "false", "ssl": "false"}
    return [f"-Djava.rmi.server.hostname={HOST}", *(f"-D{at}.{key}={value}" for key, value in settings.items())]


class Brokers:
    """Brokers in racks and one controller, which is one of the brokers or a separate node.

    Args:
        folder: folder for their files.
        racks: rack by broker id; empty for a broker without a rack.
        controller: node id of the controller.
        advertised: ports to advertise to clients instead of the brokers' own; empty for the brokers' own.
        extra: additional properties of all nodes.
        own: additional properties of single nodes, by node id.
        agent: jar of the metrics agent, or None for nodes without it.
        jmx: give each node a JMX port on loopback.
        heap_mb: heap of each node, in MiB.
    """

    def __init__(
        self,
        folder: Path,
        racks: Mapping[int, str],
        controller: int,
        *,
        advertised: Sequence[int] = (),
        extra: Mapping[str, str] | None = None,
        own: Mapping[int, Mapping[str, str]] | None = None,
        agent: Path | None = None,
        jmx: bool = False,
        heap_mb: int = 256,
    ) -> None:
        self.folder = folder
        self._heap_mb = heap_mb
        self.racks = dict(racks)
        self.controller = controller
        self.nodes = sorted({*racks, controller})
        ports = free_ports(2 * len(racks) + 1)
        self.ports = ports[: len(racks)]
        self._client = dict(zip(racks, self.ports, strict=True))
        self._peer = dict(zip(racks, ports[len(racks) :], strict=False))
        self._control = ports[-1]
        self._agent = agent
        self.jmx_ports = dict(zip(self.nodes, free_ports(len(self.nodes)), strict=True)) if jmx else {}
        self._extra = dict(extra or {})
        self._own = dict(own or {})
        self._advertised = dict(zip(racks, tuple(advertised) or self.ports, strict=True))
        self._identity = new_id()
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, as clients see them."""
        return ",".join(f"{HOST}:{port}" for port in self._advertised.values())

    def address(self, broker: int) -> str:
        """Return a broker's address."""
        return f"{HOST}:{self._client[broker]}"

    @property
    def controller_address(self) -> str:
        """Address of the controller's own listener."""
        return f"{HOST}:{self._control}"

    def file(self, node: int) -> Path:
        """Return a node's properties file."""
        return self.folder / f"{node}.properties"

    def log(self, node: int) -> str:
        """Return a node's log since its latest start."""
        return (self.folder / f"{node}.log").read_text(encoding="utf-8")

    def data(self, node: int) -> Path:
        """Return a node's log directory."""
        return self.folder / f"data-{node}"

    def format(self, classpath: str, *more: str, nodes: Sequence[int] = ()) -> None:
        """Write the properties files and format the disks.

        Args:
            classpath: class path of the storage tool.
            more: additional arguments of ``kafka-storage format``.
            nodes: nodes to format; empty for all.
        """
        chosen = nodes or self.nodes
        for node in chosen:
            self.file(node).write_text(render(self._properties(node)), encoding="utf-8")
        common = ["format", "-t", self._identity]
        calls = [[*common, "-c", str(self.file(node)), *more] for node in chosen]
        if classpath == Distribution.load().classpath():
            format_in_process(calls)
        else:
            format_disks(classpath, calls)

    def wipe(self, node: int) -> None:
        """Delete the disk of a stopped node."""
        assert node not in self._running, f"node {node} runs"
        shutil.rmtree(self.data(node))

    def set(self, name: str, value: str) -> None:
        """Set a property of all nodes, effective at their next start."""
        self._extra[name] = value
        self._write_files()

    def set_rack(self, broker: int, rack: str) -> None:
        """Change a broker's rack, effective at its next start; an empty rack removes it."""
        self.racks[broker] = rack
        self._write_files()

    def _write_files(self) -> None:
        for node in self.nodes:
            self.file(node).write_text(render(self._properties(node)), encoding="utf-8")

    @contextmanager
    def running(self, classpath: str, *, clean_end: bool = False) -> Iterator[None]:
        """Run all nodes during the block, then kill them, which is fast.

        With ``clean_end`` they are shut down cleanly before, for tests that use their disks afterwards.
        """
        try:
            for node in self.nodes:
                self.start(node, classpath)
            wait_for(self._up, goal="nodes that started", timeout_s=90, interval_s=0.3)
            yield
        finally:
            if clean_end:
                self._stop_all()
            for node in list(self._running):
                self.kill(node)

    def start(self, node: int, classpath: str) -> None:
        """Start a node inside the block of ``running``, without waiting for it."""
        command = java_command(
            classpath=classpath,
            heap_mb=self._heap_mb,
            properties=self.file(node),
            options=shared_classes(classpath),
            performance=performance_options(),
        )
        if node in self.jmx_ports:
            command[1:1] = jmx_options(self.jmx_ports[node])
        if self._agent:
            command.insert(1, f"-javaagent:{self._agent}={self._socket(node)}")
        with (self.folder / f"{node}.log").open("wb") as log:
            self._running[node] = subprocess.Popen([*DIES_WITH_PARENT, *command], stdout=log, stderr=subprocess.STDOUT)

    def serves(self, node: int) -> bool:
        """Return whether the node serves requests; fail if it has ended."""
        process = self._running[node]
        assert process.poll() is None, f"node {node} ended:\n{self.log(node)[-3000:]}"
        return "Kafka Server started" in self.log(node)

    def _socket(self, node: int) -> Path:
        return self.folder / f"{node}-{METRICS_SOCKET}"

    def metrics(self, node: int) -> SocketSource:
        """Return the source of a node's metrics; the nodes must have the agent."""
        return SocketSource(node, f"broker-{node}", self.racks.get(node), self._socket(node))

    def kill(self, node: int) -> None:
        """Kill a node, as a power failure does."""
        process = self._running.pop(node)
        process.kill()
        process.wait()

    def stop(self, node: int) -> None:
        """Shut a node down cleanly."""
        process = self._running[node]
        process.terminate()
        wait_for(lambda: process.poll() is not None, goal=f"node {node} to stop", timeout_s=STOP_S)
        del self._running[node]

    def restart(self, node: int, classpath: str, *, rack: str | None = None) -> None:
        """Restart a node cleanly on a class path, in ``rack`` if given, and wait until it serves requests."""
        self.stop(node)
        if rack is not None:
            self.set_rack(node, rack)
        self.start(node, classpath)
        wait_for(lambda: self.serves(node), goal=f"node {node} to serve requests", timeout_s=RESTART_S, interval_s=0.3)

    def pause(self, node: int) -> None:
        """Pause a node: it keeps its state and neither sends nor receives."""
        self._running[node].send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """Resume a paused node."""
        self._running[node].send_signal(signal.SIGCONT)

    def _up(self) -> bool:
        return all(self.serves(node) for node in self._running)

    def _stop_all(self) -> None:
        # the controller last, otherwise the others would wait for it
        for node in self._running:
            self.resume(node)
        for node in sorted(self._running, key=lambda node: (node == self.controller, -node)):
            self._running[node].terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                # a broker that has lost its controller would wait for it for minutes
                self._running[node].wait(timeout=END_S)

    def _properties(self, node: int) -> dict[str, str]:
        roles = ["broker"] * (node in self.racks) + ["controller"] * (node == self.controller)
        listeners, advertised = [], []
        if node in self.racks:
            listeners += [f"PLAINTEXT://{self.address(node)}", f"PEER://{HOST}:{self._peer[node]}"]
            advertised += [f"PLAINTEXT://{HOST}:{self._advertised[node]}", listeners[1]]
        if node == self.controller:
            listeners.append(f"CONTROLLER://{HOST}:{self._control}")
        rack = self.racks.get(node)
        broker = {
            **({"broker.rack": rack} if rack else {}),
            "advertised.listeners": ",".join(advertised),
            "inter.broker.listener.name": "PEER",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        return {
            "process.roles": ",".join(roles),
            "node.id": str(node),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PEER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"{self.controller}@{HOST}:{self._control}",
            "log.dirs": str(self.data(node)),
            **(broker if node in self.racks else {}),
            **self._extra,
            **self._own.get(node, {}),
        }


class Pair(Brokers):
    """Two brokers in rack a; the first is also the controller.

    Args:
        folder: folder for their files.
        advertised: ports to advertise to clients instead of the brokers' own; empty for the brokers' own.
        extra: additional properties of both.
    """

    def __init__(self, folder: Path, *, advertised: Sequence[int] = (), extra: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, {1: "a", 2: "a"}, controller=1, advertised=advertised, extra=extra)


def rejected_attempt(gateway: Gateway, bootstrap: str, config: Mapping[str, str]) -> JavaError:
    """Send a record to the topic ``gated`` with a Java producer, which must fail, and return its exception."""
    java = gateway.jvm
    properties = java.java.util.Properties()
    for key, value in {"bootstrap.servers": bootstrap, **STRINGS, **config}.items():
        properties.setProperty(key, value)
    producer: Any = java.org.apache.kafka.clients.producer.KafkaProducer(properties)
    record = java.org.apache.kafka.clients.producer.ProducerRecord("gated", "key", "value")
    with pytest.raises(Py4JJavaError) as caught:
        producer.send(record).get()
    error = JavaError.of(caught.value.java_exception)
    producer.close()
    return error


def run_class_classpath(kafka: Path, classpath: str = "") -> str:
    """Return the class path as bin/kafka-run-class.sh orders it: the variable CLASSPATH, then each file of libs/.

    Args:
        kafka: folder of a Kafka release.
        classpath: value of CLASSPATH.
    """
    files = [str(path) for path in sorted((kafka / "libs").iterdir())]
    return ":".join([*filter(None, [classpath]), *files])


def lay_out_release(libs: Path, target: Path) -> Path:
    """Lay out a stock Kafka like its release, as far as a start needs it: all jars in ``libs``."""
    (target / "libs").mkdir(parents=True)
    for jar in libs.glob("*.jar"):
        try:
            os.link(jar, target / "libs" / jar.name)
        except OSError:
            shutil.copyfile(jar, target / "libs" / jar.name)
    return target


@dataclass(frozen=True)
class Exchange:
    """One produce request and its response, as seen on the wire.

    Attributes:
        software: client software name and version from its ApiVersions request, or empty.
        version: version of the produce request.
        error: error code of the first partition in the response.
        message: its error message, or empty.
    """

    software: str
    version: int
    error: int
    message: str


@dataclass
class _Connection:
    software: str = ""
    produce: dict[int, int] = field(default_factory=dict)


class Wire:
    """Proxy that forwards connections to brokers and records produce requests and their responses.

    Args:
        targets: ports of the brokers, which may start later.
    """

    def __init__(self, targets: Sequence[int]) -> None:
        self.exchanges: list[Exchange] = []
        self.faults: list[str] = []
        self._listeners = [socket.create_server((HOST, 0)) for _ in targets]
        self._targets = dict(zip(self.ports, targets, strict=True))
        self._lock = threading.Lock()
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    @property
    def ports(self) -> list[int]:
        """Listening ports, one per broker."""
        return [int(listener.getsockname()[1]) for listener in self._listeners]

    def point(self, targets: Sequence[int]) -> None:
        """Set the ports of the brokers."""
        self._targets = dict(zip(self.ports, targets, strict=True))

    def take(self) -> list[Exchange]:
        """Return and clear the exchanges since the last call."""
        with self._lock:
            taken, self.exchanges = self.exchanges, []
        return taken

    def close(self) -> None:
        """Stop listening."""
        for listener in self._listeners:
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        port = int(listener.getsockname()[1])
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection((HOST, self._targets[port]), timeout=5)
                broker.settimeout(None)
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client, broker), daemon=True).start()

    def _serve(self, client: socket.socket, broker: socket.socket) -> None:
        connection = _Connection()
        with client, broker:
            back = threading.Thread(target=self._pump, args=(broker, client, self._answer, connection), daemon=True)
            back.start()
            self._pump(client, broker, self._request, connection)
            back.join()

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        read: Callable[[_Connection, bytes], None],
        connection: _Connection,
    ) -> None:
        with contextlib.suppress(OSError):
            while head := _exactly(source, 4):
                body = _exactly(source, struct.unpack(">i", head)[0])
                try:
                    read(connection, body)
                except Exception as error:  # noqa: BLE001 - the test checks faults; traffic continues
                    self.faults.append(repr(error))
                sink.sendall(head + body)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _request(self, connection: _Connection, body: bytes) -> None:
        key, version, correlation = struct.unpack_from(">hhi", body)
        if key == PRODUCE:
            connection.produce[correlation] = version
        elif key == API_VERSIONS and version >= 3:
            reader = _Reader(body, 8)
            reader.skip(max(0, reader.int16()))  # client id
            reader.tags()
            connection.software = f"{reader.compact_string()} {reader.compact_string()}"

    def _answer(self, connection: _Connection, body: bytes) -> None:
        (correlation,) = struct.unpack_from(">i", body)
        version = connection.produce.pop(correlation, None)
        if version is None:
            return
        error, message = produce_error(body, version)
        with self._lock:
            self.exchanges.append(Exchange(connection.software, version, error, message))


class _Reader:
    """Reader of Kafka's primitive types, with the varints of flexible versions."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def skip(self, size: int) -> bytes:
        taken = self._data[self._position : self._position + size]
        assert len(taken) == size, "the message ends early"
        self._position += size
        return taken

    def int16(self) -> int:
        return int(struct.unpack(">h", self.skip(2))[0])

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.skip(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())

    def compact_string(self) -> str:
        return self.skip(max(0, self.varint() - 1)).decode()


def produce_error(body: bytes, version: int) -> tuple[int, str]:
    """Return error code and message of the first partition of a produce response, versions 9 to 14.

    Args:
        body: the response without its length prefix, from the correlation id on.
        version: version of the request.
    """
    assert 9 <= version <= 14, f"produce version {version} is not flexible or not known"
    reader = _Reader(body, 4)
    reader.tags()
    assert reader.varint() - 1 == 1, "one topic"
    if version >= 13:
        uuid.UUID(bytes=reader.skip(16))
    else:
        reader.compact_string()
    assert reader.varint() - 1 == 1, "one partition"
    reader.skip(4)  # partition
    error = reader.int16()
    reader.skip(8 + 8 + 8)  # base offset, append time, log start offset
    for _ in range(max(0, reader.varint() - 1)):  # record errors
        reader.skip(4)
        reader.compact_string()
        reader.tags()
    return error, reader.compact_string()


def _exactly(source: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = source.recv(size - len(parts))
        if not part:
            return b""
        parts += part
    return parts
