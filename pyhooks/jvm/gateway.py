"""JVMs of their own, each with its own class path, side by side: a stock client next to a patched one."""

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
from types import TracebackType
from typing import Any

from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway, JavaPackage, find_jar_path

from pyhooks.core.errors import RackgateError
from pyhooks.core.namespace_machine import NamespaceMachine
from pyhooks.core.network_namespace import network_of
from pyhooks.core.process import DIES_WITH_PARENT, close_input_and_wait
from pyhooks.jvm.client import java_errors
from pyhooks.jvm.in_process import LOG4J

LOOPBACK = "127.0.0.1"
START_S = 30.0
STOP_S = 5.0


@dataclass(frozen=True)
class Versions:
    """The versions of a request that a Kafka client can speak.

    Attributes:
        oldest: the lowest.
        latest: the highest.
    """

    oldest: int
    latest: int


class _Connections(GatewayClient):  # type: ignore[misc]  # py4j has no types
    """Makes connections to a JVM in a node's network without anything going over that network.

    Args:
        parameters: where the JVM listens, and its token.
        node_pid: a process in the node's namespaces, or None for our own network.
    """

    def __init__(self, parameters: GatewayParameters, node_pid: int | None) -> None:
        self._node_pid = node_pid
        super().__init__(gateway_parameters=parameters)

    def _create_connection(self) -> Any:
        # py4j makes the socket in here, in the thread that calls Java.
        with network_of(self._node_pid) if self._node_pid is not None else nullcontext():
            return super()._create_connection()

    def _should_retry(self, *_: object) -> bool:
        # A call that may have been made must not be made again: it may have sent records.
        return False


class Gateway(AbstractContextManager["Gateway"]):
    """A JVM that Python talks to through py4j, here or in a node of a lab.

    It listens on loopback only, in a node on that node's, so that control does not go over the lab's network. It
    answers only to who has its token, and ends with this process, however this process
    ends: it reads its standard input to the end, which comes when we are gone, and the kernel kills it when the
    thread that made it ends. So make it in a thread that lives as long as the gateway is needed. Its standard output
    is not read after the start: Java code that is called must not print much there. Java objects that Python has
    seen live until the JVM ends.

    Args:
        classpath: as for ``java -cp``; entries may end in ``/*``. With the project's own Java helpers in it, as
            ``pyhooks.patchset.client_classpaths.client_classpath`` has it, it is a home for ``Producer`` and
            ``Consumer``.
        machine: the node in which it shall run, by default where we run.
        heap_mb: the most heap it may take, in MiB.
        timeout_s: how long its start may take.

    Raises:
        RackgateError: it did not start.
    """

    def __init__(
        self, classpath: str, *, machine: NamespaceMachine | None = None, heap_mb: int = 128, timeout_s: float = START_S
    ) -> None:
        self._machine = machine
        # What the JVM writes goes to a file without a name: nobody has to read along or to clean up.
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
                # Else the garbage collector connects anew, and in vain, for each object that outlives the gateway.
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
        words = ["java", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        # nodes share /tmp, where a JVM keeps a file by its PID, and PIDs of nodes are alike
        words += ["-XX:-UsePerfData", f"-Dlog4j2.configurationFile={LOG4J}", "-cp", f"{jar}:{classpath}"]
        words = [*DIES_WITH_PARENT, *words, "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
        if self._machine is not None:
            # Entering a node takes a process of its own, which must not leave the JVM behind either.
            words = [*DIES_WITH_PARENT, *self._machine.enter(words)]
        try:
            return subprocess.Popen(
                words,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
            )
        except FileNotFoundError as error:
            raise RackgateError(f"start a JVM: program {error.filename!r} is not installed") from error

    def _line(self, timeout_s: float) -> str:
        """The next line of the JVM's standard output: first its port, then its token."""
        out = self._process.stdout
        assert out is not None  # noqa: S101 - it is a pipe
        text = b""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as ready:
            ready.register(out, selectors.EVENT_READ)
            while not text.endswith(b"\n"):
                # Unbuffered, one byte at a time: of what a buffer holds the selector would not tell.
                byte = out.read(1) if ready.select(max(0.0, deadline - time.monotonic())) else b""
                if not byte:
                    self._errors.seek(0)
                    said = self._errors.read().decode(errors="replace")
                    raise RackgateError(f"a JVM did not start within {timeout_s:.0f} s", detail=said[-2000:])
                text += byte
        return text.decode().strip()

    @property
    def pid(self) -> int:
        """Process id of the JVM, as seen from here."""
        if self._machine is None:
            return self._process.pid
        own = self._process.pid
        return int(Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii").split()[0])

    @property
    def jvm(self) -> Any:
        """py4j's view of the JVM: ``gateway.jvm.java.lang.System.nanoTime()``."""
        return self._gateway.jvm

    def produce_versions(self) -> Versions:
        """The versions of the produce request that the client of this class path speaks.

        Raises:
            JavaError: its class path holds no usable Kafka client.
        """
        with java_errors():
            produce = self.jvm.org.apache.kafka.common.protocol.ApiKeys.PRODUCE
            return Versions(int(produce.oldestVersion()), int(produce.latestVersion()))

    def make(self, name: str, config: Mapping[str, str], *more: int) -> Any:
        """A new Java object, see ``pyhooks.jvm.client.Home``.

        Raises:
            JavaError: the constructor threw.
            RackgateError: the class path has no such class.
        """
        with java_errors():
            properties = self.jvm.java.util.Properties()
            for key, value in config.items():
                properties.setProperty(key, value)
            place = self.jvm
            for word in name.split("."):
                place = getattr(place, word)
            if isinstance(place, JavaPackage):
                raise RackgateError(f"class {name} is not on the class path of this gateway")
            return place(properties, *more)

    def kill(self) -> None:
        """Ends the JVM at once, as a crash does; the gateway still has to be closed."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Ends the JVM and waits for its end."""
        self._gateway.close()
        self._end()

    def _end(self) -> None:
        close_input_and_wait(self._process, STOP_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
