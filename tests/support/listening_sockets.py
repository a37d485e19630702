"""Listening TCP sockets of processes, from /proc, and whether Spark's servers reject a client without the secret."""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core.process import stat_fields

PROC = Path("/proc")
_LISTEN = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_WORD_BYTES = 4
_PATIENCE_S = 10.0
_PY4J_COMMAND = b"c\nt\ngetClass\ne\n"
_SPARK_REQUEST = 3


@dataclass(frozen=True)
class Listener:
    """A listening socket and a process that holds it.

    Attributes:
        pid: the process's id.
        command: its program and arguments.
        network: its network namespace, as in ``/proc/PID/ns/net``.
        address: listening address; an IPv4-mapped IPv6 address is given as IPv4.
        port: listening port.
    """

    pid: int
    command: tuple[str, ...]
    network: str
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @property
    def text(self) -> str:
        """Description for the message of a failed assertion."""
        return f"{self.address} port {self.port}: {self.pid} {' '.join(self.command)[:300]}"


def process_tree(pid: int) -> list[int]:
    """Return a process and its descendants.

    An orphaned descendant is reparented to the nearest subreaper or init, so it may be missing.
    """
    children: dict[int, list[int]] = {}
    for entry in PROC.glob("[0-9]*"):
        # fields[1] is the parent's PID; empty for a process that has ended
        if fields := stat_fields(entry):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    tree = [pid]
    for one in tree:
        tree += children.get(one, [])
    return tree


def listening_sockets(pids: Iterable[int]) -> list[Listener]:
    """Return the listening TCP sockets of processes, in any network namespace.

    Raises:
        PermissionError: a process belongs to another user, so its sockets are unknown.
    """
    found: list[Listener] = []
    for pid in pids:
        try:
            found += _sockets_of(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has ended
    return found


def _sockets_of(pid: int) -> Iterator[Listener]:
    entry = PROC / str(pid)
    command = tuple((entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0"))
    network = str((entry / "ns" / "net").readlink())
    open_inodes = set()
    for descriptor in (entry / "fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:
            continue  # the descriptor has been closed
        if name := _SOCKET.fullmatch(target):
            open_inodes.add(name[1])
    for table in ("tcp", "tcp6"):
        file = entry / "net" / table
        # a kernel without IPv6 has no such file
        if table == "tcp6" and not file.exists():
            continue
        for line in file.read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            local, state, inode = fields[1], fields[3], fields[9]
            if state == _LISTEN and inode in open_inodes:
                address, port = parse_address(local)
                yield Listener(pid, command, network, address, port)


def parse_address(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Parse address and port as in ``/proc/net/tcp``: four-byte words, least significant byte first, and a port."""
    address_hex, _, port = text.partition(":")
    raw = bytes.fromhex(address_hex)
    data = b"".join(raw[at : at + _WORD_BYTES][::-1] for at in range(0, len(raw), _WORD_BYTES))
    address = ipaddress.ip_address(data)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address, int(port, 16)


def rejection(listener: Listener) -> str:
    """Connect to an idle server of Spark or PySpark without the secret.

    The kind of server is recognised by its response: Spark's RPC and block transfer, web UIs, py4j, the daemon of
    Python workers.

    Returns:
        The kind of server and its error; empty if it does not reject the client.

    Raises:
        TimeoutError: the server neither answers nor closes the connection.
    """
    if "pyspark.daemon" in listener.command:
        # the response starts with a PID
        answer = _exchange(listener, struct.pack(">i", 5) + b"wrong")[4:]
        return "Python daemon: err" if answer == struct.pack(">i", 3) + b"err" else ""
    answer = _exchange(listener, _PY4J_COMMAND)
    if answer.startswith(b"!"):
        return "py4j: authentication error" if b"Authentication error" in answer else ""
    if answer.startswith(b"HTTP/"):
        answer = _exchange(listener, b"GET / HTTP/1.0\r\n\r\n")
        return "web: 403" if answer.split(b" ")[1] == b"403" else ""
    body = b"?"
    frame = struct.pack(">bqi", _SPARK_REQUEST, 1, len(body)) + body
    answer = _exchange(listener, struct.pack(">q", 8 + len(frame)) + frame, whole=False)
    return "Spark: SASL expected" if b"Expected SaslMessage" in answer else ""


def _exchange(listener: Listener, question: bytes, *, whole: bool = True) -> bytes:
    """Send bytes and return the response: until the connection is closed if ``whole``, else its first part.

    Raises:
        TimeoutError: the server neither answers nor closes the connection.
    """
    answer = b""
    with socket.create_connection((str(listener.address), listener.port), timeout=_PATIENCE_S) as link:
        link.sendall(question)
        try:
            while part := link.recv(4096):
                answer += part
                if not whole:
                    break
        except ConnectionResetError:
            pass  # the server closed the connection with unread bytes
    return answer
