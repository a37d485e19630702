"""Measure the links from a lab's clients to its brokers; run in the lab as ``python -m link_measurement``.

Reads a ``Plan`` as JSON from standard input.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyhooks.core import process
from pyhooks.core.resource_usage import TICKS_PER_S
from pyhooks.core.wait import wait_for
from pyhooks.lab import link_emulator
from pyhooks.lab.lab import Lab
from pyhooks.lab.topology import Node

PORT = 7000
LOAD_BYTES_PER_S = 20e6
SINK = f"""
import socket, threading
def drain(connection):
    while connection.recv(1 << 18):
        pass
server = socket.create_server(("", {PORT}))
while True:
    threading.Thread(target=drain, args=(server.accept()[0],), daemon=True).start()
"""
# one connection's window is too small for 20 MB/s and 200 ms
CONNECTIONS = 4


@dataclass(frozen=True)
class Plan:
    """Measurement plan.

    Attributes:
        rtts_ms: requested round-trip times by node.
        rounds: maximum number of measurements of each link, both idle and under load.
        echoes: echo requests per measurement.
        until_near: stop after the first median near the requested time, since a busy machine only adds delay.
        bulk_s: seconds of sending as fast as possible, or 0 for none.
    """

    rtts_ms: dict[str, float]
    rounds: int
    echoes: int
    until_near: bool
    bulk_s: float


def is_near(median_ms: float, rtt_ms: float) -> bool:
    """Return whether a median round-trip time is within 0.1 ms or 5 % of the requested one."""
    return abs(median_ms - rtt_ms) <= max(0.1, 0.05 * rtt_ms)


def measure(lab: Lab, node: Node, rtt_ms: float, plan: Plan) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < plan.rounds:
        before, begun = emulator_s(), time.monotonic()
        rtt = asdict(lab.rtt(node, None, plan.echoes))
        share = (emulator_s() - before) / (time.monotonic() - begun)
        found.append({**rtt, "emulator_share": share, "load_average": os.getloadavg()[0]})
        if plan.until_near and is_near(found[-1]["p50_ms"], rtt_ms):
            break
    return found


def emulator_pid() -> int | None:
    """Return the PID of the link emulator; None if there is none."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and process.stat_fields(folder):
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            if Path(os.fsdecode(arguments[0])).name == link_emulator.SOURCE.stem:
                return int(folder.name)
    return None


def emulator_s() -> float:
    """Return the link emulator's CPU seconds, including the kernel's for the frames it sends; 0 without an emulator."""
    pid = emulator_pid()
    stat = process.stat_fields(Path(f"/proc/{pid}")) if pid else []
    return (int(stat[11]) + int(stat[12])) / TICKS_PER_S if stat else 0.0


@contextmanager
def sink(lab: Lab, node: Node) -> Iterator[None]:
    """Run a program on a node that receives and discards data."""
    command = lab.machine(node).enter([sys.executable, "-c", SINK])
    with process.supervised(command, stdout=subprocess.DEVNULL):
        wait_for(lambda: f":{PORT} " in lab.machine(node).run(["ss", "-ltn"]), goal="the sink to listen", timeout_s=60)
        yield


def send(node: Node, stop: threading.Event, bytes_per_s: float, chunk: int) -> None:
    """Send at a rate, or as fast as possible if it is 0, until stopped; a backlog of more than 0.1 s is dropped."""
    with socket.create_connection((node.ip, PORT), timeout=30) as connection:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            connection.sendall(bytes(chunk))
            due = max(due, time.monotonic() - 0.1) + (chunk / bytes_per_s if bytes_per_s else 0)


def received_bytes(lab: Lab, node: Node) -> int:
    """Return the bytes that a node has received, including headers."""
    text = lab.machine(node).run(["ip", "-s", "-j", "link", "show", "eth0"])
    return int(json.loads(text)[0]["stats64"]["rx"]["bytes"])


@contextmanager
def load(
    lab: Lab,
    node: Node,
    rates: list[float],
    *,
    bytes_per_s: float = LOAD_BYTES_PER_S,
    chunk: int = 16384,
    settle_s: float = 4.0,
) -> Iterator[None]:
    """Send to a node during the block, which starts after ``settle_s``; append its rate in MB/s to ``rates``."""
    stop = threading.Event()
    arguments = (node, stop, bytes_per_s / CONNECTIONS, chunk)
    senders = [threading.Thread(target=send, args=arguments) for _ in range(CONNECTIONS)]
    for sender in senders:
        sender.start()
    try:
        time.sleep(settle_s)
        before, begun = received_bytes(lab, node), time.monotonic()
        yield
        rates.append((received_bytes(lab, node) - before) / 1e6 / (time.monotonic() - begun))
    finally:
        stop.set()
        for sender in senders:
            sender.join()


def bulk(lab: Lab, node: Node, seconds: float) -> float:
    """Send as fast as possible for some seconds and return the rate in MB/s."""
    rates: list[float] = []
    with load(lab, node, rates, bytes_per_s=0, chunk=1 << 20, settle_s=1):
        time.sleep(seconds)
    return rates[0]


def main() -> None:
    """Print the measurements of each node."""
    lab, plan = Lab.attach(), Plan(**json.load(sys.stdin))
    result: dict[str, Any] = {}
    for name, rtt_ms in plan.rtts_ms.items():
        node = lab.node(name)
        link = next(link for link in lab.topology.links_of(node.site) if link.peer(node.site) == "home")
        emulated = f"{link.left}-{link.right}"
        found: dict[str, Any] = {"rtt_ms": rtt_ms, "idle": measure(lab, node, rtt_ms, plan), "rates": []}
        with sink(lab, node):
            with load(lab, node, found["rates"]):
                found["loaded"] = measure(lab, node, rtt_ms, plan)
            found["bulk_mb_per_s"] = [bulk(lab, node, plan.bulk_s) for _ in range(plan.rounds)] if plan.bulk_s else []
        state = link_emulator.read(emulated) if link_emulator.SOCKET.exists() else None
        found["directions"] = [asdict(counters) for counters in state.directions] if state else []
        result[name] = found
    before, begun = emulator_s(), time.monotonic()
    time.sleep(3)
    idle_share = (emulator_s() - before) / (time.monotonic() - begun)
    print(json.dumps({"nodes": result, "idle_share": idle_share}))  # noqa: T201


if __name__ == "__main__":
    main()
