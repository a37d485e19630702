"""Clock differences between load hosts and the driver, and the start of a load that its tasks agree on.

A latency is measured on one host, so synchronised clocks are not needed; only the agreed start is. Times are of Linux's
monotonic clock; processes with the same boot id read the same one. For another host the difference is measured with
requests to the driver: half the fastest round trip bounds the error. If it can't be reached, the start and the end of
the Spark job in which the host read its clock bound the difference.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core.errors import RackgateError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
REQUESTS = 30
TIMEOUT_S = 3.0
NS_PER_MS = 1e6
REMEDY = "set spark.driver.host to an address of the driver whose ports the executors reach"
_TIME = struct.Struct(">q")
# Requests of a load host: the driver's clock, and the report of an agreed start on the driver's clock.
_QUERY, _START = b"?", b"="


@dataclass(frozen=True)
class ClockReading:
    """An executor's reading of its clock and of the driver's."""

    boot_id: str  # identifies the clock of a host
    at_ns: int  # its own monotonic clock, read once
    ahead_ns: int | None  # its clock minus the driver's; None if the driver did not respond
    error_ns: int | None  # bound of the error of ``ahead_ns``; None likewise


@dataclass(frozen=True)
class ClockOffset:
    """Difference between a host's clock and the driver's."""

    ahead_ms: float  # measured difference; the start of a load is moved by it, unless both read the same clock
    error_ms: float  # bound of its error
    how: str  # ``connection`` or ``job``
    same: bool  # whether the host is the driver's own, so that the true difference is 0

    @property
    def text(self) -> str:
        """Difference and error, for display."""
        offset = f"{self.ahead_ms:+.3g} ± {self.error_ms:.2g} ms"
        return f"{offset} (same clock)" if self.same else offset


def boot_id() -> str:
    """Return the id of the monotonic clock that this process reads."""
    return BOOT_ID.read_text(encoding="ascii").strip()


@dataclass(frozen=True)
class DriverAddress:
    """Where load hosts reach the driver's clock: ``address`` is host and port, ``boot_id`` identifies the clock."""

    address: tuple[str, int]
    boot_id: str


@dataclass(frozen=True)
class DriverClock:
    """This process's monotonic clock, as served to load hosts."""

    at: DriverAddress
    start_ns: Future[int]  # start of the load on this clock, as soon as its tasks have agreed on it


@contextmanager
def serving_clock(host: str) -> Iterator[DriverClock]:
    """Serve this process's monotonic clock over TCP on ``host``, a name or address (IPv6 with or without brackets).

    Raises:
        RackgateError: the address does not belong to this host.
    """
    host = _plain(host)
    start_ns: Future[int] = Future()

    class ClockHandler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(TIMEOUT_S)
            try:
                while request := self.request.recv(1):
                    if request == _START:
                        agreed_ns = _receive(self.request)
                        # every load host reports it
                        with suppress(InvalidStateError):
                            start_ns.set_result(agreed_ns)
                    self.request.sendall(_TIME.pack(time.monotonic_ns()))
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
            yield DriverClock(DriverAddress((host, int(server.server_address[1])), boot_id()), start_ns)
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
                connection.sendall(_QUERY)
                driver_ns = _receive(connection)
                received_ns = time.monotonic_ns()
                samples.append(((received_ns - sent_ns + 1) // 2, (sent_ns + received_ns) // 2 - driver_ns))
    except OSError:
        pass  # the caller uses the start and the end of the Spark job instead
    error_ns, ahead_ns = min(samples, default=(None, None))
    return ClockReading(boot_id(), time.monotonic_ns(), ahead_ns, error_ns)


def report_start(address: tuple[str, int], start_ns: int) -> None:
    """Report the agreed start of a load on the driver's clock; OSError if the driver can't be reached."""
    with socket.create_connection((_plain(address[0]), address[1]), timeout=TIMEOUT_S) as connection:
        connection.sendall(_START + _TIME.pack(start_ns))
        _receive(connection)


def _plain(host: str) -> str:
    """Return an IPv6 address without the brackets that Spark puts around it."""
    return host.removeprefix("[").removesuffix("]")


def _receive(connection: socket.socket) -> int:
    data = b""
    while len(data) < _TIME.size:
        part = connection.recv(_TIME.size - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return int(_TIME.unpack(data)[0])


def clock_offset(reading: ClockReading, driver: str, begun_ns: int, ended_ns: int) -> ClockOffset:
    """Return the difference between a host's clock and that of the driver, whose boot id is ``driver``.

    ``begun_ns`` and ``ended_ns`` are the ends of the job in which the clock was read, on the driver's clock.
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


def ahead_of_driver_ns(reading: ClockReading, driver: str, known_ns: Mapping[str, int]) -> int:
    """Return the nanoseconds to add to the driver's clock to get this host's, from a fresh reading of this host.

    ``driver`` is the driver's boot id, ``known_ns`` the result of ``host_offsets``.

    Raises:
        RuntimeError: the driver can't be reached, and this host's clock was not compared before.
    """
    if reading.boot_id == driver:
        return 0
    if reading.ahead_ns is not None:
        return reading.ahead_ns
    if reading.boot_id not in known_ns:
        raise RuntimeError(
            f"the executor on {socket.gethostname()} can't reach the driver, and its clock was not compared before"
        )
    return known_ns[reading.boot_id]
