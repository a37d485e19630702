"""Round-trip times between nodes of a cluster, measured by ICMP echo."""

from __future__ import annotations

import re
import statistics
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyhooks.core.errors import RackgateError

if TYPE_CHECKING:
    from pyhooks.core.namespaces import NamespaceMachine

INTERVAL_S = 0.02
# More than MANY requests are sent at the interval FAST_S: a proof of packet loss needs hundreds.
SLOW_COUNT_MAX, SHORT_INTERVAL_S = 100, 0.004
# Over a link that loses a third of the packets in each direction, all ASKED requests fail once in 100,000 times.
PING_COUNT = 20
# Bytes of a request of a burst, without headers; it is one frame.
BURST_BYTES = 1400
REPLY_WAIT_S = 3
# ping waits this long only if there was no reply at all
MEASUREMENT_WAIT_S = 10


@dataclass(frozen=True)
class RoundTripTimes:
    """Round-trip times between two nodes in milliseconds."""

    source: str
    target: str
    sent: int
    received: int
    p50_ms: float
    p99_ms: float  # 99th percentile, nearest rank
    max_ms: float
    iqr_ms: float = 0.0  # interquartile range
    min_ms: float = 0.0

    @property
    def loss_share(self) -> float:
        """Share of requests without a reply."""
        return 1 - self.received / self.sent


def parse_ping(source: str, target: str, sent: int, text: str) -> RoundTripTimes:
    """Parse the output of ``ping_command``.

    Raises:
        RackgateError: there was no reply.
    """
    times = sorted(float(time_ms) for time_ms in re.findall(r"time=([0-9.]+) ms", text))
    if not times:
        raise RackgateError(f"no echo from {target} to {source}: is the link cut?")
    p99 = times[min(len(times) - 1, -(-99 * len(times) // 100) - 1)]
    first, _, third = statistics.quantiles(times, n=4) if len(times) > 1 else (times[0],) * 3
    iqr_ms = third - first
    return RoundTripTimes(source, target, sent, len(times), statistics.median(times), p99, times[-1], iqr_ms, times[0])


def ping_command(ip: str, count: int = PING_COUNT, wait_s: int = REPLY_WAIT_S, *, burst: bool = False) -> list[str]:
    """Return the ping command line; the default count suffices to decide whether the target replies.

    With ``burst`` large requests are sent without intervals, so that they queue at a rate limit.
    """
    interval_s = INTERVAL_S if count <= SLOW_COUNT_MAX else SHORT_INTERVAL_S
    together = ["-l", str(count), "-s", str(BURST_BYTES)] if burst else []
    return ["ping", "-n", "-c", str(count), "-i", str(interval_s), "-W", str(wait_s), *together, ip]


def _echo(ip: str, count: int, machine: NamespaceMachine | None, wait_s: int, *, burst: bool = False) -> str:
    command = ping_command(ip, count, wait_s, burst=burst)
    done = subprocess.run(
        machine.enter(command) if machine else command, capture_output=True, text=True, check=False, timeout=120
    )
    # 1: no reply; other statuses are errors of ping itself
    if done.returncode not in (0, 1):
        raise RackgateError(f"ping {ip}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def replies(ip: str, machine: NamespaceMachine | None) -> bool:
    """Return whether ``ip`` replies to an echo request from ``machine`` (None: from this process's network).

    Raises:
        RackgateError: ping itself failed.
    """
    return "bytes from" in _echo(ip, PING_COUNT, machine, REPLY_WAIT_S)


def measure(
    source: str, target: str, ip: str, machine: NamespaceMachine | None, count: int, *, burst: bool = False
) -> RoundTripTimes:
    """Measure the round-trip time to ``ip``, whose name is ``target``; see ``ping_command``.

    Raises:
        RackgateError: there was no reply.
    """
    return parse_ping(source, target, count, _echo(ip, count, machine, MEASUREMENT_WAIT_S, burst=burst))
