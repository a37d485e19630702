"""Link emulation: delay, jitter and loss by netem if the kernel has it, else by a VDE wire between two TAP devices.

A link without added delay or loss is a veth pair, and so is a netem link. Without netem, VDE's ``wirefilter`` carries
the frames between two TAP devices, with one process per link. It reads their names from files, because its option
separates them by colons and so can't contain ``tap://NAME``. Both devices are created in one namespace; moving the
second one to another namespace does not detach it from the process. A wire can be changed while it runs.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.lab.topology import Quality, Topology

Emulation = Literal["veth", "netem", "vde"]
# wirefilter counts whole milliseconds per direction, and adds 0.2 to 0.4 ms to a delayed round trip (medians, idle and
# under 20 MB/s). Below 2 ms that is more than a fifth of the requested delay.
VDE_STEP_MS = 1.0
VDE_LEAST_MS = 2.0
QUEUE_PACKETS = 100_000
MANAGEMENT_S = 5.0
TUN = Path("/dev/net/tun")
NETWORK = ("unshare", "--net")
_PROMPT = b"VDEwf$ "
_GOOD = "1000 Success"


@cache
def has_netem(private: tuple[str, ...] = NETWORK) -> bool:
    """Return whether this kernel has netem; tested once, in namespaces that the command prefix ``private`` creates."""
    done = subprocess.run(
        [*private, "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
        capture_output=True,
        check=False,
        timeout=20,
    )
    return done.returncode == 0


def check_tun() -> None:
    """Check that TAP devices, which VDE needs, can be created.

    Raises:
        RackgateError: they can't; the message has a remedy.
    """
    try:
        os.close(os.open(TUN, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
            advice = f"bring it with 'modprobe tun', in a container with '--device {TUN}'"
        elif error.errno == errno.EACCES:
            advice = f"allow it with 'chmod 666 {TUN}'"
        else:
            advice = f"allow it where the container is started, as with '--device {TUN}'"
        raise RackgateError(
            f"{TUN} can't be used ({os.strerror(error.errno or 0)}), and links with delay or loss need it, since"
            f" this kernel has no netem: {advice}, or bring netem with 'modprobe sch_netem'"
        ) from error


def check_links(wanted: Topology, source: Path, private: tuple[str, ...]) -> None:
    """Check that this machine can emulate all links of a topology, before anything is created.

    Raises:
        RackgateError: it can't; names file, link and key, or what the machine lacks.
    """
    for link in wanted.links:
        emulation(f"{source}: link {link.left}-{link.right}", link.quality, private)


def emulation(what: str, quality: Quality, private: tuple[str, ...] = NETWORK) -> Emulation:
    """Return how this machine emulates a link; ``what`` names the link in errors.

    The emulated round-trip time is within a fifth or 0.1 ms of the requested one.

    Raises:
        RackgateError: this machine can't emulate the quality.
    """
    if quality.jitter_ms > quality.rtt_ms:
        raise RackgateError(
            f"{what}: jitter_ms = {quality.jitter_ms:g} can't be given: no packet comes before it is sent; ask for at"
            f" most rtt_ms, which is {quality.rtt_ms:g}"
        )
    if quality.plain:
        return "veth"
    if has_netem(private):
        return "netem"
    for key, value in (("rtt_ms", quality.rtt_ms), ("jitter_ms", quality.jitter_ms)):
        if value % VDE_STEP_MS:
            raise RackgateError(
                f"{what}: {key} = {value:g} can't be given here: this kernel has no netem,"
                f" and VDE's wire delays by whole milliseconds; ask for a multiple of {VDE_STEP_MS:g}, or for 0"
            )
    if quality.rtt_ms < VDE_LEAST_MS:
        raise RackgateError(
            f"{what}: rtt_ms = {quality.rtt_ms:g} can't be given here: this kernel has no netem, and VDE's wire"
            f" would take longer; ask for {VDE_LEAST_MS:g} or more, or for 0 without jitter and loss"
        )
    check_tun()
    return "vde"


def netem_arguments(quality: Quality) -> list[str]:
    """Return the arguments of ``tc qdisc … netem`` for one direction."""
    arguments = ["limit", str(QUEUE_PACKETS)]
    if quality.rtt_ms:
        arguments += ["delay", f"{quality.rtt_ms / 2:g}ms"]
        arguments += [f"{quality.jitter_ms / 2:g}ms"] if quality.jitter_ms else []
    return arguments + (["loss", f"{quality.loss_percent:g}%"] if quality.loss_percent else [])


def wire_commands(quality: Quality) -> list[str]:
    """Return the commands that set a VDE wire to ``quality``.

    The two directions share the delay if it can be halved. An odd delay, and the shortest one, is added in one
    direction only, for two reasons. Directions with different delays slow each other down under load: at 20 MB/s, 3 ms
    took 4 ms as 2 and 1, and 3.2 ms as 3 and 0. And each delayed direction adds to the round trip. The jitter is added
    where the delay is.
    """
    delay_ms, jitter_ms = round(quality.rtt_ms), round(quality.jitter_ms)
    back_ms = delay_ms // 2 if delay_ms % 2 == 0 and delay_ms > VDE_LEAST_MS else 0
    back_jitter_ms = jitter_ms // 2 if back_ms else 0
    return [
        f"delay LR{_delay_argument(delay_ms - back_ms, jitter_ms - back_jitter_ms)}",
        f"delay RL{_delay_argument(back_ms, back_jitter_ms)}",
        f"loss {quality.loss_percent:g}",
    ]


def _delay_argument(delay_ms: int, jitter_ms: int) -> str:
    """Return a wire's delay that varies uniformly, in whole milliseconds, by at most the jitter.

    wirefilter truncates each random delay to whole milliseconds: 3+1 yields 2 or 3, on average half a millisecond too
    little, and never 4. 3.5+1.5 yields 2, 3 and 4.
    """
    return f"{delay_ms + 0.5:g}+{jitter_ms + 0.5:g}" if jitter_ms else f"{delay_ms}+0"


@dataclass(frozen=True)
class VdeWire:
    """Running ``wirefilter`` process.

    Attributes:
        management: path of its command socket.
    """

    management: Path

    @property
    def name(self) -> str:
        """Name of the wire."""
        return self.management.stem

    @property
    def pid_file(self) -> Path:
        """File with its PID, as seen in the lab."""
        return self.management.with_suffix(".pid")

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        try:
            return Path("/proc", self.pid_file.read_text(encoding="ascii").strip(), "exe").exists()
        except FileNotFoundError:
            return False

    def stop(self) -> None:
        """Stop the wire and remove its devices; idempotent."""
        if not self.alive:
            return
        # without its PID file, the end of the wire is not reported as a failure of the lab
        pid = int(self.pid_file.read_text(encoding="ascii"))
        self.pid_file.unlink()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{pid}/exe").exists(), goal=f"wire {self.name} to end", timeout_s=10)
        self.management.unlink(missing_ok=True)

    def set(self, quality: Quality) -> None:
        """Change delay, jitter and loss of the wire.

        Raises:
            RackgateError: it does not respond, or rejects a command.
        """
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(MANAGEMENT_S)
                connection.connect(str(self.management))
                _read_response(connection)
                for command in wire_commands(quality):
                    connection.sendall(command.encode() + b"\n")
                    response = _read_response(connection)
                    if _GOOD not in response:
                        raise RackgateError(f"wire {self.name}: {command!r} is refused: {response.strip()}")
        except OSError as error:
            raise RackgateError(f"wire {self.name}: its process does not respond: {error}") from error


def _read_response(connection: socket.socket) -> str:
    response = b""
    while not response.endswith(_PROMPT):
        more = connection.recv(4096)
        if not more:
            raise ConnectionError("it closed the connection")
        response += more
    return response.decode(errors="replace")


def start_wire(ns: str, ends: Sequence[str], folder: Path, name: str) -> VdeWire:
    """Start a wire between two TAP devices that it creates in a namespace; it runs until stopped or the lab ends.

    Args:
        ns: name of the network namespace.
        ends: names of the left and the right device.
        folder: folder for its socket and files; must be short, since a socket's path has at most 107 bytes.
        name: name of the wire.

    Raises:
        RackgateError: it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plugs = []
    for end in ends:
        plug = folder / f"{name}.{end}"
        plug.write_text(f"tap://{end}\n", encoding="ascii")
        plugs.append(str(plug))
    made = VdeWire(folder / f"{name}.mgmt")
    # left over from an earlier wire with this name: a stale socket would keep the new wire from creating its own
    made.management.unlink(missing_ok=True)
    command = ["ip", "netns", "exec", ns, "wirefilter", "--daemon", "--pidfile", str(made.pid_file)]
    process.run([*command, "-v", ":".join(plugs), "-M", str(made.management)], task=f"wire {name}", timeout_s=20)
    wait_for(
        lambda: made.management.exists() and made.alive, goal=f"wire {name} to carry", timeout_s=10, interval_s=0.02
    )
    return made
