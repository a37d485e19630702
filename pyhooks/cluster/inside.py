"""The first process of a lab: makes the nodes and the network, starts Kafka, runs one command, ends.

Run as the first process of new user, network, mount and PID namespaces. When it ends, however it ends, the kernel
takes away every process, interface and mount of the lab.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from pyhooks import process
from pyhooks.cluster import kafka, network, node, topology
from pyhooks.cluster.lab import BOOTSTRAP_VARIABLE, LAB_VARIABLE, RUN_DIR_VARIABLE, Lab
from pyhooks.errors import RackgateError

HOME = Path("/run/rackgate")
# How long a command may take to end after Ctrl-C before the lab ends under it.
GRACE_S = 20.0


@contextmanager
def _step(console: Console, text: str) -> Iterator[None]:
    started = time.monotonic()
    with console.status(text):
        yield
    console.print(f"  {text} [dim]{time.monotonic() - started:.1f} s[/dim]", highlight=False)


def _own_world() -> None:
    """A private /run, so that namespaces' names, sockets and disks vanish with the lab."""
    for words in (["mount", "-t", "tmpfs", "rackgate", "/run"], ["ip", "link", "set", "lo", "up"]):
        process.run(words, what="lab")
    (Path("/run") / "netns").mkdir()
    HOME.mkdir()


def make(source: Path, run_dir: Path, classpath: str) -> tuple[Lab, list[subprocess.Popen[bytes]]]:
    """Makes nodes and network of the topology in ``source``; Kafka is not started.

    Returns:
        The lab and the processes that carry it.

    Raises:
        RackgateError: the kernel refused something, or a program is missing.
    """
    import tomllib

    wanted = topology.load(source)
    _own_world()
    keep: list[subprocess.Popen[bytes]] = []
    pids: dict[str, int] = {}
    disks: dict[str, str] = {}
    for item in wanted.nodes:
        disk = HOME / item.name
        machine, holder = node.create(item.name, disk)
        keep.append(holder)
        pids[item.name], disks[item.name] = machine.pid, str(disk)
    wires = network.build(wanted, pids, HOME / "vde")
    for wire in wires:
        keep.extend(wire.processes)
    lab = Lab(
        topology=wanted,
        source=tomllib.loads(source.read_text(encoding="utf-8")),
        pids=pids,
        disks=disks,
        run_dir=run_dir,
        classpath=classpath,
        cluster_id=kafka.new_id(),
        directory_ids={str(item.node_id): kafka.new_id() for item in wanted.controllers},
        emulations={f"{wire.link.left}-{wire.link.right}": wire.emulation for wire in wires},
    )
    lab.save(HOME / "lab.json")
    return lab, keep


def start(lab: Lab) -> None:
    """Formats all disks, starts all Kafka processes and waits until every broker is registered and unfenced.

    Raises:
        RackgateError: a process ended or took too long.
    """
    lab.format(lab.nodes)
    for item in lab.topology.controllers:
        lab.start_kafka(item)
    # Brokers only now: in 4.3.1 a broker that copies the first leader's log before it is committed, and has to truncate
    # it when another leader follows, forgets the voters for good (KRaftControlRecordStateMachine.truncateNewEntries
    # leaves nextOffset where it was) and never registers.
    lab.wait_quorum()
    for item in lab.topology.brokers:
        lab.start_kafka(item)
    lab.wait_unfenced(lab.topology.brokers)


def _run_command(command: Sequence[str], lab: Lab) -> int:
    """Runs the command in the lab's own network and returns its exit status."""
    env = os.environ | {
        LAB_VARIABLE: str(HOME / "lab.json"),
        BOOTSTRAP_VARIABLE: lab.bootstrap,
        RUN_DIR_VARIABLE: str(lab.run_dir),
    }
    if shutil.which(command[0]) is None:
        raise RackgateError(f"can't run {command[0]!r} in the lab: no such program")
    child = subprocess.Popen([*process.DIES_WITH_PARENT, *command], env=env)
    interrupted: list[float] = []

    def interrupt(*_: object) -> None:
        # The terminal has told the command as well; it decides, but not for ever.
        interrupted.append(time.monotonic())
        if len(interrupted) > 1:
            child.kill()

    signal.signal(signal.SIGINT, interrupt)
    while True:
        try:
            status = child.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            if interrupted and time.monotonic() - interrupted[0] > GRACE_S:
                child.kill()
            continue
        return status if status >= 0 else 128 - status


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the lab's first process; the arguments come from ``rackgate lab run``."""
    parser = argparse.ArgumentParser(prog="rackgate-lab")
    parser.add_argument("--topology", type=Path, required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--classpath", required=True)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args(argv)
    console = Console(stderr=True)
    try:
        name = args.topology.stem
        with _step(console, f"lab {name}: nodes and network"):
            lab, keep = make(args.topology, args.run_dir, args.classpath)
        if not args.bare:
            with _step(
                console,
                f"lab {name}: {len(lab.topology.controllers)} controllers, "
                f"{len(lab.topology.brokers)} brokers registered and unfenced",
            ):
                start(lab)
        status = _run_command(args.command, lab)
        for carrier in keep:
            if carrier.poll() is not None:
                raise RackgateError(f"lab {name}: {carrier.args!r} ended before the lab did; its results are void")
    except RackgateError as error:
        console.print(f"[red]error:[/red] {error}", highlight=False, soft_wrap=True)
        if error.detail:
            console.print(error.detail, highlight=False, markup=False, soft_wrap=True)
        return error.exit_status
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
