"""Fake partition leader: the first produce request gets an error, later ones succeed.

Message layouts follow Kafka's JSON definitions; only flexible versions are supported.
"""

from __future__ import annotations

import socketserver
import struct
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

TOPIC = "gated"
TOPIC_ID = uuid.UUID(int=7)
PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 22
# The versions of a stock 4.3 broker, so never Produce 14. librdkafka infers the record format that it may send
# from Fetch and ListOffsets. All tested clients speak Metadata 12.
VERSIONS = {
    PRODUCE: (3, 13), FETCH: (4, 13), LIST_OFFSETS: (1, 6), METADATA: (0, 12), API_VERSIONS: (0, 4),
    INIT_PRODUCER_ID: (0, 4),
}  # fmt: skip
_NO_TAGS = b"\x00"


def produced(version: int, error: int, message: bytes | None = None, correlation: int = 7) -> bytes:
    """Serialize a produce response for one partition, versions 9 to 14, without its length prefix."""
    topic = TOPIC_ID.bytes if version >= 13 else _text(TOPIC)
    message_field = b"\x00" if message is None else bytes([len(message) + 1]) + message
    offset = -1 if error else 0
    partition = struct.pack(">ihqqq", 0, error, offset, -1, -1 if error else 0) + b"\x01" + message_field + _NO_TAGS
    return _answer(correlation, b"\x02" + topic + b"\x02" + partition + _NO_TAGS + struct.pack(">i", 0))


@dataclass
class Leader:
    """Configuration of the fake broker and the requests that it received.

    Attributes:
        error: error code in the response to the first produce request.
        address: host and port on which it listens.
        produced: version of each produce request, and the error code of its response.
    """

    error: int
    address: str = ""
    produced: list[tuple[int, int]] = field(default_factory=list)

    def answer(self, request: bytes) -> bytes:
        """Return the response to a request, both without their length prefix."""
        key, version, correlation = struct.unpack_from(">hhi", request)
        oldest, latest = VERSIONS[key]
        assert oldest <= version <= latest, f"request {key} of version {version} was not offered"
        if key == PRODUCE:
            code = 0 if self.produced else self.error
            self.produced.append((version, code))
            return produced(version, code, b"" if code else None, correlation)
        if key == API_VERSIONS:
            return _api_versions(correlation, version)
        if key == METADATA:
            return _metadata(correlation, version, self.address)
        assert key == INIT_PRODUCER_ID, f"request {key} has no answer here"
        assert version >= 2, f"version {version} is not flexible"
        return _answer(correlation, struct.pack(">ihqh", 0, 0, 1, 0))


@contextmanager
def leader(error: int) -> Iterator[Leader]:
    """Run the fake leader on loopback during the block."""
    fake = Leader(error)
    faults: list[BaseException] = []

    class Connection(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                while head := self.rfile.read(4):
                    answer = fake.answer(self.rfile.read(int.from_bytes(head)))
                    self.wfile.write(len(answer).to_bytes(4) + answer)
            except ConnectionError:
                pass  # clients may disconnect at any time
            except Exception as fault:  # noqa: BLE001 - raised at the end of the block
                faults.append(fault)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as server:
        server.daemon_threads = True
        fake.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()
    if faults:
        raise faults[0]


def _api_versions(correlation: int, version: int) -> bytes:
    assert version >= 3, f"version {version} is not flexible"
    rows = b"".join(struct.pack(">hhh", key, *span) + _NO_TAGS for key, span in VERSIONS.items())
    # ApiVersions: the only response whose header is never flexible
    return struct.pack(">ih", correlation, 0) + bytes([len(VERSIONS) + 1]) + rows + struct.pack(">i", 0) + _NO_TAGS


def _metadata(correlation: int, version: int, address: str) -> bytes:
    assert version == 12, f"metadata of version {version} is laid out otherwise"
    host, _, port = address.rpartition(":")
    broker = struct.pack(">i", 1) + _text(host) + struct.pack(">i", int(port)) + b"\x00" + _NO_TAGS
    one_replica = b"\x02" + struct.pack(">i", 1)
    partition = struct.pack(">hiii", 0, 0, 1, 0) + one_replica + one_replica + b"\x01" + _NO_TAGS
    authorized = struct.pack(">i", -(2**31))
    topic = struct.pack(">h", 0) + _text(TOPIC) + TOPIC_ID.bytes + b"\x00\x02" + partition + authorized + _NO_TAGS
    cluster = _text("cluster") + struct.pack(">i", 1)
    return _answer(correlation, struct.pack(">i", 0) + b"\x02" + broker + cluster + b"\x02" + topic)


def _answer(correlation: int, body: bytes) -> bytes:
    return struct.pack(">i", correlation) + _NO_TAGS + body + _NO_TAGS


def _text(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()
