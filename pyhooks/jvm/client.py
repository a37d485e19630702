"""What Kafka's Java clients have in common: the JVM they live in, how one is made, and closed within a bound."""

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
    """A JVM that clients can live in: this process's own, or a ``pyhooks.jvm.gateway.Gateway``."""

    def make(self, name: str, config: Mapping[str, str], *more: int) -> Any:
        """A new Java object.

        Args:
            name: its class.
            config: passed on as java.util.Properties.
            more: passed on as they are.

        Raises:
            JavaError: the constructor threw.
            RackgateError: no JVM.
        """


class InProcess:
    """The JVM of this process, with the class path of the built distribution and the project's own Java helpers."""

    def make(self, name: str, config: Mapping[str, str], *more: int) -> Any:
        """See ``Home.make``."""
        ensure_started(_classpath())
        with java_errors():
            return jpype.JClass(name)(_properties(config), *more)


def start_quietly() -> None:
    """Starts the JVM of this process, which under a fault shall not tell of every connection that it loses.

    Raises:
        RackgateError: there is no Java, no distribution, or it runs with another class path.
    """
    ensure_started(_classpath(), log_level="ERROR")


class Client(AbstractContextManager[Any]):
    """A Java client that is closed at the end of its ``with`` block, within a bound."""

    def __init__(self, java: Any, close_timeout_s: float) -> None:
        self._java = java
        self._close_timeout_s = close_timeout_s

    def close(self) -> None:
        """Closes the client; what is not done within the bound is given up."""
        duration = jpype.JClass("java.time.Duration")
        self._java.close(duration.ofMillis(round(self._close_timeout_s * 1000)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def java_errors() -> Iterator[None]:
    """What Java throws within the block is raised as Python's exception.

    Raises:
        JavaError: thrown by Java.
        RackgateError: the JVM of a gateway does not answer any more.
    """
    try:
        yield
    except jpype.JException as error:
        raise JavaError.of(error) from error
    except Py4JJavaError as error:
        raise JavaError.of(error.java_exception) from error
    except Py4JError as error:
        raise RackgateError(f"the JVM of a gateway does not answer: {error}") from error


_elsewhere: list[Distribution] = []


def use(distribution: Distribution) -> None:
    """Has clients of this process come from this distribution and not from the one that was built last.

    To be called before the first client is made; it changes nothing later.
    """
    _elsewhere[:] = [distribution]


@lru_cache(maxsize=1)
def _classpath() -> str:
    """Found once: a build that ends while we run must not look like another class path."""
    built = _elsewhere[0] if _elsewhere else Distribution.load()
    return f"{built.classpath()}:{built.hooks}"


def java_of(name: str, make: Callable[[Any, Any], Any], bootstrap: str, config: Mapping[str, str]) -> Any:
    """The Java object of a client in this process.

    Args:
        name: its class.
        make: makes it of the class and java.util.Properties.
        bootstrap: brokers.
        config: everything else.

    Raises:
        JavaError: the configuration is refused.
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
