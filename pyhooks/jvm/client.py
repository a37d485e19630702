"""What Kafka's Java clients in this process have in common: how one is made, and closed within a bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from types import TracebackType
from typing import Any

import jpype

from pyhooks.build.distribution import Distribution
from pyhooks.jvm.failure import JavaError
from pyhooks.jvm.machine import ensure_started


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


@lru_cache(maxsize=1)
def _classpath() -> str:
    """Found once: a build that ends while we run must not look like another class path."""
    return Distribution.load().classpath()


def java_of(name: str, make: Callable[[Any, Any], Any], bootstrap: str, config: Mapping[str, str]) -> Any:
    """The Java object of a client.

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
    properties = jpype.JClass("java.util.Properties")()
    for key, value in {"bootstrap.servers": bootstrap, **config}.items():
        properties.setProperty(key, value)
    try:
        return make(jpype.JClass(name), properties)
    except jpype.JException as error:
        raise JavaError.of(error) from error
