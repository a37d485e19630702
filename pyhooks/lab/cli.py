"""Commands of ``rackgate lab``: labs that run one command, and labs that stay until they are taken down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pyhooks.core import run_folder
from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError
from pyhooks.core.terminal import plain, step_line, visible
from pyhooks.history.event_log import History
from pyhooks.history.events import PollDetails, PollFailureDetails
from pyhooks.kafka import tools
from pyhooks.lab import (
    class_data_sharing,
    disks,
    lab_processes,
    link_emulation,
    link_emulator,
    mbeans,
    memory,
    metrics,
    topology,
)
from pyhooks.lab.lab import Lab
from pyhooks.lab.lab_processes import LabSetup
from pyhooks.patchset.distribution import Distribution

lab_app = typer.Typer(name="lab", no_args_is_help=True, help="Private clusters of namespaces on this machine.")

# program -> Debian package
PROGRAMS = {
    "java": "openjdk-17-jre-headless",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "bridge": "iproute2",
    "ping": "iputils-ping",
}
UNKNOWN = "fenced or unknown"
# of the link emulator; "lost" on purpose
COUNTERS = ("frames", "lost", "dropped", "overflowed", "failed")
GOOD = ("up", "no Kafka")
GATE_METRICS = ("RackCheckFailureRate.Count", "UnderMinRackIsrPartitionCount", "AtMinRackIsrPartitionCount")
TAKES_COMMAND = {"ignore_unknown_options": True, "allow_interspersed_args": False}

TopologyOption = Annotated[str, typer.Option("--topology", help="A topology file, or the name of a shipped one.")]
BareOption = Annotated[bool, typer.Option("--bare", help="Nodes and network only; no Kafka is started.")]
StockOption = Annotated[bool, typer.Option("--stock", help="Run Kafka without the overlay.")]
LabOption = Annotated[str | None, typer.Option("--lab", help="Which lab, if several run.", metavar="NAME")]
NodeOption = Annotated[str | None, typer.Option("--node", help="Node, such as broker-3.")]
RunDirOption = Annotated[
    Path | None, typer.Option("--run-dir", help="Folder for logs and history (default: out/lab/TIME-NAME).")
]
RackOption = Annotated[str | None, typer.Option("--rack", help="In the first node of this rack.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
# of commands for any cluster; without --bootstrap they use the lab that runs
BootstrapOption = Annotated[
    str,
    typer.Option(envvar="RACKGATE_BOOTSTRAP", help="Bootstrap servers, host:port,host:port.", metavar="ADDR"),
]
CommandConfigOption = Annotated[
    Path | None, typer.Option(help="Properties file of Kafka's clients, as for Kafka's own tools.")
]


def check_programs() -> None:
    """Raise an error that names all missing programs and their packages."""
    missing = {program: package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise RackgateError(f"a lab needs {', '.join(sorted(missing))}: install with 'apt-get install {packages}'")


def _plan(name: str, topology_name: str, run_dir: Path | None, *, bare: bool, stock: bool) -> LabSetup:
    """Check the prerequisites of a lab, claim its run folder and return the plan."""
    check_programs()
    source = topology.find(topology_name)
    wanted = topology.load(source)
    folder = (run_dir or lab_processes.default_run_dir(name)).resolve()
    for path in (source, folder):
        if path.resolve().is_relative_to("/run"):
            raise RackgateError(f"{path}: a lab has a private /run and can't see it; use another folder")
    run_folder.check(folder, run_folder.LAB)
    if any((folder / part).exists() for part in ("logs", "history.jsonl")):
        raise RackgateError(f"{folder}: has the logs and the history of another run; use another folder")
    link_emulation.check_links(wanted, source, lab_processes.namespace_method().prefix)
    if not bare:
        advice = "take a topology with fewer nodes or a lower heap_mb"
        memory.require_memory(memory.lab_memory_mb(wanted), f"a lab of {source.stem}", advice)
    # a bare lab starts no Kafka and needs no build
    built = None if bare else Distribution.load()
    classpath = built.classpath(overlay=not stock) if built else ""
    run_folder.claim(folder, run_folder.LAB)
    return LabSetup(
        name=name,
        topology=source,
        run_dir=folder,
        classpath=classpath,
        agent=str(built.hooks) if built else "",
        archive=_archive(built, classpath, stock=stock) if built else "",
        stock=stock,
    )


def _archive(built: Distribution, classpath: str, *, stock: bool) -> str:
    """Return the class archive of the build; create it if missing, with a status line because that takes a while."""
    file = built.classes(overlay=not stock)
    if file.exists():
        return str(file)
    with Console(stderr=True).status("once for this build: Kafka's classes are archived, about 15 s …"):
        return class_data_sharing.ensure_archive(file, classpath, lab_processes.namespace_method().prefix)


def run_in_lab(
    topology_name: str, run_dir: Path, command: list[str], *, bare: bool, stock: bool, user: bool = True
) -> int:
    """Create a lab, run ``command`` in it, take the lab down and return the command's exit status.

    Raises:
        RackgateError: a prerequisite is missing.
    """
    plan = _plan("run", topology_name, run_dir, bare=bare, stock=stock)
    sys.stdout.flush()
    sys.stderr.flush()
    return lab_processes.run(plan, command, user=user)


@lab_app.command(
    "run",
    context_settings=TAKES_COMMAND,
    epilog="Example: rackgate lab run --topology az3-outside -- sh -c 'echo $RACKGATE_BOOTSTRAP; nproc'",
)
def run_command(
    command: Annotated[list[str], typer.Argument(help="The command, after --.")],
    topology_name: TopologyOption = "az3-outside",
    run_dir: RunDirOption = None,
    bare: BareOption = False,
    stock: StockOption = False,
    as_root: Annotated[
        bool, typer.Option("--as-root", help="Without a user namespace: programs in it may change users, as sshd does.")
    ] = False,
) -> None:
    """Start a lab, run COMMAND in it and take the lab down; exit with COMMAND's status.

    COMMAND finds the brokers in RACKGATE_BOOTSTRAP, the folder of the run in RACKGATE_RUN_DIR, and the lab's
    description in RACKGATE_LAB.
    """
    folder = run_dir or lab_processes.default_run_dir("run")
    sys.exit(run_in_lab(topology_name, folder, command, bare=bare, stock=stock, user=not as_root))


@lab_app.command(
    "up",
    epilog="Examples: rackgate lab up · rackgate lab up --name stock --stock · rackgate lab up --topology my.toml",
)
def up_command(
    name: Annotated[str | None, typer.Option("--name", help="Name of the lab (default: that of the topology).")] = None,
    topology_name: TopologyOption = "az3-outside",
    run_dir: RunDirOption = None,
    bare: BareOption = False,
    stock: StockOption = False,
) -> None:
    """Start a lab in the background; it runs until 'rackgate lab down'."""
    lab_name = name or topology.find(topology_name).stem
    lab_processes.check_name(lab_name)
    plan = _plan(lab_name, topology_name, run_dir, bare=bare, stock=stock)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    count = len(topology.load(plan.topology).nodes)
    with console.status(f"lab {lab_name}: {count} nodes come up, which takes about 15 s …"):
        lab = lab_processes.up(plan, lambda text, seconds: console.print(step_line(text, seconds)))
    console.print(plain(f"  as {lab.way}; results go to {lab.run_dir}"))
    which = (
        "" if len([record for record in lab_processes.recorded_labs() if record.runs]) == 1 else f" --lab {lab_name}"
    )
    console.print(
        f"  next: rackgate lab status{which} · rackgate lab kafka{which} topics --list · rackgate watch{which}"
        f" · rackgate rack kill{which} a · rackgate lab down{which and ' ' + lab_name}"
    )


@lab_app.command("down", epilog="Examples: rackgate lab down · rackgate lab down stock · rackgate lab down --all")
def down_command(
    name: Annotated[str | None, typer.Argument(help="Name of the lab; optional if only one runs.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All labs of this user.")] = False,
) -> None:
    """Take a lab down; the folder of its results is kept."""
    recorded, problems = lab_processes.list_labs()
    if everything:
        chosen = recorded
    else:
        ended = [
            lab for lab in recorded if not lab.runs and (lab.name == name or (name is None and len(recorded) == 1))
        ]
        chosen = (ended[0],) if ended else (lab_processes.find(name),)
    for lab in chosen:
        lab_processes.down(lab)
        typer.echo(visible(f"lab {lab.name} is down; its results: {lab.run_dir}"))
    for problem in problems:
        typer.echo(visible(problem), err=True)
    if not chosen:
        typer.echo("no lab runs")


@lab_app.command(
    "exec",
    context_settings=TAKES_COMMAND,
    epilog="Examples: rackgate lab exec -- ip route · rackgate lab exec --rack b -- ping -c 3 10.77.1.10",
)
def exec_command(
    command: Annotated[list[str], typer.Argument(help="The command, after --.")],
    lab_name: LabOption = None,
    node: NodeOption = None,
    rack: RackOption = None,
) -> None:
    """Run COMMAND in a running lab, at the clients' site or in a node; exit with its status."""
    lab = lab_processes.attach(lab_name)
    argv = list(command)
    place = _place(lab, node, rack)
    if place is not None:
        argv = lab.machine(place).enter(argv)
    elif shutil.which(argv[0]) is None:
        raise RackgateError(f"can't run {argv[0]!r} in the lab: no such program")
    os.execvpe(argv[0], argv, os.environ | lab.variables)  # noqa: S606 - no shell is wanted


