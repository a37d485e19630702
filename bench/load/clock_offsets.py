"""Clock differences between load hosts and the driver.

A latency is measured on one host, from the intended time to the acknowledgement, so synchronised clocks are not needed.
But the tasks of a block begin at an agreed instant. Times are of Linux's monotonic clock, which counts from the start
of a host; processes with the same boot id read the same clock. For every other host the difference to the driver's
clock is measured with requests over a connection: half the fastest round trip bounds the error. If the driver can't be
reached, the start and the end of the Spark job in which the host read its clock bound the difference.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core.errors import RackgateError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
REQUESTS = 30
TIMEOUT_S = 3.0
NS_PER_MS = 1e6
_RESPONSE = struct.Struct(">q")


@dataclass(frozen=True)
class ClockReading:
    """An executor's reading of its clock and of the driver's.

    Attributes:
        boot_id: identifies the clock of a host.
        at_ns: its own monotonic clock, read once.
        ahead_ns: its clock minus the driver's; None if the driver did not respond.
        error_ns: bound of the error of ``ahead_ns``; None likewise.
    """

    boot_id: str
    at_ns: int
    ahead_ns: int | None
    error_ns: int | None


@dataclass(frozen=True)
class ClockOffset:
    """Difference between a host's clock and the driver's.

    Attributes:
        ahead_ms: measured difference; the start of a load is moved by it, unless both read the same clock.
        error_ms: bound of its error.
        how: ``connection`` or ``job``.
        same: whether the host is the driver's own, so that the true difference is 0.
    """

    ahead_ms: float
    error_ms: float
    how: str
    same: bool

    @property
    def text(self) -> str:
        """Difference and error, for display."""
        offset = f"{self.ahead_ms:+.3g} ± {self.error_ms:.2g} ms"
        return f"{offset} (same clock)" if self.same else offset


def boot_id() -> str:
    """Return the id of the monotonic clock that this process reads."""
    return BOOT_ID.read_text(encoding="ascii").strip()


@contextmanager
def serving_clock(host: str) -> Iterator[tuple[str, int]]:
    """Serve this process's monotonic clock over TCP while the block runs; yield the address.

    Args:
        host: name or address to listen on; IPv6 with or without brackets.

    Raises:
        RackgateError: the address does not belong to this host.
    """
    host = _plain(host)

    class ClockHandler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(TIMEOUT_S)
            try:
                while self.request.recv(1):
                    self.request.sendall(_RESPONSE.pack(time.monotonic_ns()))
            except OSError:
                return  # the client closed the connection or stopped sending

    class ClockServer(socketserver.ThreadingTCPServer):
        daemon_threads = True

    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        # a name may have addresses of both families; Spark then listens on IPv4
        family, *_, address = min(addresses, key=lambda info: info[0] != socket.AF_INET)
        ClockServer.address_family = family
        server = ClockServer(address, ClockHandler)  # type: ignore[arg-type]  # typeshed knows addresses of IPv4 alone
    except (OSError, UnicodeError) as error:  # UnicodeError: a part of the name is empty or too long
        reason = getattr(error, "strerror", error)
        raise RackgateError(
            f"spark.driver.bindAddress or spark.driver.host {host}: can't listen there: {reason}; set it with --conf to"
            " an address of this host"
        ) from error
    with server:
        thread = threading.Thread(target=server.serve_forever, name="clock", daemon=True)
        thread.start()
        try:
            yield host, int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join(timeout=TIMEOUT_S)


def read_clocks(address: tuple[str, int]) -> ClockReading:
    """Read this host's clock, and the driver's at ``address`` if it responds."""
    samples: list[tuple[int, int]] = []  # error and offset of each request
    try:
        with socket.create_connection((_plain(address[0]), address[1]), timeout=TIMEOUT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(REQUESTS):
                sent_ns = time.monotonic_ns()
                connection.sendall(b"?")
                driver_ns = _receive(connection)
                received_ns = time.monotonic_ns()
                samples.append(((received_ns - sent_ns + 1) // 2, (sent_ns + received_ns) // 2 - driver_ns))
    except OSError:
        pass  # the caller uses the start and the end of the Spark job instead
    error_ns, ahead_ns = min(samples, default=(None, None))
    return ClockReading(boot_id(), time.monotonic_ns(), ahead_ns, error_ns)


def _plain(host: str) -> str:
    """Return an IPv6 address without the brackets that Spark puts around it."""
    return host.removeprefix("[").removesuffix("]")


def _receive(connection: socket.socket) -> int:
    data = b""
    while len(data) < _RESPONSE.size:
        part = connection.recv(_RESPONSE.size - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return int(_RESPONSE.unpack(data)[0])


def clock_offset(reading: ClockReading, driver: str, begun_ns: int, ended_ns: int) -> ClockOffset:
    """Return the difference between a host's clock and the driver's.

    Args:
        reading: reading of the host.
        driver: boot id of the driver.
        begun_ns: start of the job in which the clock was read, on the driver's clock.
        ended_ns: end of that job.
    """
    same = reading.boot_id == driver
    if reading.ahead_ns is not None and reading.error_ns is not None:
        return ClockOffset(reading.ahead_ns / NS_PER_MS, reading.error_ns / NS_PER_MS, "connection", same)
    ahead = reading.at_ns - (begun_ns + ended_ns) // 2
    return ClockOffset(ahead / NS_PER_MS, (ended_ns - begun_ns) / 2 / NS_PER_MS, "job", same)


def host_offsets(readings: Sequence[tuple[ClockReading, ClockOffset]]) -> dict[str, int]:
    """Return the nanoseconds to add to the driver's clock to get a host's, by boot id.

    Of several executors on a host, the one with the smallest error counts.
    """
    best_last = sorted(readings, key=lambda pair: -pair[1].error_ms)
    return {reading.boot_id: 0 if clock.same else round(clock.ahead_ms * NS_PER_MS) for reading, clock in best_last}


def host_time(start_ns: int, ahead_ns: Mapping[str, int], boot: str) -> int:
    """Convert a time of the driver's clock to this host's clock.

    Args:
        start_ns: the time.
        ahead_ns: result of ``host_offsets``; empty if all tasks run on the driver's host.
        boot: ``boot_id()`` of this host.

    Raises:
        RuntimeError: this host's clock was not compared.
    """
    if not ahead_ns:
        return start_ns
    if boot not in ahead_ns:
        raise RuntimeError(f"the executor on {socket.gethostname()} started after the clocks had been compared")
    return start_ns + ahead_ns[boot]
