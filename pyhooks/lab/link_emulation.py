"""How a link gets its delay, jitter and loss: netem where the kernel has it, else a VDE wire between two TAP devices.

A link that does nothing to its packets is a veth pair, and so is one under netem. Without netem ``wirefilter`` of
VDE carries the frames between two TAP devices, one process a link. It is plugged into them by files with their
names, since its own option takes no colon within a name, and both devices are made in one namespace, from which the
second is moved: the process keeps its end. What a wire does can be changed while it carries.
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
# wirefilter counts whole milliseconds in each direction, and adds 0.2 to 0.4 ms of its own to a delayed round trip
# (medians, idle and under 20 MB/s): below 2 ms that is more than a fifth of what was asked.
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
    """Whether this kernel can delay packets by itself; asked once, on the loopback of a throw-away namespace.

    Args:
        private: the words that put a program into namespaces; within a lab a network of its own is enough.
    """
    done = subprocess.run(
        [*private, "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
        capture_output=True,
        check=False,
        timeout=20,
    )
    return done.returncode == 0


def check_tun() -> None:
    """Refuses where no TAP device can be made, which VDE needs.

    Raises:
        RackgateError: says what to do.
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


def check(wanted: Topology, source: Path, private: tuple[str, ...]) -> None:
    """Refuses a topology with a link that this machine cannot make, while nothing of it is made yet.

    Args:
        wanted: the topology.
        source: its file, for the error.
        private: the words that put a program into namespaces such as a lab's.

    Raises:
        RackgateError: names the file, the link and the key, or says what the machine lacks.
    """
    for link in wanted.links:
        emulation(f"{source}: link {link.left}-{link.right}", link.quality, private)


def emulation(what: str, quality: Quality, private: tuple[str, ...] = NETWORK) -> Emulation:
    """How this machine makes a link; ``what`` is it, for the error.

    What is made takes the time that was asked, within a fifth or 0.1 ms.

    Raises:
        RackgateError: what is asked cannot be given here.
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


def netem_words(quality: Quality) -> list[str]:
    """The words for one direction after ``tc qdisc … netem``."""
    words = ["limit", str(QUEUE_PACKETS)]
    if quality.rtt_ms:
        words += ["delay", f"{quality.rtt_ms / 2:g}ms"]
        words += [f"{quality.jitter_ms / 2:g}ms"] if quality.jitter_ms else []
    return words + (["loss", f"{quality.loss_percent:g}%"] if quality.loss_percent else [])


def wire_commands(quality: Quality) -> list[str]:
    """The commands that make a VDE wire do what ``quality`` says, and nothing else.

    The two directions share the delay where it can be halved. An odd one, and the shortest, goes to one direction:
    directions of different lengths hold each other up under load (3 ms as 2 and 1 took 4 ms at 20 MB/s, as 3 and 0 it
    took 3.2), and each delayed one adds to the round trip. The jitter goes where the delay is.
    """
    delay_ms, jitter_ms = round(quality.rtt_ms), round(quality.jitter_ms)
    back_ms = delay_ms // 2 if delay_ms % 2 == 0 and delay_ms > VDE_LEAST_MS else 0
    back_jitter_ms = jitter_ms // 2 if back_ms else 0
    return [
        f"delay LR{_around(delay_ms - back_ms, jitter_ms - back_jitter_ms)}",
        f"delay RL{_around(back_ms, back_jitter_ms)}",
        f"loss {quality.loss_percent:g}",
    ]


def _around(delay_ms: int, jitter_ms: int) -> str:
    """A delay of a wire that varies evenly, by whole milliseconds up to the jitter.

    What is drawn for a packet is cut off to whole milliseconds: 3+1 takes 2 or 3, on average half of one too little,
    and never 4. From 3.5+1.5 come 2, 3 and 4.
    """
    return f"{delay_ms + 0.5:g}+{jitter_ms + 0.5:g}" if jitter_ms else f"{delay_ms}+0"


@dataclass(frozen=True)
class VdeWire:
    """A running ``wirefilter``.

    Attributes:
        management: its socket for commands.
    """

    management: Path

    @property
    def name(self) -> str:
        """Of the wire."""
        return self.management.stem

    @property
    def pid_file(self) -> Path:
        """Holds the process id, as the lab sees it."""
        return self.management.with_suffix(".pid")

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        try:
            return Path("/proc", self.pid_file.read_text(encoding="ascii").strip(), "exe").exists()
        except FileNotFoundError:
            return False

    def stop(self) -> None:
        """Ends the wire and takes its devices away; stopping what is stopped does nothing."""
        if not self.alive:
            return
        # without its file nobody takes the end for a failure
        pid = int(self.pid_file.read_text(encoding="ascii"))
        self.pid_file.unlink()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{pid}/exe").exists(), what=f"wire {self.name} to end", timeout_s=10)
        self.management.unlink(missing_ok=True)

    def set(self, quality: Quality) -> None:
        """Changes what the wire does from now on.

        Raises:
            RackgateError: it does not answer, or refuses.
        """
        try:
            with socket.socket(socket.AF_UNIX) as talk:
                talk.settimeout(MANAGEMENT_S)
                talk.connect(str(self.management))
                _answer(talk)
                for command in wire_commands(quality):
                    talk.sendall(command.encode() + b"\n")
                    said = _answer(talk)
                    if _GOOD not in said:
                        raise RackgateError(f"wire {self.name}: {command!r} is refused: {said.strip()}")
        except OSError as error:
            raise RackgateError(f"wire {self.name}: its process does not answer: {error}") from error


def _answer(talk: socket.socket) -> str:
    said = b""
    while not said.endswith(_PROMPT):
        more = talk.recv(4096)
        if not more:
            raise ConnectionError("it closed the connection")
        said += more
    return said.decode(errors="replace")


def start(ns: str, ends: Sequence[str], folder: Path, name: str) -> VdeWire:
    """Starts a wire between two TAP devices that it makes in a namespace; it lives until it is stopped or the lab ends.

    Args:
        ns: name of the network namespace.
        ends: names of the left and the right device.
        folder: for its socket and its files; short, since a socket's path has at most 107 bytes.
        name: of the wire.

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
    # of an earlier wire of that name: a socket that nobody listens on would keep the new one from its own
    made.management.unlink(missing_ok=True)
    words = ["ip", "netns", "exec", ns, "wirefilter", "--daemon", "--pidfile", str(made.pid_file)]
    process.run([*words, "-v", ":".join(plugs), "-M", str(made.management)], what=f"wire {name}", timeout_s=20)
    wait_for(
        lambda: made.management.exists() and made.alive, what=f"wire {name} to carry", timeout_s=10, interval_s=0.02
    )
    return made