def _place(lab: Lab, node: str | None, rack: str | None) -> topology.Node | None:
    if node and rack:
        raise RackgateError("--node and --rack are mutually exclusive")
    if rack:
        members = lab.topology.site(rack).nodes
        if not members:
            raise RackgateError(f"--rack {rack}: there is no node in it; name one with --node")
        return members[0]
    return lab.node(node) if node else None


@lab_app.command("shell", epilog="Examples: rackgate lab shell · rackgate lab shell --node broker-3")
def shell_command(lab_name: LabOption = None, node: NodeOption = None, rack: RackOption = None) -> None:
    """Open a shell in a running lab, at the clients' site or in a node."""
    exec_command([os.environ.get("SHELL", "/bin/sh")], lab_name, node, rack)


@lab_app.command(
    "kafka",
    context_settings=TAKES_COMMAND,
    epilog="Examples: rackgate lab kafka topics --describe · rackgate lab kafka configs --describe --entity-type topics"
    " --entity-name orders · rackgate lab kafka features describe",
)
def kafka_command(
    tool: Annotated[str, typer.Argument(help="One of Kafka's tools, as its script without kafka- and .sh.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Its arguments; the brokers are added.")] = None,
    lab_name: LabOption = None,
) -> None:
    """Run one of Kafka's own tools in a running lab."""
    lab = lab_processes.attach(lab_name)
    argv = tools.command(lab.classpath, tool, arguments or [], lab.bootstrap)
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted


