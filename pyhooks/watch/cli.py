"""``rackgate watch``: live view in a terminal, plain frames in a pipe, or JSON lines."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from pyhooks.core import process
from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError
from pyhooks.core.terminal import reader_may_leave
from pyhooks.core.wait import wait_for
from pyhooks.lab import lab_processes
from pyhooks.lab.cli import LabOption
from pyhooks.lab.lab import Lab, in_lab
from pyhooks.lab.mbeans import lab_sources
from pyhooks.watch.collector import Collector, KnownBroker, WatchedCluster
from pyhooks.watch.document import as_json
from pyhooks.watch.snapshot import take_snapshot
from pyhooks.watch.states import Snapshot
from pyhooks.watch.view import render

WATCH_EPILOG = (
    "Examples: rackgate watch (in a lab) · rackgate watch --bootstrap localhost:9092 --interval 2s ·"
    " rackgate watch --json --for 30s | jq '.counts' · rackgate watch --once"
)
FIRST_S = 10.0
INTERVAL_MIN_S = 0.1
PIPE_WIDTH = 160


def watched_cluster(bootstrap: str | None, history: Path | None) -> WatchedCluster:
    """Return the cluster to watch: the one with these bootstrap servers, or the lab in which this process runs.

    Raises:
        RackgateError: there are no bootstrap servers, and this process does not run in a lab.
    """
    if bootstrap is not None and not in_lab():
        return WatchedCluster(bootstrap, bootstrap, history=history)
    lab = Lab.attach()
    if bootstrap is not None and bootstrap != lab.bootstrap:
        return WatchedCluster(bootstrap, bootstrap, history=history)
    brokers = tuple(KnownBroker(node.node_id, node.site, partial(lab.process_state, node)) for node in lab.brokers())
    return WatchedCluster(lab.topology.name, lab.bootstrap, brokers, lab_sources(lab), history or lab.history_path)


watch_app = typer.Typer()


@watch_app.command("watch", epilog=WATCH_EPILOG)
def watch_command(
    bootstrap: Annotated[str | None, typer.Option(help="Brokers, host:port,… (in a lab: its own).")] = None,
    as_lines: Annotated[bool, typer.Option("--json", help="One JSON object per interval.")] = False,
    interval: Annotated[str, typer.Option(help="Time between two frames: 500ms, 1s, 2m.")] = "1s",
    for_time: Annotated[str | None, typer.Option("--for", help="Duration, such as 30s.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one frame with rates and exit.")] = False,
    history: Annotated[
        Path | None, typer.Option(help="A run's history: faults and produce outcomes (in a lab: its own).")
    ] = None,
    lab: LabOption = None,
) -> None:
    """Show racks, brokers and partitions live: which are writable, reject writes or are stuck; Ctrl-C ends it.

    One line a partition, the worst first: leader, replicas (those out of the ISR in brackets), racks in the ISR
    against min.insync.racks, ISR against min.insync.replicas, high watermark (▲ moves, ■ frozen, · still), results
    of produce attempts, and a verdict. What could not be observed is shown as "?".
    """
    interval_s = seconds(interval, "--interval")
    if interval_s < INTERVAL_MIN_S:
        raise RackgateError(f"--interval {interval}: at least {INTERVAL_MIN_S * 1000:.0f}ms")
    limit_s = seconds(for_time, "--for") if for_time is not None else None
    if bootstrap is None and not lab_processes.runs_inside(lab):
        raise typer.Exit(lab_processes.rerun_inside(lab, otherwise="name the cluster with --bootstrap host:port"))
    target = watched_cluster(bootstrap, history)
    with Collector(target, interval_s) as collector, _stop_on_signals() as stop:
        # values missing after the timeout are shown as unknown
        with suppress(RackgateError):
            wait_for(lambda: collector.complete or stop.is_set(), goal="responses", timeout_s=FIRST_S, interval_s=0.02)
        if once and not collector.metadata_known:
            raise _no_response(target, collector)
        frames = _frames(collector, stop, interval_s, 1 if once else None, limit_s)
        with suppress(KeyboardInterrupt):
            _show(frames, as_lines=as_lines, once=once)
    if not collector.metadata_known:
        raise _no_response(target, collector)


def _no_response(target: WatchedCluster, collector: Collector) -> RackgateError:
    problems = collector.observe().problems
    return RackgateError(
        f"no broker of {target.bootstrap} responded: is the address correct?", detail="\n".join(problems)
    )


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGHUP set, so that the view ends in order and restores the terminal."""
    stop = threading.Event()

    with process.handling_signals(dict.fromkeys((signal.SIGTERM, signal.SIGHUP), lambda *_: stop.set())):
        yield stop


def _frames(
    collector: Collector, stop: threading.Event, interval_s: float, count: int | None, limit_s: float | None
) -> Iterator[Snapshot]:
    """Yield snapshots at a steady rate, the first one after one interval so that it has rates."""
    snapshot = take_snapshot(collector.observe())
    begin = time.monotonic()
    slot = 0
    while count is None or slot < count:
        slot += 1
        # after a suspend of the machine, skip the missed frames
        slot = max(slot, int((time.monotonic() - begin) / interval_s)) if count is None else slot
        if stop.wait(max(0.0, begin + slot * interval_s - time.monotonic())):
            return
        snapshot = take_snapshot(collector.observe(), snapshot)
        yield snapshot
        if limit_s is not None and time.monotonic() + interval_s > begin + limit_s:
            return


def _show(frames: Iterator[Snapshot], *, as_lines: bool, once: bool) -> None:
    console = Console(highlight=False)
    if console.is_terminal and not once and not as_lines:
        with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:
            for frame in frames:
                live.update(render(frame, console.width, console.height), refresh=True)
        return
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)
    # a reader that closes the pipe (``| head``) is a normal end
    with reader_may_leave():
        for frame in frames:
            if as_lines:
                sys.stdout.write(as_json(frame) + "\n")
            else:
                console.print(render(frame, console.width, console.height if console.is_terminal else None))
                console.print(end="" if once else "\n")
            sys.stdout.flush()
