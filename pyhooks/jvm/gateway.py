"""Separate JVMs, each with its own class path, so that stock and patched clients can run side by side."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway, JavaPackage, find_jar_path

from pyhooks.core.errors import RackgateError
from pyhooks.core.namespaces import NamespaceMachine, network_of
from pyhooks.core.process import DIES_WITH_PARENT, children, end, start
from pyhooks.jvm.client import LOG4J, java_errors

LOOPBACK = "127.0.0.1"
START_S = 30.0
STOP_S = 5.0


@dataclass(frozen=True)
class Versions:
    """Versions of a request that a Kafka client supports."""

    oldest: int
    latest: int


class _Connections(GatewayClient):  # type: ignore[misc]  # py4j has no types
    """Connections to a JVM in a node's network namespace that bypass the lab's network.

    Args:
        parameters: address and token of the JVM.
        node_pid: a process in the node's namespaces, or None for this process's own network.
    """

    def __init__(self, parameters: GatewayParameters, node_pid: int | None) -> None:
        self._node_pid = node_pid
        super().__init__(gateway_parameters=parameters)

    def _create_connection(self) -> Any:
        # py4j creates the socket here, in the thread that calls Java.
        with network_of(self._node_pid) if self._node_pid is not None else nullcontext():
            return super()._create_connection()

    def _should_retry(self, *_: object) -> bool:
        # Never repeat a call that may have been executed: it may have sent records.
        return False


class Gateway(AbstractContextManager["Gateway"]):
    """A JVM controlled through py4j, on this host or in a node of a lab.

    It listens on loopback only (the node's loopback inside a node), so control traffic does not cross the lab's
    network. Clients need its token. It ends with this process, however this process ends: the JVM exits when its
    standard input closes, and the kernel kills it when the thread that created it ends. Create it in a thread that
    outlives its use. Its standard output is not read after startup, so called Java code must not print much. Java
    objects returned to Python are not freed before the JVM ends.

    Args:
        classpath: as for ``java -cp``; entries may end in ``/*``. If it includes the project's Java helpers, as in
            ``pyhooks.patchset.client_classpaths.client_classpath``, ``Producer`` and ``Consumer`` can run in this JVM.
        machine: node in which to run; by default the namespaces of this process.
        heap_mb: maximum heap in MiB.
        timeout_s: bound for the startup in seconds.

    Raises:
        RackgateError: the JVM did not start.
    """

    def __init__(
        self, classpath: str, *, machine: NamespaceMachine | None = None, heap_mb: int = 128, timeout_s: float = START_S
    ) -> None:
        self._machine = machine
        # Standard error goes to an unnamed temporary file, which needs neither a reader nor cleanup.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = self._start(classpath, heap_mb)
        try:
            self.port = int(self._line(timeout_s))
            token = self._line(timeout_s)
            parameters = GatewayParameters(
                address=LOOPBACK,
                port=self.port,
                auth_token=token,
                auto_convert=True,
                # Otherwise the garbage collector tries to connect, in vain, for each object that outlives the gateway.
                enable_memory_management=False,
            )
            connections = _Connections(parameters, machine.pid if machine else None)
            self._gateway = JavaGateway(gateway_client=connections, gateway_parameters=parameters)
        except BaseException:
            self._end()
            raise

    def _start(self, classpath: str, heap_mb: int) -> subprocess.Popen[bytes]:
        jar = find_jar_path()
        if not jar or not Path(jar).is_file():
            raise RackgateError("py4j's jar is not where its package puts it: install py4j again")
        command = ["java", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        # disables a file in /tmp named by PID: nodes share /tmp, and their JVMs can have the same PID
        command += ["-XX:-UsePerfData", f"-Dlog4j2.configurationFile={LOG4J}", "-cp", f"{jar}:{classpath}"]
        command += ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
        if self._machine is not None:
            # Entering a node takes an extra process, which must not leave the JVM behind either.
            command = self._machine.enter([*DIES_WITH_PARENT, *command])
        pipe = subprocess.PIPE
        return start(command, task="start a JVM", bufsize=0, stdin=pipe, stdout=pipe, stderr=self._errors)

    def _line(self, timeout_s: float) -> str:
        """Return the next line of the JVM's standard output: first its port, then its token."""
        out = self._process.stdout
        assert out is not None  # noqa: S101 - it is a pipe
        text = b""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as ready:
            ready.register(out, selectors.EVENT_READ)
            while not text.endswith(b"\n"):
                # Unbuffered, one byte at a time: the selector does not see data in a buffer.
                byte = out.read(1) if ready.select(max(0.0, deadline - time.monotonic())) else b""
                if not byte:
                    self._errors.seek(0)
                    output = self._errors.read().decode(errors="replace")
                    raise RackgateError(f"a JVM did not start within {timeout_s:.0f} s", detail=output[-2000:])
                text += byte
        return text.decode().strip()

    @property
    def pid(self) -> int:
        """Process id of the JVM in this process's PID namespace."""
        if self._machine is None:
            return self._process.pid
        return children(self._process.pid)[0]

    @property
    def jvm(self) -> Any:
        """py4j's view of the JVM, as in ``gateway.jvm.java.lang.System.nanoTime()``."""
        return self._gateway.jvm

    def produce_versions(self) -> Versions:
        """Return the versions of the produce request that the client on this class path supports.

        Raises:
            JavaError: the class path has no usable Kafka client.
        """
        with java_errors():
            produce = self.jvm.org.apache.kafka.common.protocol.ApiKeys.PRODUCE
            return Versions(int(produce.oldestVersion()), int(produce.latestVersion()))

    def make(self, name: str, config: Mapping[str, str], *more: int) -> Any:
        """Create a Java object; see ``pyhooks.jvm.client.Home``.

        Raises:
            JavaError: the constructor threw.
            RackgateError: the class is not on the class path.
        """
        with java_errors():
            properties = self.jvm.java.util.Properties()
            for key, value in config.items():
                properties.setProperty(key, value)
            place = self.jvm
            for part in name.split("."):
                place = getattr(place, part)
            if isinstance(place, JavaPackage):
                raise RackgateError(f"class {name} is not on the class path of this gateway")
            return place(properties, *more)

    def kill(self) -> None:
        """Kill the JVM with SIGKILL, like a crash; the gateway must still be closed."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End the JVM and wait until it has exited."""
        self._gateway.close()
        self._end()

    def _end(self) -> None:
        end(self._process, grace_s=STOP_S)
        self._errors.close()

    def __exit__(self, *_: object) -> None:
        self.close()
