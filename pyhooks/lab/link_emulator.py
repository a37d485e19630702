"""Client of the lab's link emulator, one process that delays, paces and loses frames between pairs of interfaces.

The program is ``link_emulator.c``, compiled on first use. It needs no privileges outside the lab's user namespace. It
runs in a network namespace that holds the inner ends of all emulated links. Every process of the lab's root can change
the links while it runs.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyhooks.core import paths, process
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import delete_stale, put_in_place
from pyhooks.lab.topology import Quality

SOURCE = Path(__file__).with_suffix(".c")
SOCKET = paths.LAB_HOME / "link_emulator.sock"
FLAGS = ("-std=gnu17", "-O2")
CACHE = paths.BUILD / "link-emulator"
# Limit of TCP segments that are sent as one frame; with all headers, a frame fits into a slot of the emulator's ring.
SEGMENT_BYTES = 16_000
RESPONSE_TIMEOUT_S = 5.0
MESSAGE_BYTES = 4096
# Two rings; RING_BYTES of the program.
RINGS_MB = 8
_STALE_S = 600.0
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


def _compiler() -> str:
    return os.environ.get("CC", "gcc")


def _cached_program() -> Path:
    # containers with another C library, and other machines, may share the cache
    made_for = [*FLAGS, os.uname().machine, os.confstr("CS_GNU_LIBC_VERSION") or ""]
    key = hashlib.sha256(SOURCE.read_bytes() + " ".join(made_for).encode()).hexdigest()[:16]
    return CACHE / key / SOURCE.stem


def check_compiler() -> None:
    """Check that the emulator is compiled or can be.

    Raises:
        RackgateError: there is no C compiler; the message has a remedy.
    """
    if not _cached_program().exists() and shutil.which(_compiler()) is None:
        raise RackgateError(
            f"links with delay, loss or a rate need {_compiler()}, since this kernel has no netem: install it with"
            " 'apt-get install gcc libc6-dev', or load netem with 'modprobe sch_netem'"
        )


def ensure_program(private: Path = paths.LAB_HOME) -> Path:
    """Compile the emulator if this version of it is not cached; return the program's path.

    Args:
        private: folder for the program where this user can't write the cache.

    Raises:
        RackgateError: it can't be compiled.
    """
    program = _cached_program()
    if program.exists():
        return program
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=".making-", dir=program.parent)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        program = private / program.name
        folder = tempfile.TemporaryDirectory(prefix=".making-", dir=private)
    delete_stale(Path(folder.name).parent, ".making-*", _STALE_S)
    with folder as work:
        made = Path(work) / program.name
        process.run([_compiler(), *FLAGS, "-o", str(made), str(SOURCE)], task="compile the link emulator")
        put_in_place(made, program)
    return program


def start(netns: str, log: Path) -> subprocess.Popen[bytes]:
    """Start the emulator in a network namespace; it ends with this process.

    ``log`` gets its errors, which no process reads while it runs.

    Raises:
        RackgateError: it can't be compiled or does not start.
    """
    command = ["nsenter", f"--net=/run/netns/{netns}", "--", str(ensure_program()), str(SOCKET)]
    # in a session of its own, because Ctrl-C must end only the command that runs in the lab
    with log.open("ab") as errors:
        started = process.start(
            command, task="link emulator", stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    if started.stdout is None:
        raise AssertionError("it is a pipe")
    with started.stdout as output:
        ready = output.readline() == b"ready\n"
    if not ready:
        started.wait()
        raise RackgateError(f"link emulator: it does not start: {log.read_text(errors='replace').strip()}")
    return started


@dataclass(frozen=True)
class DirectionCounters:
    """Frames of one direction of a link since it was added."""

    frames: int  # forwarded frames
    bytes: int  # bytes of the forwarded frames
    lost: int  # frames lost on purpose
    dropped: int  # frames for which the queue had no room, or that were too large
    overflowed: int  # frames that the emulator did not read in time
    failed: int  # frames that the kernel did not send
    queued_bytes: int  # size of the frames that wait now


@dataclass(frozen=True)
class LinkSettings:
    """Settings of each direction of a link, in the emulator's units."""

    delay_ns: int
    jitter_ns: int
    loss_ppb: int  # lost frames in a billion
    bytes_per_s: int  # rate limit; 0 for none

    @staticmethod
    def of(quality: Quality) -> LinkSettings:
        """Return the settings that emulate a quality: half of the delay and the jitter in each direction."""
        return LinkSettings(
            delay_ns=round(quality.rtt_ms * 1e6 / 2),
            jitter_ns=round(quality.jitter_ms * 1e6 / 2),
            loss_ppb=round(quality.loss_percent * 1e7),
            # 0 is no limit
            bytes_per_s=max(1, round(quality.rate_mbit * 1e6 / 8)) if quality.rate_mbit else 0,
        )