@lab_app.command("logs", epilog="Examples: rackgate lab logs broker-3 · rackgate lab logs -f broker-3 | grep -i isr")
def logs_command(
    node: Annotated[str | None, typer.Argument(help="Name of the node; default: the lab's own log.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Number of last lines.")] = 40,
    lab_name: LabOption = None,
) -> None:
    """Show the last lines of the log of a Kafka process."""
    lab = lab_processes.find(lab_name)
    file = Path(lab.run_dir) / "logs" / f"{node}.log" if node else lab.log
    if not file.exists():
        known = ", ".join(sorted(path.stem for path in (Path(lab.run_dir) / "logs").glob("*.log")))
        raise RackgateError(f"lab {lab.name}: no log of {node!r}; there are logs of {known or 'nothing'}")
    subprocess.run(["tail", f"--lines={lines}", *(["--follow=name"] if follow else []), str(file)], check=False)


@lab_app.command(
    "disks",
    epilog="Examples: rackgate lab disks · rackgate lab disks --topic orders --json; then: rackgate judge HISTORY"
    " --checker promise",
)
def disks_command(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic; repeatable; default: all but __*.")
    ] = None,
    lab_name: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Kill all Kafka processes of a lab at once and read the brokers' disks into the run's history.

    This ends the run: Kafka is not started again. 'rackgate judge' then checks whether acknowledged records are in
    enough racks.
    """
    lab = _require_kafka(lab_processes.attach(lab_name))
    history = History(lab.history_path)
    states = disks.stop_and_read(lab, history, topics=topic or ())
    if as_json:
        typer.echo(json.dumps({"history": str(history.path), "brokers": [asdict(disk) for disk in states]}, indent=1))
    else:
        for disk in states:
            typer.echo(
                f"broker {disk.broker} (rack {disk.rack or 'without a name'}): {disk.records} records in"
                f" {disk.partitions} partitions{'' if disk.stopped else '; it runs again, so its disk proves nothing'}"
            )
            for name, number, where in disk.torn:
                typer.echo(f"  {name}-{number} ends early: {where}")
        typer.echo(f"written to {history.path}")
    running = [str(disk.broker) for disk in states if not disk.stopped]
    if running:
        raise RackgateError(f"broker {', '.join(running)} was started while its disk was read: heal faults and repeat")


@lab_app.command(
    "metrics", epilog="Examples: rackgate lab metrics --for 30s · rackgate lab metrics --for 2m --interval 500ms --json"
)
def metrics_command(
    for_time: Annotated[str | None, typer.Option("--for", help="Duration, such as 30s; default: until Ctrl-C.")] = None,
    interval: Annotated[str, typer.Option(help="Time between two polls of a process: 500ms, 1s, 2m.")] = "1s",
    lab_name: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Poll the metrics of all Kafka processes of a lab into the run's history.

    They are read through sockets on the nodes' disks, so also from a partitioned rack. A poll without a response has
    outcome unknown.
    """
    interval_s = seconds(interval, "--interval")
    limit_s = seconds(for_time, "--for") if for_time is not None else None
    lab = _require_kafka(lab_processes.attach(lab_name))
    history = History(lab.history_path)
    begin_ns = time.monotonic_ns()
    with metrics.record_polls(mbeans.lab_sources(lab), history, interval_s), suppress(KeyboardInterrupt):
        threading.Event().wait(limit_s)
    rows = _summarize_polls(history, begin_ns)
    if not any(row["answered"] for row in rows):
        why = next((row["problem"] for row in rows), "no poll was sent")
        raise RackgateError(f"lab {lab.name}: no Kafka process returned metrics: {why}")
    if as_json:
        typer.echo(json.dumps({"history": str(history.path), "nodes": rows}, indent=1))
        return
    for row in rows:
        missing = f"; the last of the others: {row['problem']}" if row["problem"] else ""
        typer.echo(f"{row['node']}: {row['answered']} of {row['polls']} polls answered{missing}")
        if row["gate"]:
            ranges = [
                f"{name} {values['first']} to {values['last']}, at most {values['max']}"
                for name, values in row["gate"].items()
            ]
            typer.echo(f"  {'; '.join(ranges)}")
    typer.echo(f"written to {history.path}")


