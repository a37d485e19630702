"""Round-trip times between places of a cluster, by ICMP echo."""

from __future__ import annotations

import re
import statistics
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyhooks.core.errors import RackgateError

if TYPE_CHECKING:
    from pyhooks.core.namespace_machine import NamespaceMachine

INTERVAL_S = 0.02
# Many requests go faster: the kernel's timer allows it, and a proof of loss needs hundreds.
MANY, FAST_S = 100, 0.004
# Over a way that loses a third of the packets in each direction none of twenty answers once in 100,000 times.
ASKED = 20
ANSWER_S = 3
# ping waits this long only if nothing has answered at all
SLOWEST_S = 10


@dataclass(frozen=True)
class Rtt:
    """Round-trip times between two places in milliseconds.

    Attributes:
        source: where the echo requests start.
        target: who answers.
        sent: requests sent.
        received: answers.
        p50_ms: median.
        p99_ms: 99th percentile, nearest rank.
        max_ms: largest.
        spread_ms: from the first to the third quartile.
    """

    source: str
    target: str
    sent: int
    received: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    spread_ms: float = 0.0

    @property
    def lost(self) -> float:
        """Share of the requests without an answer."""
        return 1 - self.received / self.sent


def parse(source: str, target: str, sent: int, text: str) -> Rtt:
    """Reads the output of ``ping``.

    Raises:
        RackgateError: no answer in it.
    """
    times = sorted(float(found) for found in re.findall(r"time=([0-9.]+) ms", text))
    if not times:
        raise RackgateError(f"no echo from {target} to {source}: is the link cut?")
    p99 = times[min(len(times) - 1, -(-99 * len(times) // 100) - 1)]
    first, _, third = statistics.quantiles(times, n=4) if len(times) > 1 else (times[0],) * 3
    return Rtt(source, target, sent, len(times), statistics.median(times), p99, times[-1], third - first)


def ping(ip: str, count: int = ASKED, wait_s: int = ANSWER_S) -> list[str]:
    """The words that send echo requests; by default as many as tell whether there is an answer."""
    interval_s = INTERVAL_S if count <= MANY else FAST_S
    return ["ping", "-n", "-c", str(count), "-i", str(interval_s), "-W", str(wait_s), ip]


def _echo(ip: str, count: int, machine: NamespaceMachine | None, wait_s: int) -> str:
    words = ping(ip, count, wait_s)
    done = subprocess.run(
        machine.enter(words) if machine else words, capture_output=True, text=True, check=False, timeout=120
    )
    # 1: no answer; anything else is ping's own trouble
    if done.returncode not in (0, 1):
        raise RackgateError(f"ping {ip}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def answers(ip: str, machine: NamespaceMachine | None) -> bool:
    """Whether ``ip`` answers one of some echo requests from ``machine`` (None: from where we are).

    Raises:
        RackgateError: ping itself failed, so nothing is known.
    """
    return "bytes from" in _echo(ip, ASKED, machine, ANSWER_S)


def measure(source: str, target: str, ip: str, machine: NamespaceMachine | None, count: int) -> Rtt:
    """Measures the round-trip time to ``ip``, which is called ``target``.

    Raises:
        RackgateError: no answer.
    """
    return parse(source, target, count, _echo(ip, count, machine, SLOWEST_S))
