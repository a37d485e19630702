"""MBeans of another JVM, such as a broker, read through its JMX port by the JVM of this process."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyhooks.core.errors import RackgateError
from pyhooks.jvm import kafka_errors
from pyhooks.jvm.client import Client, InProcess, java_errors

TIMEOUT_S = 5.0
_ESCAPED = re.compile(r"\\(.)")
_MEANT = {"t": "\t", "n": "\n", "r": "\r"}


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
        try:
            made = InProcess().make("rackgate.hooks.RemoteBeans", {"host": host, "port": str(port)}, self._timeout_ms)
        except kafka_errors.named("java.util.concurrent.TimeoutException") as error:
            raise self._late() from error
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
        try:
            with java_errors():
                lines = str(self._java.query(pattern, self._timeout_ms))
        except kafka_errors.named("java.util.concurrent.TimeoutException") as error:
            raise self._late() from error
        return tuple(map(parse, lines.split("\n")[:-1]))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        with java_errors():
            self._java.close(self._timeout_ms)

    def _late(self) -> RackgateError:
        return RackgateError(f"JMX of {self._address}: no answer in {self._timeout_ms / 1000:g} s; is that a JVM?")


def parse(line: str) -> Row:
    """Parse a line as written by the Java helper ``rackgate.hooks.Mbeans``.

    Raises:
        RackgateError: the line is malformed.
    """
    words = line.split("\t")
    if len(words) != 4 or words[2] not in {"i", "d", "b", "s", "-"}:
        raise RackgateError(f"{line[:200]!r} is no line of an MBean's attribute")
    name, attribute, kind, text = (_ESCAPED.sub(lambda match: _MEANT.get(match[1], match[1]), word) for word in words)
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
