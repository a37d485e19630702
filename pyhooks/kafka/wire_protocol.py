"""Questions to a single broker in Kafka's protocol, for what Kafka's clients do not tell or do not ask in time.

Layouts are those of the message descriptions in Kafka's sources. The listener has neither encryption nor
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
_ANSWER_BYTES_MAX = 1 << 24
_LEAST_S = 0.001


def framed(key: int, version: int, body: bytes) -> bytes:
    """A request: its length, its header with the client's name, and ``body``.

    The header is that of version 1; in one of version 2, ``body`` begins with the header's tagged fields.

    Args:
        key: of the API.
        version: of the request.
        body: what follows the header.
    """
    header = struct.pack(">hhih", key, version, _CORRELATION, len(CLIENT)) + CLIENT
    return struct.pack(">i", len(header) + len(body)) + header + body


def address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``."""
    host, _, port = text.strip().rpartition(":")
    return host.strip("[]"), int(port)


def ask(address: tuple[str, int], request: bytes, name: str, timeout_s: float) -> bytes:
    """A broker's answer over a connection of its own, from the header on.

    Args:
        address: host and port.
        request: with its length in front.
        name: of the API, for errors.
        timeout_s: bound for all of it, in seconds.

    Raises:
        RackgateError: no whole answer in time, or one that is none.
    """
    host, port = address
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as talk:
            talk.sendall(request)
            (size,) = struct.unpack(">i", _exactly(talk, 4, deadline))
            if not 0 < size <= _ANSWER_BYTES_MAX:
                raise RackgateError(f"{host}:{port}: the answer to {name} has {size} bytes: is it Kafka?")
            return _exactly(talk, size, deadline)
    except OSError as error:
        raise RackgateError(f"{host}:{port}: no answer to {name}: {error.strerror or error}") from error


def told(address: tuple[str, int], request: bytes, name: str, timeout_s: float, read: Callable[[bytes], T]) -> T:
    """What ``read`` makes of a broker's answer; see ``ask``.

    Raises:
        RackgateError: as of ``ask``; the answer ends early, or has text that is none; or ``read`` raises it.
    """
    answer = ask(address, request, name, timeout_s)
    try:
        return read(answer)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise RackgateError(f"{address[0]}:{address[1]}: can't read its answer to {name}: is it Kafka?") from error


class Reader:
    """Kafka's types, one after another.

    Args:
        data: an answer, from its header on.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """So many bytes.

        Raises:
            IndexError: there are fewer.
        """
        if size < 0 or self._at + size > len(self._data):
            raise IndexError(f"{size} bytes at {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, form: str) -> int:
        """A number in a form of ``struct``."""
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def varint(self) -> int:
        """An unsigned number of one to five bytes."""
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip_tags(self) -> None:
        """Tagged fields that nobody asked for."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def text(self) -> str | None:
        """A string of the layouts without compact ones; None for null."""
        size = self.number(">h")
        return None if size < 0 else self.take(size).decode()

    def compact_text(self) -> str | None:
        """A string of the layouts with compact ones; None for null."""
        size = self.varint() - 1
        return None if size < 0 else self.take(size).decode()

    def compact_count(self) -> int:
        """How many elements an array of the layouts with compact ones has; 0 for null."""
        return max(0, self.varint() - 1)

    def count(self) -> int:
        """How many elements an array of the layouts without compact ones has; 0 for null."""
        return max(0, self.number(">i"))

    def numbers(self) -> tuple[int, ...]:
        """An array of 32-bit numbers."""
        return tuple(self.number(">i") for _ in range(self.count()))


def _exactly(talk: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        left_s = deadline - time.monotonic()
        # what is there already counts, though a busy machine has let us look at it late
        if left_s <= 0 and not select.select([talk], [], [], 0)[0]:
            raise TimeoutError("timed out")
        talk.settimeout(max(left_s, _LEAST_S))
        part = talk.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the connection ended")
        data += part
    return data
