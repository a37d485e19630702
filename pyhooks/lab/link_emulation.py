"""Link emulation: delay, jitter, loss and rate by netem if the kernel has it, else by the lab's own link emulator.

A link that adds nothing is a veth pair, and so is a netem link. An emulated link is two veth pairs, each with one end
in the router of a site and the other in the namespace of the emulator (see ``pyhooks.lab.link_emulator``).
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Literal

from pyhooks.core.errors import RackgateError
from pyhooks.lab import link_emulator
from pyhooks.lab.topology import Quality, Topology

Emulation = Literal["veth", "netem", "emulator"]
QUEUE_PACKETS = 100_000
# time that a packet may wait for a rate limit, as in the link emulator
RATE_QUEUE_S = 0.1
PACKET_BYTES = 1500
NETWORK = ("unshare", "--net")


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


def check_links(wanted: Topology, source: Path, private: tuple[str, ...]) -> None:
    """Check that this machine can emulate all links of a topology, before anything is created.

    Raises:
        RackgateError: it can't; names file and link, or what the machine lacks.
    """
    for link in wanted.links:
        emulation(f"{source}: link {link.left}-{link.right}", link.quality, private)
    # even without such links, because faults may slow them
    if not has_netem(private):
        link_emulator.check_compiler()


def emulation(what: str, quality: Quality, private: tuple[str, ...] = NETWORK) -> Emulation:
    """Return how this machine emulates a link; ``what`` names the link in errors.

    On a machine with idle processors, the median round-trip time is within 0.1 ms or 5 % of the requested one.

    Raises:
        RackgateError: the quality is impossible.
    """
    if quality.jitter_ms > quality.rtt_ms:
        raise RackgateError(
            f"{what}: jitter_ms = {quality.jitter_ms:g} must be at most rtt_ms = {quality.rtt_ms:g}, because no packet"
            " arrives before it is sent"
        )
    if quality.plain:
        return "veth"
    return "netem" if has_netem(private) else "emulator"


def netem_arguments(quality: Quality) -> list[str]:
    """Return the arguments of ``tc qdisc … netem`` for one direction."""
    arguments = ["limit", str(_queue_packets(quality))]
    if quality.rtt_ms:
        arguments += ["delay", f"{quality.rtt_ms / 2:g}ms"]
        arguments += [f"{quality.jitter_ms / 2:g}ms"] if quality.jitter_ms else []
    arguments += ["loss", f"{quality.loss_percent:g}%"] if quality.loss_percent else []
    return arguments + (["rate", f"{quality.rate_mbit:g}mbit"] if quality.rate_mbit else [])


def _queue_packets(quality: Quality) -> int:
    """Return how many packets may wait in one direction."""
    if not quality.rate_mbit:
        return QUEUE_PACKETS
    waits_s = RATE_QUEUE_S + (quality.rtt_ms + quality.jitter_ms) / 2000
    return min(QUEUE_PACKETS, 10 + round(quality.rate_mbit * 1e6 / 8 * waits_s / PACKET_BYTES))
