"""The JVM of this process; jpype allows only one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import jpype

from pyhooks.core.errors import RackgateError

LOG4J = Path(__file__).with_name("log4j2.properties")
HEAP_MB = 128
_running: list[str] = []
_starting = threading.Lock()


def ensure_started(classpath: str, *, heap_mb: int = HEAP_MB, log_level: str = "WARN") -> None:
    """Start the JVM, or do nothing if it runs with the same class path.

    Signals stay with Python, so Ctrl-C raises KeyboardInterrupt. The JVM ends with this process.

    Args:
        classpath: as for ``java -cp``; entries may end in ``/*``.
        heap_mb: maximum heap in MiB.
        log_level: log level of Kafka's clients, which log to standard error.

    Raises:
        RackgateError: there is no Java, or the JVM runs with another class path (it cannot be changed or restarted).
    """
    # Of concurrent callers, one starts the JVM; the others find it running.
    with _starting:
        _start(classpath, heap_mb, log_level)


def _start(classpath: str, heap_mb: int, log_level: str) -> None:
    if jpype.isJVMStarted():
        if _running != [classpath]:
            raise RackgateError(
                "this process already has a JVM with another class path: use a pyhooks.jvm.gateway.Gateway for this one"
            )
        return
    try:
        library = jpype.getDefaultJVMPath()
    except jpype.JVMNotFoundException as error:
        raise RackgateError("no Java found: install a JDK 17 or set JAVA_HOME") from error
    jpype.startJVM(
        library,
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xrs",
        f"-Dlog4j2.configurationFile={LOG4J}",
        f"-Drackgate.log.level={log_level}",
        classpath=classpath.split(os.pathsep),
        convertStrings=False,
        interrupt=False,
    )
    _running.append(classpath)
