"""Kafka clients in JVMs inside a lab's nodes: where they run, listen and send, and whether they end.

``python tests/support/node_gateways.py`` prints one line of JSON; with ``hold`` it prints the JVM's PID and waits.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.namespaces import network_of
from pyhooks.jvm.client import java_errors
from pyhooks.jvm.gateway import LOOPBACK, Gateway
from pyhooks.jvm.java_exception import JavaError
from pyhooks.lab.lab import Lab
from pyhooks.patchset.client_classpaths import client_classpath

DATA_PORT = 7777


def namespace(pid: int | str, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def listening(pid: int) -> list[str]:
    """Return the listening addresses in a process's network namespace, in hexadecimal."""
    tables = (
        Path(f"/proc/{pid}/net/{table}").read_text(encoding="utf-8").splitlines()[1:] for table in ("tcp", "tcp6")
    )
    return sorted({line.split()[1].split(":")[0] for table in tables for line in table if line.split()[3] == "0A"})


def reachable(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=2).close()
    except OSError:
        return False
    return True


def connected(source: Gateway, host: str) -> bool:
    """Return whether a JVM can connect to the data port of a JVM in another node."""
    try:
        with java_errors():
            java = source.jvm.java.net
            java.Socket().connect(java.InetSocketAddress(host, DATA_PORT), 2000)
    except JavaError as error:
        if error.java_class == "java.net.SocketTimeoutException":
            return False
        raise
    return True


def look() -> None:
    lab = Lab.attach()
    own = namespace("thread-self", "net")
    first, second = lab.brokers("a")[0], lab.brokers("b")[0]
    machines = [lab.machine(first), lab.machine(second)]
    with (
        Gateway(client_classpath("patched"), machine=machines[0]) as patched,
        Gateway(client_classpath("2.8"), machine=machines[1]) as old,
        Gateway(client_classpath(paths.kafka_version())) as here,
    ):
        report: dict[str, object] = {"listening": [listening(gateway.pid) for gateway in (patched, old)]}
        versions = [gateway.produce_versions().latest for gateway in (patched, old, here)]
        # Data uses the lab's network; py4j's control connection must work even with both nodes cut off.
        server = patched.jvm.java.net.ServerSocket(DATA_PORT)
        data = [connected(old, first.ip)]
        for site in ("a", "b"):
            lab.network.cut(site)
        during_cut = [int(gateway.jvm.java.lang.Math.abs(-number)) for number, gateway in ((5, patched), (6, old))]
        data.append(connected(old, first.ip))
        server.close()
        report |= {
            "versions": versions,
            "data": data,
            "during_cut": during_cut,
            "in_node": [
                [namespace(gateway.pid, kind) == namespace(machine.pid, kind) for kind in ("net", "mnt", "pid", "uts")]
                for gateway, machine in zip((patched, old), machines, strict=True)
            ],
            "from_the_lab": [reachable(gateway.port) for gateway in (patched, old)],
            "here": reachable(here.port),
            "back": namespace("thread-self", "net") == own,
        }
        pids = [patched.pid, old.pid, here.pid]
    report["left"] = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    try:
        with network_of(4_000_000):
            pass
    except RackgateError as error:
        report["no_node"] = str(error)
    report["still_own"] = namespace("thread-self", "net") == own
    sys.stdout.write(json.dumps(report) + "\n")


def hold() -> None:
    lab = Lab.attach()
    with Gateway(client_classpath(paths.kafka_version()), machine=lab.machine(lab.brokers("a")[0])) as gateway:
        sys.stdout.write(f"{gateway.pid}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    hold() if "hold" in sys.argv[1:] else look()
