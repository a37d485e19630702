"""Class data sharing (CDS) archive of Kafka's classes, so that a lab's nodes need not load and verify them again.

One Kafka starts and ends on a private loopback, and Java archives the classes that it had loaded. The archive is
created once for a class path. It halves the CPU time of starting eight nodes on two cores. Behaviour is unchanged: Java
checks that the archive matches the class path and ignores it otherwise.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import put_in_place
from pyhooks.core.locks import hold_lock
from pyhooks.core.wait import wait_for
from pyhooks.lab import kafka_process
from pyhooks.lab.disk_format import format_disks
from pyhooks.lab.topology import Node

STARTED = "Kafka Server started"
START_S = 90.0
STOP_S = 60.0
WAIT_S = 2 * (START_S + STOP_S)
HEAP_MB = 256


def ensure_archive(archive: Path, classpath: str, private: Sequence[str]) -> str:
    """Create the archive if it is missing; ``private`` is a command prefix that runs a program in new namespaces.

    If another process creates it, wait for that one.

    Returns:
        The archive's path, or an empty string if it can't be written: it only affects speed.

    Raises:
        RackgateError: Kafka does not start, or the other process does not end.
    """
    if archive.exists():
        return str(archive)
    try:
        archive.parent.mkdir(exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=".making-", dir=archive.parent)
    except PermissionError:
        return ""
    lock = hold_lock(
        archive.with_suffix(".lock"),
        taken=f"{archive}: another process has been creating it for {WAIT_S:.0f} s",
        patience_s=WAIT_S,
    )
    with folder as work, lock:
        if not archive.exists():
            made = Path(work) / archive.name
            _create_archive(made, classpath, private)
            put_in_place(made, archive)
    return str(archive)


def _create_archive(made: Path, classpath: str, private: Sequence[str]) -> None:
    work = made.parent
    node = Node("combined-1", 1, "combined", "a", "127.0.0.1")
    properties = work / "server.properties"
    text = kafka_process.server_properties(node, quorum=[node.quorum_address], data=work / "data", brokers=1, extra={})
    properties.write_text(kafka_process.render(text), encoding="utf-8")
    directory_ids = {node.node_id: kafka_process.new_id()}
    arguments = kafka_process.format_arguments(
        node, properties=properties, cluster_id=kafka_process.new_id(), directory_ids=directory_ids, controllers=[node]
    )
    format_disks(classpath, [arguments])
    option = f"-XX:ArchiveClassesAtExit={made}"
    command = kafka_process.java_command(classpath=classpath, heap_mb=HEAP_MB, properties=properties, options=[option])
    log = work / "kafka.log"
    # The shell is the init process of its namespace and forwards the signal. It waits twice, because the signal
    # interrupts the first wait.
    script = 'ip link set lo up; "$@" & child=$!; trap "kill -TERM $child" TERM; wait $child; wait $child'
    contained = [*private, "sh", "-c", script, "sh", *command]
    with process.supervised(contained, log=log, start_new_session=True) as running:
        wait_for(
            lambda: running.poll() is not None or STARTED in log.read_text(encoding="utf-8", errors="replace"),
            goal="a Kafka whose classes are archived",
            timeout_s=START_S,
        )
        _stop_kafka(running)
    if not made.exists():
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise RackgateError("archive Kafka's classes: Java wrote no archive", detail=tail)


def _stop_kafka(running: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the shell inside, which ends Kafka, and wait until it has ended."""
    for child in process.children(running.pid):
        os.kill(child, signal.SIGTERM)
    try:
        running.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired as error:
        raise RackgateError(f"archive Kafka's classes: it did not end within {STOP_S:.0f} s") from error
