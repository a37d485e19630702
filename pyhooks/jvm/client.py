"""Common parts of Kafka's Java clients: their JVM, their construction, and a bounded close."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, Self

import jpype
from py4j.protocol import Py4JError, Py4JJavaError

from pyhooks.core.errors import RackgateError
from pyhooks.jvm.java_exception import JavaError
from pyhooks.patchset.distribution import Distribution

LOG4J = Path(__file__).with_name("log4j2.properties")
HEAP_MB = 128
_SWITCH_INTERVAL_S = 1.0
_running: list[str] = []
_starting = threading.Lock()
_distribution: list[Distribution] = []


class Home(Protocol):
    """JVM that runs clients: this process's own, or a ``pyhooks.jvm.gateway.Gateway``."""

    def make(self, name: str, config: Mapping[str, str], *more: int) -> Any:
        """Create a Java object of the class with this full name; ``config`` becomes its first argument, as Properties.

        Raises:
            JavaError: the constructor threw.
            RackgateError: no JVM, or no such class in a gateway.
        """


class InProcess:
    """JVM of this process, with the class path of the built distribution and the project's Java helpers."""

    def make(self, name: str, config: Mapping[str, str], *more: int) -> Any:
        """See ``Home.make``."""
        start_jvm()
        with java_errors():
            return jpype.JClass(name)(java_properties(config), *more)


class Client(AbstractContextManager[Any]):
    """A Java client that is closed at the end of its ``with`` block, within a time bound."""

    def __init__(self, java: Any, close_timeout_s: float) -> None:
        self._java = java
        self._close_timeout_s = close_timeout_s

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """Close the client; work that is not done within the bound is abandoned.

        Raises:
            JavaError: it could not be closed cleanly.
        """
        with java_errors():
            self._java.close(java_duration(self._close_timeout_s))

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def java_errors() -> Iterator[None]:
    """Raise Java exceptions of the block as Python exceptions.

    Raises:
        JavaError: thrown by Java.
        RackgateError: the JVM of a gateway no longer responds.
    """
    try:
        yield
    except jpype.JException as error:
        raise JavaError.of(error) from error
    except Py4JJavaError as error:
        raise JavaError.of(error.java_exception) from error
    except Py4JError as error:
        raise RackgateError(f"the JVM of a gateway does not respond: {error}") from error


def use(distribution: Distribution) -> None:
    """Use this distribution for the clients of this process, instead of the one built last.

    Must be called before the first client is created; later calls have no effect.
    """
    _distribution[:] = [distribution]


def start_jvm(log_level: str = "WARN") -> None:
    """Start the JVM of this process with the class path of clients, or do nothing if it runs.

    Args:
        log_level: log level of Kafka's clients, which log to standard error. With ``ERROR``, a fault does not log
            every lost connection.

    Raises:
        RackgateError: there is no Java or no distribution, or the JVM runs with another class path.
    """
    ensure_started(_classpath(), log_level=log_level)


@lru_cache(maxsize=1)
def _classpath() -> str:
    """Return the class path, determined once: a build that ends meanwhile must not change it."""
    built = _distribution[0] if _distribution else Distribution.load()
    return f"{built.classpath()}:{built.hooks}"


def ensure_started(classpath: str, *, log_level: str = "WARN") -> None:
    """Start the JVM of this process, or do nothing if it runs with the same class path; jpype allows only one.

    Signals stay with Python, so Ctrl-C raises KeyboardInterrupt. The JVM ends with this process.

    Args:
        classpath: as for ``java -cp``; entries may end in ``/*``.
        log_level: see ``start_jvm``.

    Raises:
        RackgateError: there is no Java, or the JVM runs with another class path (it cannot be changed or restarted).
    """
    # Of concurrent callers, one starts the JVM; the others find it running.
    with _starting:
        if jpype.isJVMStarted():
            if _running != [classpath]:
                raise RackgateError(
                    "this process already has a JVM with another class path: use a pyhooks.jvm.gateway.Gateway for"
                    " this one"
                )
            return
        try:
            library = jpype.getDefaultJVMPath()
        except jpype.JVMNotFoundException as error:
            raise RackgateError("no Java found: install a JDK 17 or set JAVA_HOME") from error
        options = [f"-Xmx{HEAP_MB}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xrs"]
        options += [f"-Dlog4j2.configurationFile={LOG4J}", f"-Drackgate.log.level={log_level}"]
        entries = classpath.split(os.pathsep)
        jpype.startJVM(library, *options, classpath=entries, convertStrings=False, interrupt=False)
        # JPype 1.7.1 publishes a new class before it sets its conversions; a thread that passes an argument of that
        # class in between ends the process with SIGSEGV. So a thread that does not wait keeps the interpreter longer.
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        # at exit the JVM waits for the thread that started it, even if that has ended; detached, it is a daemon
        jpype.JClass("java.lang.Thread").detach()
        _running.append(classpath)


def java_duration(seconds: float) -> Any:
    """Return a java.time.Duration; the JVM must run."""
    return jpype.JClass("java.time.Duration").ofMillis(round(seconds * 1000))


def java_properties(config: Mapping[str, str]) -> Any:
    """Return a java.util.Properties with these entries; the JVM must run."""
    properties = jpype.JClass("java.util.Properties")()
    for key, value in config.items():
        properties.setProperty(key, value)
    return properties
