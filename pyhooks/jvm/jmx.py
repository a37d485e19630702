"""MBeans of another JVM, such as a broker, read through its JMX port by the JVM of this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyhooks.core.errors import RackgateError
from pyhooks.jvm.client import Client, InProcess, java_errors
from pyhooks.jvm.java_exception import JavaError

TIMEOUT_S = 5.0
_TIMEOUT = "java.util.concurrent.TimeoutException"
_ESCAPED = re.compile(r"\\(.)")
_UNESCAPED = {"t": "\t", "n": "\n", "r": "\r"}


@dataclass(frozen=True)
class Row:
    """One attribute of an MBean.

    Attributes:
        object_name: object name of the MBean, in canonical form.
        attribute: attribute name; an item of a composite attribute is ``attribute.item``.
        value: number or boolean, text for any other type; None if it could not be read.
    """

    object_name: str
    attribute: str
    value: float | bool | str | None


class Jmx(Client):
    """A connection to a JMX port without authentication.

    Args:
        host: host of the JVM; its ``java.rmi.server.hostname`` must be an address that is reachable from here.
        port: its JMX port.
        timeout_s: bound for the connection and for each query, in seconds.

    Raises:
        JavaError: connection refused.
        RackgateError: no response in time, no distribution, or no Java.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float = TIMEOUT_S) -> None:
        self._address = f"{host}:{port}"
        self._timeout_ms = round(timeout_s * 1000)
        with self._calling():
            made = InProcess().make("rackgate.hooks.RemoteBeans", {"host": host, "port": str(port)}, self._timeout_ms)
        super().__init__(made, timeout_s)

    def __enter__(self) -> Jmx:
        return self

    def query(self, pattern: str) -> tuple[Row, ...]:
        """Return all readable attributes of the matching MBeans, sorted by MBean.

        Args:
            pattern: an object name, with or without wildcards, such as ``kafka.server:type=ReplicaManager,*``.

        Raises:
            JavaError: the pattern is not an object name, or the connection is lost.
            RackgateError: no response in time.
        """
        with self._calling():
            lines = str(self._java.query(pattern, self._timeout_ms))
        return tuple(map(parse, lines.split("\n")[:-1]))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        with java_errors():
            self._java.close(self._timeout_ms)

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Raise Java exceptions of the block as Python exceptions: a timeout as RackgateError."""
        try:
            with java_errors():
                yield
        except JavaError as error:
            if not error.extends(_TIMEOUT):
                raise
            bound = f"{self._timeout_ms / 1000:g} s"
            raise RackgateError(f"JMX of {self._address}: no response in {bound}; is that a JVM?") from error


def parse(line: str) -> Row:
    """Parse a line as written by the Java helper ``rackgate.hooks.Mbeans``.

    Raises:
        RackgateError: the line is malformed.
    """
    columns = line.split("\t")
    if len(columns) != 4 or columns[2] not in {"i", "d", "b", "s", "-"}:
        raise RackgateError(f"{line[:200]!r} is not a line of an MBean's attribute")
    name, attribute, kind, text = (
        _ESCAPED.sub(lambda match: _UNESCAPED.get(match[1], match[1]), column) for column in columns
    )
    value: float | bool | str | None = text
    if kind == "i":
        value = int(text)
    elif kind == "d":
        value = float(text)
    elif kind == "b":
        value = text == "true"
    elif kind == "-":
        value = None
    return Row(name, attribute, value)