@dataclass(frozen=True)
class LinkState:
    """Settings in force and counters of an emulated link; the first direction is from left to right."""

    settings: LinkSettings
    directions: tuple[DirectionCounters, DirectionCounters]


def describe_trouble(links: Mapping[str, Any]) -> list[str]:
    """Return a sentence about each link that lost frames although it should not have.

    Args:
        links: link name to ``LinkState`` as plain JSON.
    """
    sentences = []
    for name, state in links.items():
        counts = {key: sum(way[key] for way in state["directions"]) for key in ("overflowed", "failed")}
        if any(counts.values()):
            sentences.append(
                f"link {name} lost frames unintentionally: {counts['overflowed']} that the emulator did not read in"
                f" time, {counts['failed']} that the kernel did not send"
            )
    return sentences


def add(name: str, left: str, right: str) -> None:
    """Forward frames between two interfaces of the emulator's namespace, at first without delay, loss or limit.

    The losses and the jitter of a link are those of a random sequence that depends on its name only.

    Raises:
        RackgateError: the emulator does not respond or rejects the command.
    """
    _require(name, _request(f"add {name} {left} {right} {zlib.crc32(name.encode())}"))


def configure(name: str, quality: Quality) -> None:
    """Change delay, jitter, loss and rate of a link; frames that wait are delayed by no more than the new delay.

    Raises:
        RackgateError: the emulator does not respond, rejects the command, or does not confirm the settings.
    """
    wanted = LinkSettings.of(quality)
    values = f"{wanted.delay_ns} {wanted.jitter_ns} {wanted.loss_ppb} {wanted.bytes_per_s}"
    state = _require(name, _request(f"set {name} {values}"))
    if state.settings != wanted:
        raise RackgateError(f"link emulator: {name} has {state.settings}, not {wanted}")


def read(name: str) -> LinkState | None:
    """Return the state of a link; None if it is not emulated.

    Raises:
        RackgateError: the emulator does not respond.
    """
    return _request(f"get {name}")


def remove(name: str) -> None:
    """Stop forwarding; idempotent.

    Raises:
        RackgateError: the emulator does not respond.
    """
    _request(f"remove {name}")


def _require(name: str, state: LinkState | None) -> LinkState:
    if state is None:
        raise RackgateError(f"link emulator: there is no link {name}")
    return state


def _request(command: str) -> LinkState | None:
    """Send a command; return the state of its link, or None if there is no such link."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(RESPONSE_TIMEOUT_S)
            connection.connect(str(SOCKET))
            connection.sendall(command.encode())
            response = connection.recv(MESSAGE_BYTES)
    except OSError as error:
        raise RackgateError(f"link emulator: it does not respond to {command!r}: {error}") from error
    return parse_response(command, response.decode(errors="replace"))


def parse_response(command: str, text: str) -> LinkState | None:
    """Return the link's state in the response to ``command``; None if there is no such link.

    Raises:
        RackgateError: the command was rejected, or the response is not of this version.
    """
    try:
        raw: dict[str, Any] | None = json.loads(text)
        if raw is None:
            return None
        if "error" in raw:
            raise RackgateError(f"link emulator: {raw['error']}")
        left, right = (DirectionCounters(**counters) for counters in raw.pop("directions"))
        return LinkState(LinkSettings(**raw), (left, right))
    except (ValueError, TypeError, KeyError) as error:
        raise RackgateError(f"link emulator: unexpected response to {command!r}: {text!r:.200}") from error