def _summarize_polls(history: History, begin_ns: int) -> list[dict[str, Any]]:
    """Summarize each node's polls in the history since ``begin_ns``, with the node-level metrics of the gate."""
    rows: dict[str, dict[str, Any]] = {}
    for event, poll in PollDetails.each(history.events()):
        if event.mono_ns < begin_ns:
            continue
        row = rows.setdefault(
            poll.node, {"node": poll.node, "rack": event.rack, "polls": 0, "answered": 0, "problem": "", "gate": {}}
        )
        row["polls"] += 1
        row["answered"] += event.outcome == "ok"
        if (failure := PollFailureDetails.of(event)) is not None:
            row["problem"] = failure.problem
        for metric in metrics.rows(event):
            if metric.topic is None and metric.name in GATE_METRICS and metric.value is not None:
                summary = row["gate"].setdefault(
                    metric.name, {"first": metric.value, "max": metric.value, "last": metric.value}
                )
                summary |= {"max": max(summary["max"], metric.value), "last": metric.value}
    return [rows[node] for node in sorted(rows)]


def _require_kafka(lab: Lab) -> Lab:
    if lab.bare:
        raise RackgateError(f"lab {lab.name} is bare: it has no Kafka")
    return lab


@lab_app.command("status", epilog="Examples: rackgate lab status · rackgate lab status --json")
def status_command(lab_name: LabOption = None, as_json: JsonOption = False) -> None:
    """Show the running labs, or the nodes, links and faults of one lab.

    Exit status 1 if something is down or a fault is in force.
    """
    if not lab_processes.runs_inside(lab_name):
        labs, problems = lab_processes.list_labs()
        running = [lab for lab in labs if lab.runs]
        if lab_name is None and len(running) != 1:
            _list(labs, problems, as_json=as_json)
            return
        raise typer.Exit(lab_processes.rerun_inside(lab_name))
    status = _status(Lab.attach())
    if as_json:
        typer.echo(json.dumps(status, indent=1))
    else:
        _show(status)
    raise typer.Exit(0 if status["ok"] else 1)


