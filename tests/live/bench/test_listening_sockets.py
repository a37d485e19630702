"""A benchmark and its lab listen only on loopback or inside the lab's namespaces."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from listening_sockets import Listener, listening_sockets, process_tree
from pyhooks.core import paths
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.core.wait import wait_for

START_S = 280.0
END_S = 60.0
HOST = Path("/proc/self/ns/net")
INTERFACES = Path("/proc/self/net/dev")
KAFKA, WORKERS, SPARK = "kafka.Kafka", "pyspark.daemon", "org.apache.spark.deploy.SparkSubmit"
# Programs whose sockets need no secret, by an argument of their command, with the reason.
OPEN = {
    KAFKA: "brokers and controllers of a lab: their namespaces have no way out, and the tests' clients are to be those"
    " of a plain cluster",
    "-c": "accumulators of PySpark, see test_spark",
}


def program(one: Listener) -> str:
    """Return the argument that identifies a known listening program; the complete command if it is unknown."""
    known = (*OPEN, WORKERS, SPARK, "bench.run.lab_run")
    return next((word for word in one.command if word in known), " ".join(one.command))


@pytest.mark.timeout(400)
def test_a_benchmark_and_its_lab_listen_nowhere_else(tmp_path: Path) -> None:
    host, interfaces = str(HOST.readlink()), INTERFACES.read_text(encoding="ascii").count("\n")
    seen: dict[tuple[str, int, str, int], Listener] = {}
    argv = [
        sys.executable,
        "-m",
        "pyhooks.cli",
        "bench",
        "run",
        "--scenario",
        "question",
        "--out",
        str(tmp_path / "out"),
    ]
    with (tmp_path / "log").open("wb") as log:
        bench = subprocess.Popen(
            [*DIES_WITH_PARENT, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=paths.REPO
        )

    def all_listen() -> bool:
        assert bench.poll() is None, (tmp_path / "log").read_text(encoding="utf-8")
        for one in listening_sockets(process_tree(bench.pid)):
            seen[one.network, one.pid, str(one.address), one.port] = one
        return {KAFKA, WORKERS, SPARK} <= {program(one) for one in seen.values()}

    try:
        wait_for(all_listen, goal="a lab with load from Spark", timeout_s=START_S, interval_s=0.5)
    finally:
        bench.send_signal(signal.SIGTERM)
        bench.wait(timeout=END_S)
    found = list(seen.values())
    # no socket leads from the machine into the lab
    assert INTERFACES.read_text(encoding="ascii").count("\n") == interfaces
    assert [one.text for one in found if one.network == host and not one.address.is_loopback] == []
    # inside the lab only Kafka can be reached from another node
    assert {program(one) for one in found if not one.address.is_loopback} == {KAFKA}
    # a program not listed above needs a human decision
    assert {program(one) for one in found} <= {*OPEN, WORKERS, SPARK, "bench.run.lab_run"}
    assert [one.text for one in found if program(one) == KAFKA and one.network == host] == []
