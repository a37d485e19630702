"""Common parts of Kafka's Java clients: their JVM, their construction, and a bounded close."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from types import TracebackType
from typing import Any, Protocol

import jpype
from py4j.protocol import Py4JError, Py4JJavaError

from pyhooks.core.errors import RackgateError
from pyhooks.jvm.in_process import ensure_started
from pyhooks.jvm.java_exception import JavaError
from pyhooks.patchset.distribution import Distribution


class Home(Protocol):
    """JVM that runs clients: this process's own, or a ``pyhooks.jvm.gateway.Gateway``."""

    def make(self, name: str, config: Mapping[str, str], *more: int) -> Any:
        """Create a Java object.

        Args:
            name: full name of its class.
            config: first constructor argument, passed as java.util.Properties.
            more: further constructor arguments.

        Raises:
            JavaError: the constructor threw.
            RackgateError: no JVM, or no such class in a gateway.
        """


class InProcess:
    """JVM of this process, with the class path of the built distribution and the project's Java helpers."""

    def make(self, name: str, config: Mapping[str, str], *more: int) -> Any:
        """See ``Home.make``."""
        ensure_started(_classpath())
        with java_errors():
            return jpype.JClass(name)(_properties(config), *more)


def start_quietly() -> None:
    """Start the JVM of this process with log level ERROR, so that a fault does not log every lost connection.

    Raises:
        RackgateError: there is no Java or no distribution, or the JVM runs with another class path.
    """
    ensure_started(_classpath(), log_level="ERROR")


class Client(AbstractContextManager[Any]):
    """A Java client that is closed at the end of its ``with`` block, within a time bound."""

    def __init__(self, java: Any, close_timeout_s: float) -> None:
        self._java = java
        self._close_timeout_s = close_timeout_s

    def close(self) -> None:
        """Close the client; work that is not done within the bound is abandoned."""
        duration = jpype.JClass("java.time.Duration")
        self._java.close(duration.ofMillis(round(self._close_timeout_s * 1000)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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


_elsewhere: list[Distribution] = []


def use(distribution: Distribution) -> None:
    """Use this distribution for the clients of this process, instead of the one built last.

    Must be called before the first client is created; later calls have no effect.
    """
    _elsewhere[:] = [distribution]


@lru_cache(maxsize=1)
def _classpath() -> str:
    """Return the class path, determined once: a build that ends meanwhile must not change it."""
    built = _elsewhere[0] if _elsewhere else Distribution.load()
    return f"{built.classpath()}:{built.hooks}"


def java_of(name: str, make: Callable[[Any, Any], Any], bootstrap: str, config: Mapping[str, str]) -> Any:
    """Create the Java object of a client in this process.

    Args:
        name: full name of its class.
        make: creates the object from the class and java.util.Properties.
        bootstrap: value of ``bootstrap.servers``.
        config: all other properties.

    Raises:
        JavaError: the configuration is rejected.
        RackgateError: no distribution, or no Java.
    """
    ensure_started(_classpath())
    with java_errors():
        return make(jpype.JClass(name), _properties({"bootstrap.servers": bootstrap, **config}))


def _properties(config: Mapping[str, str]) -> Any:
    properties = jpype.JClass("java.util.Properties")()
    for key, value in config.items():
        properties.setProperty(key, value)
    return properties