def _list(labs: tuple[lab_processes.LabRecord, ...], problems: tuple[str, ...], *, as_json: bool) -> None:
    rows = [
        {"name": lab.name, "runs": lab.runs, "topology": lab.topology, "stock": lab.stock, "run_dir": lab.run_dir}
        for lab in labs
    ]
    if as_json:
        typer.echo(json.dumps({"labs": rows, "problems": problems}, indent=1))
        return
    for problem in problems:
        typer.echo(visible(problem), err=True)
    if not rows:
        typer.echo("no lab runs: start one with 'rackgate lab up'")
    for lab in labs:
        # measured since boot, because the wall clock may have been changed
        age_min = (time.clock_gettime(time.CLOCK_BOOTTIME) - lab.ticks / os.sysconf("SC_CLK_TCK")) / 60
        ended = f"has ended, see {lab.log}; forget it: rackgate lab down {lab.name}"
        state = f"runs for {age_min:.0f} min" if lab.runs else ended
        typer.echo(visible(f"{lab.name}: {Path(lab.topology).stem}{' (stock)' if lab.stock else ''}, {state}"))


def _status(lab: Lab) -> dict[str, Any]:
    from pyhooks.faults import registry

    bare = lab.bare
    unfenced = frozenset() if bare else lab.unfenced()
    nodes = []
    for node in lab.nodes:
        state = "no Kafka" if bare else lab.process_state(node)
        row = {"name": node.name, "site": node.site, "address": node.address, "process": state}
        if node.is_broker and not bare:
            row["registered"] = "unfenced" if node.node_id in unfenced else UNKNOWN
        nodes.append(row)
    faults = registry.active_faults()
    return {
        "lab": lab.name,
        "topology": lab.topology.name,
        "bootstrap": lab.bootstrap,
        "run_dir": str(lab.run_dir),
        "links": lab.emulations,
        "link_states": lab.link_states(),
        "nodes": nodes,
        "faults": [
            {"kind": fault.kind, fault.target_kind: fault.target, "text": fault.description} for fault in faults
        ],
        "ok": not faults
        and (bare or all(row["process"] == "up" and row.get("registered") != UNKNOWN for row in nodes)),
    }


def _show(status: dict[str, Any]) -> None:
    console = Console(highlight=False)
    of = f", topology {status['topology']}; results: {status['run_dir']}"
    console.print(Text.assemble("lab ", plain(status["lab"], "bold"), plain(of)))
    console.print(plain(f"brokers: {status['bootstrap']}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for head in ("site", "node", "address", "process", "registered"):
        table.add_column(head)
    for row in status["nodes"]:
        good = row["process"] in GOOD
        registered = row.get("registered", "")
        table.add_row(
            plain(row["site"]),
            plain(row["name"]),
            plain(row["address"]),
            plain(row["process"], "green" if good else "bold red"),
            plain(registered, "red" if registered == UNKNOWN else ""),
        )
    console.print(table)
    kinds = sorted({f"{how}" for how in status["links"].values()})
    console.print(f"links: {', '.join(kinds) or 'none'}")
    states = status["link_states"]
    if states:
        counts = {name: sum(way[name] for state in states.values() for way in state["directions"]) for name in COUNTERS}
        console.print(
            plain(f"frames: {', '.join(f'{count} {name}' for name, count in counts.items())}"), soft_wrap=True
        )
    for sentence in link_emulator.describe_trouble(states):
        console.print(plain(sentence, "red"), soft_wrap=True)
    for fault in status["faults"]:
        console.print(Text.assemble(("fault:", "bold red"), " ", plain(fault["text"])))
