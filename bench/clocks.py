"""How the clocks of load hosts stand to the driver's.

Latency counts on one host alone, from the intended time to the acknowledgement, so clocks need not agree for that. But
the tasks of a block begin at an agreed instant. Times are of Linux's monotonic clock, which counts from a host's start;
processes with the same boot id read the same one. For every other host its distance to the driver's is measured: by
questions over a connection, of which the fastest bounds the error by half of its round trip, or, where the driver can't
be reached, by the beginning and the end of the Spark job in which the host read its clock.
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
QUESTIONS = 30
PATIENCE_S = 3.0
NS_PER_MS = 1e6
_ANSWER = struct.Struct(">q")


@dataclass(frozen=True)
class Reading:
    """What an executor read of its clock and of the driver's.

    Attributes:
        boot_id: tells hosts' clocks apart.
        at_ns: its own monotonic clock, read once.
        ahead_ns: its clock less the driver's; None if the driver did not answer.
        error_ns: at most so far off; None likewise.
    """

    boot_id: str
    at_ns: int
    ahead_ns: int | None
    error_ns: int | None


@dataclass(frozen=True)
class Clock:
    """A host's clock against the driver's.

    Attributes:
        ahead_ms: as measured; the start of a load is moved by it, unless both read the same clock.
        error_ms: at most so far off.
        how: ``connection`` or ``job``.
        same: the host is the driver's own, so that the true distance is 0.
    """

    ahead_ms: float
    error_ms: float
    how: str
    same: bool

    @property
    def text(self) -> str:
        """For people."""
        told = f"{self.ahead_ms:+.3g} ± {self.error_ms:.2g} ms"
        return f"{told} (the same clock)" if self.same else told


def boot_id() -> str:
    """Which monotonic clock this process reads."""
    return BOOT_ID.read_text(encoding="ascii").strip()


@contextmanager
def answering(host: str) -> Iterator[tuple[str, int]]:
    """Tells this process's monotonic clock to who asks, while the block runs; gives the address.

    Args:
        host: name or address to listen on, of IPv6 with or without brackets.

    Raises:
        RackgateError: there is no such address on this host.
    """
    host = _plain(host)

    class Answers(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(PATIENCE_S)
            try:
                while self.request.recv(1):
                    self.request.sendall(_ANSWER.pack(time.monotonic_ns()))
            except OSError:
                return  # who asked has gone, or says nothing more

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        # a name may have addresses of both kinds; Spark listens on IPv4 then
        family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        Server.address_family = family
        server = Server(address, Answers)  # type: ignore[arg-type]  # typeshed knows addresses of IPv4 alone
    except (OSError, UnicodeError) as error:  # UnicodeError: a part of the name is empty or too long
        why = getattr(error, "strerror", error)
        raise RackgateError(
            f"spark.driver.bindAddress or spark.driver.host {host}: can't listen there: {why}; set it with --conf to an"
            " address of this host"
        ) from error
    with server:
        thread = threading.Thread(target=server.serve_forever, name="clock", daemon=True)
        thread.start()
        try:
            yield host, int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join(timeout=PATIENCE_S)


def read(address: tuple[str, int]) -> Reading:
    """Reads this host's clock, and the driver's at ``address`` if it answers."""
    best: tuple[int, int] | None = None
    try:
        with socket.create_connection((_plain(address[0]), address[1]), timeout=PATIENCE_S) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(QUESTIONS):
                asked = time.monotonic_ns()
                link.sendall(b"?")
                answer = _whole(link)
                back = time.monotonic_ns()
                error = (back - asked + 1) // 2
                if best is None or error < best[1]:
                    best = (asked + back) // 2 - answer, error
    except OSError:
        pass  # the job's own beginning and end are left to go by
    ahead, error_ns = best or (None, None)
    return Reading(boot_id(), time.monotonic_ns(), ahead, error_ns)


def _plain(host: str) -> str:
    """An address of IPv6 without the brackets that Spark has around it."""
    return host.removeprefix("[").removesuffix("]")


def _whole(link: socket.socket) -> int:
    data = b""
    while len(data) < _ANSWER.size:
        part = link.recv(_ANSWER.size - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return int(_ANSWER.unpack(data)[0])


def compared(reading: Reading, own: str, begun_ns: int, ended_ns: int) -> Clock:
    """A host's clock against the driver's.

    Args:
        reading: the host's.
        own: the driver's boot id.
        begun_ns: beginning of the job in which it was read, on the driver's clock.
        ended_ns: end of that job.
    """
    same = reading.boot_id == own
    if reading.ahead_ns is not None and reading.error_ns is not None:
        return Clock(reading.ahead_ns / NS_PER_MS, reading.error_ns / NS_PER_MS, "connection", same)
    ahead = reading.at_ns - (begun_ns + ended_ns) // 2
    return Clock(ahead / NS_PER_MS, (ended_ns - begun_ns) / 2 / NS_PER_MS, "job", same)


def distances(found: Sequence[tuple[Reading, Clock]]) -> dict[str, int]:
    """What is to be added to the driver's clock to have a host's, in nanoseconds, by boot id.

    Of several executors of a host the one with the smallest error is taken.
    """
    chosen: dict[str, Clock] = {}
    for reading, clock in found:
        known = chosen.get(reading.boot_id)
        if known is None or clock.error_ms < known.error_ms:
            chosen[reading.boot_id] = clock
    return {boot: 0 if clock.same else round(clock.ahead_ms * NS_PER_MS) for boot, clock in chosen.items()}


def here(start_ns: int, ahead_ns: Mapping[str, int]) -> int:
    """A moment of the driver's clock on this host's.

    Args:
        start_ns: the moment.
        ahead_ns: of ``distances``; empty if all tasks are on the driver's host.

    Raises:
        RuntimeError: this host's clock was not among those that were compared.
    """
    if not ahead_ns:
        return start_ns
    own = boot_id()
    if own not in ahead_ns:
        raise RuntimeError(f"the executor on {socket.gethostname()} came after the clocks had been compared")
    return start_ns + ahead_ns[own]
