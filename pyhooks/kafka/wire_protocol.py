"""Minimal Kafka protocol client: requests to a single broker that Kafka's client libraries lack or bound poorly.

The layouts are those of the message definitions in Kafka's sources. The listener must have neither encryption nor
authentication.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from typing import TypeVar

from pyhooks.core.errors import RackgateError

T = TypeVar("T")
CLIENT = b"rackgate"
_CORRELATION = 1
_RESPONSE_BYTES_MAX = 1 << 24
_LEAST_S = 0.001


def framed(key: int, version: int, body: bytes) -> bytes:
    """Frame a request: length prefix, header with the client id, and ``body``.

    The header has version 1. For header version 2, ``body`` begins with the header's tagged fields.
    """
    header = struct.pack(">hhih", key, version, _CORRELATION, len(CLIENT)) + CLIENT
    return struct.pack(">i", len(header) + len(body)) + header + body


def address(text: str) -> tuple[str, int]:
    """Parse ``host:port``."""
    host, _, port = text.strip().rpartition(":")
    return host.strip("[]"), int(port)


def _exchange(address: tuple[str, int], request: bytes, name: str, timeout_s: float) -> bytes:
    """Send a request over a new connection and return the response; arguments are those of ``query``."""
    host, port = address
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(request)
            (size,) = struct.unpack(">i", _exactly(connection, 4, deadline))
            if not 0 < size <= _RESPONSE_BYTES_MAX:
                raise RackgateError(f"{host}:{port}: the response to {name} has {size} bytes: is it Kafka?")
            return _exactly(connection, size, deadline)
    except OSError as error:
        raise RackgateError(f"{host}:{port}: no response to {name}: {error.strerror or error}") from error


def query(address: tuple[str, int], request: bytes, name: str, timeout_s: float, read: Callable[[bytes], T]) -> T:
    """Send a request over a new connection and return the parsed response.

    Args:
        address: host and port.
        request: request with length prefix.
        name: API name, for errors.
        timeout_s: timeout of the whole request in seconds.
        read: parser of the response, starting at its header.

    Raises:
        RackgateError: no complete response in time, one with an implausible size or invalid UTF-8, or raised by
            ``read``.
    """
    response = _exchange(address, request, name, timeout_s)
    try:
        return read(response)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise RackgateError(f"{address[0]}:{address[1]}: can't read its response to {name}: is it Kafka?") from error


class Reader:
    """Sequential reader for Kafka's protocol types.

    Args:
        data: response, starting at its header.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes.

        Raises:
            IndexError: fewer bytes are left.
        """
        if size < 0 or self._at + size > len(self._data):
            raise IndexError(f"{size} bytes at {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, form: str) -> int:
        """Read a number in a ``struct`` format."""
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def varint(self) -> int:
        """Read an unsigned varint of one to five bytes."""
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip_tags(self) -> None:
        """Skip the tagged fields of a structure."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def text(self) -> str | None:
        """Read a nullable string with a 16-bit length; None for null."""
        size = self.number(">h")
        return None if size < 0 else self.take(size).decode()

    def compact_text(self) -> str | None:
        """Read a nullable compact string; None for null."""
        size = self.varint() - 1
        return None if size < 0 else self.take(size).decode()

    def compact_count(self) -> int:
        """Read the length of a compact array; 0 for null."""
        return max(0, self.varint() - 1)

    def count(self) -> int:
        """Read the length of an array with a 32-bit length; 0 for null."""
        return max(0, self.number(">i"))

    def numbers(self) -> tuple[int, ...]:
        """Read an array of 32-bit numbers."""
        return tuple(self.number(">i") for _ in range(self.count()))


def _exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        left_s = deadline - time.monotonic()
        # Data that has arrived still counts, even if a busy machine scheduled this process after the deadline.
        if left_s <= 0 and not select.select([connection], [], [], 0)[0]:
            raise TimeoutError("timed out")
        connection.settimeout(max(left_s, _LEAST_S))
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the connection ended")
        data += part
    return data
