"""Commands ``rackgate rack`` and ``rackgate broker``: inject a fault in a running lab, with proof, and heal it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from pyhooks.core.durations import seconds
from pyhooks.core.terminal import plain, visible
from pyhooks.faults import registry
from pyhooks.faults.injection import FaultTarget
from pyhooks.faults.registry import FaultRecord
from pyhooks.lab import lab_processes
from pyhooks.lab.cli import JsonOption, LabOption

TargetKind = Literal["rack", "broker"]


ForOption = Annotated[
    str | None, typer.Option("--for", help="Heal after this time, such as 30s; else 'heal' does.", metavar="DURATION")
]


PeersOption = Annotated[list[str] | None, typer.Option("--from", help="Only from this site; repeatable.")]
ControllersOption = Annotated[
    bool, typer.Option("--controllers", help="Also delete disks of controllers, which leave and rejoin the quorum.")
]


def _apply(
    lab_name: str | None,
    kind: str,
    target_kind: TargetKind,
    name: str,
    duration: str | None,
    settings: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    until_s = seconds(duration, "--for") if duration else None
    lab = lab_processes.attach(lab_name)
    target = FaultTarget.rack(lab, name) if target_kind == "rack" else FaultTarget.broker(lab, name)
    now_ns = time.monotonic_ns()
    wanted = FaultRecord(
        kind=kind,
        target_kind=target_kind,
        target=target.name,
        settings=settings,
        since_ns=now_ns,
        until_ns=None if until_s is None else now_ns + round(until_s * 1e9),
    )
    console = Console(stderr=True, highlight=False)
    with registry.fault_injected(lab, wanted, stays=until_s is None):
        if until_s is None:
            _report(
                as_json, f"{kind}: in force on {target}, proved; heal it with: {_heal_command(target)}", kind, target
            )
            return
        with console.status("") as shown:
            end = time.monotonic() + until_s
            while (left_s := end - time.monotonic()) > 0:
                shown.update(plain(f"{kind}: in force on {target}, proved; healed in {left_s:.0f} s (Ctrl-C: now)"))
                time.sleep(min(0.5, left_s))
    _report(as_json, f"{kind}: {target} was affected for {until_s:g} s and is healed, proved", kind, target)


def _heal_command(target: FaultTarget) -> str:
    return f"rackgate {target.kind} heal {target.name if target.kind == 'rack' else target.nodes[0].node_id}"


def _report(as_json: bool, text: str, kind: str, target: FaultTarget) -> None:
    typer.echo(json.dumps({"kind": kind, target.kind: target.name, "text": text}) if as_json else visible(text))


def _heal(lab_name: str | None, target_kind: TargetKind, name: str, *, as_json: bool) -> None:
    lab = lab_processes.attach(lab_name)
    target = FaultTarget.rack(lab, name) if target_kind == "rack" else FaultTarget.broker(lab, name)
    healed = registry.heal(lab, [node.name for node in target.nodes])
    for fault in healed:
        _report(as_json, f"{fault.kind}: {fault.resolve(lab)} is healed, proved", fault.kind, target)
    if not healed:
        _report(as_json, f"{target}: no fault is in force", "heal", target)


def _app(target_kind: TargetKind, example: str) -> typer.Typer:
    """Return the commands for racks or for brokers."""
    affected = "a whole rack" if target_kind == "rack" else "one broker"
    help_text = f"Inject faults into {affected} of a running lab, with proof, and heal them."
    app = typer.Typer(name=target_kind, no_args_is_help=True, help=help_text)
    name_help = "Its name." if target_kind == "rack" else "Its id."
    argument = typer.Argument(metavar=target_kind.upper(), help=name_help)

    def examples(*lines: str) -> str:
        return "Examples: " + " · ".join(f"rackgate {target_kind} {line}" for line in lines)

    def add_command(kind: str, description: str, *lines: str) -> None:
        @app.command(kind, help=description, epilog=examples(*lines))
        def inject(
            name: str = argument, duration: ForOption = None, lab: LabOption = None, as_json: JsonOption = False
        ) -> None:
            _apply(lab, kind, target_kind, name, duration, {}, as_json=as_json)

    add_command(
        "kill",
        "Send SIGKILL to its Kafka processes, including controllers; the heal starts them on the same disks.",
        f"kill {example}",
        f"kill {example} --for 30s",
    )
    add_command(
        "pause",
        "Send SIGSTOP to its Kafka processes: connections stay open without responses.",
        f"pause {example} --for 20s",
    )
    if target_kind == "rack":

        @app.command("cut", epilog=examples(f"cut {example}", f"cut {example} --from a --for 1m"))
        def cut(
            name: str = argument,
            duration: ForOption = None,
            peers: PeersOption = None,
            lab: LabOption = None,
            as_json: JsonOption = False,
        ) -> None:
            """Drop every packet between the rack and all others; inside the rack the network works."""
            _apply(lab, "cut", target_kind, name, duration, {"peers": list(peers or ())}, as_json=as_json)
    else:
        add_command("cut", "Drop every packet from and to the broker.", f"cut {example}")

    @app.command("slow", epilog=examples(f"slow {example} --rtt-ms 100", f"slow {example} --rtt-ms 50 --rate-mbit 20"))
    def slow(
        name: str = argument,
        rtt_ms: Annotated[float, typer.Option("--rtt-ms", help="Round trip added, in milliseconds.")] = 100.0,
        jitter_ms: Annotated[float, typer.Option("--jitter-ms", help="How much it varies, up and down.")] = 0.0,
        loss_percent: Annotated[float, typer.Option("--loss-percent", help="Packets lost, in each direction.")] = 0.0,
        rate_mbit: Annotated[float, typer.Option("--rate-mbit", help="Limit of each direction in Mbit/s.")] = 0.0,
        duration: ForOption = None,
        lab: LabOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Add delay, jitter and loss to all paths to it, and limit their rate."""
        added = {"rtt_ms": rtt_ms, "jitter_ms": jitter_ms, "loss_percent": loss_percent, "rate_mbit": rate_mbit}
        _apply(lab, "slow", target_kind, name, duration, added, as_json=as_json)

    @app.command("wipe", epilog=examples(f"wipe {example}", f"wipe {example} --controllers"))
    def wipe(
        name: str = argument,
        controllers: ControllersOption = False,
        duration: ForOption = None,
        lab: LabOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Kill its processes and delete its brokers' disks; after the heal the disks are empty."""
        _apply(lab, "wipe", target_kind, name, duration, {"controllers": controllers}, as_json=as_json)

    @app.command("heal", epilog=examples(f"heal {example}"))
    def heal(name: str = argument, lab: LabOption = None, as_json: JsonOption = False) -> None:
        """Heal the fault, with proof; do nothing without a fault."""
        _heal(lab, target_kind, name, as_json=as_json)

    return app


rack_app = _app("rack", "b")
broker_app = _app("broker", "3")
