"""What a broker says of the cluster's features in its handshake, without a Kafka client: librdkafka tells none of it.

The request is ApiVersions 3, the first version whose answer has features (Kafka 2.4, KIP-584); layouts are those of
``ApiVersionsRequest.json`` and ``ApiVersionsResponse.json`` in Kafka's sources. A broker that is older answers in the
layout of version 0 with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping

from pyhooks.errors import RackgateError

_NAME = b"rackgate"
_CORRELATION = 1
_UNSUPPORTED_VERSION = 35
_FINALIZED_TAG = 2
_ANSWER_BYTES_MAX = 1 << 20


def request() -> bytes:
    """The question, its length in front."""
    header = struct.pack(">hhih", 18, 3, _CORRELATION, len(_NAME)) + _NAME + b"\0"
    # compact strings: length plus one; each structure ends with its number of tagged fields
    body = bytes([len(_NAME) + 1]) + _NAME + b"\x021" + b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def finalized(host: str, port: int, timeout_s: float) -> Mapping[str, int]:
    """Finalized levels of features as one broker knows them; those at level 0 may be left out.

    Args:
        host: of a listener without encryption and authentication.
        port: its port.
        timeout_s: bound for all of it, in seconds.

    Raises:
        RackgateError: no whole answer in time, or one that is none.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as talk:
            talk.sendall(request())
            (size,) = struct.unpack(">i", _exactly(talk, 4, deadline))
            if not 0 < size <= _ANSWER_BYTES_MAX:
                raise RackgateError(f"{host}:{port}: the answer to ApiVersions has {size} bytes: is it Kafka?")
            answer = _exactly(talk, size, deadline)
    except OSError as error:
        raise RackgateError(f"{host}:{port}: no answer to ApiVersions: {error.strerror or error}") from error
    try:
        return levels(answer)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise RackgateError(f"{host}:{port}: can't read its answer to ApiVersions: is it Kafka?") from error


def levels(answer: bytes) -> Mapping[str, int]:
    """Finalized levels by feature in an answer, which begins with its header.

    Raises:
        IndexError: it ends early; so does struct.error.
        UnicodeDecodeError: a name is not text.
        RackgateError: the broker refused.
    """
    at = _Reader(answer)
    at.number(">i")
    code = at.number(">h")
    if code == _UNSUPPORTED_VERSION:
        return {}
    if code:
        raise RackgateError(f"ApiVersions was refused with Kafka's error code {code}")
    for _ in range(at.varint() - 1):
        at.take(6)
        at.skip_tags()
    at.number(">i")
    found: dict[str, int] = {}
    for _ in range(at.varint()):
        tag, size = at.varint(), at.varint()
        value = _Reader(at.take(size))
        if tag != _FINALIZED_TAG:
            continue
        for _ in range(value.varint() - 1):
            name = value.take(value.varint() - 1).decode()
            found[name] = value.number(">h")
            value.number(">h")
            value.skip_tags()
    return found


class _Reader:
    """Kafka's types, one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise IndexError(f"{size} bytes at {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def _exactly(talk: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        talk.settimeout(left_s)
        part = talk.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the connection ended")
        data += part
    return data
