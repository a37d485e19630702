"""JVMs of their own, each with its own class path, side by side: a stock client next to a patched one."""

from __future__ import annotations

import selectors
import subprocess
import tempfile
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
from py4j.protocol import Py4JJavaError

from pyhooks.errors import RackgateError
from pyhooks.jvm.failure import JavaError
from pyhooks.jvm.machine import LOG4J
from pyhooks.process import DIES_WITH_PARENT

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


class Gateway(AbstractContextManager["Gateway"]):
    """A JVM that Python talks to through py4j.

    It listens on loopback only, answers only to who has its token, and ends with this process, however this process
    ends: it reads its standard input to the end, which comes when we are gone, and the kernel kills it when the
    thread that made it ends. So make it in a thread that lives as long as the gateway is needed. Its standard output
    is not read after the start: Java code that is called must not print much there. Java objects that Python has
    seen live until the JVM ends.

    Args:
        classpath: as for ``java -cp``; entries may end in ``/*``.
        heap_mb: the most heap it may take, in MiB.
        timeout_s: how long its start may take.

    Raises:
        RackgateError: it did not start.
    """

    def __init__(self, classpath: str, *, heap_mb: int = 128, timeout_s: float = START_S) -> None:
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
            self._gateway = JavaGateway(gateway_parameters=parameters)
        except BaseException:
            self._end()
            raise

    def _start(self, classpath: str, heap_mb: int) -> subprocess.Popen[bytes]:
        jar = find_jar_path()
        if not jar or not Path(jar).is_file():
            raise RackgateError("py4j's jar is not where its package puts it: install py4j again")
        words = ["java", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        words += [f"-Dlog4j2.configurationFile={LOG4J}", "-cp", f"{jar}:{classpath}"]
        words += ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
        try:
            return subprocess.Popen(
                [*DIES_WITH_PARENT, *words],
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
        """Process id of the JVM."""
        return self._process.pid

    @property
    def jvm(self) -> Any:
        """py4j's view of the JVM: ``gateway.jvm.java.lang.System.nanoTime()``."""
        return self._gateway.jvm

    def produce_versions(self) -> Versions:
        """The versions of the produce request that the client of this class path speaks.

        Raises:
            JavaError: its class path holds no usable Kafka client.
        """
        try:
            produce = self.jvm.org.apache.kafka.common.protocol.ApiKeys.PRODUCE
            return Versions(int(produce.oldestVersion()), int(produce.latestVersion()))
        except Py4JJavaError as error:
            raise JavaError.of(error.java_exception) from error

    def close(self) -> None:
        """Ends the JVM and waits for its end."""
        self._gateway.close()
        self._end()

    def _end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
