"""``rackgate lab set``: change the settings of a topic in a running lab and note the change in its history."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.lab import lab_processes
from pyhooks.lab.cli import JsonOption, LabOption
from pyhooks.workload import requirement_changes

SET_EPILOG = (
    "Examples: rackgate lab set orders --min-racks 2 · rackgate lab set orders --min-racks 1 --min-replicas 2 --within"
    " 10s --json. Exit status: 0 all brokers of the topic report the new values, 2 they could not be set, or it is not"
    " known where they apply."
)
set_app = typer.Typer()


@set_app.command("set", epilog=SET_EPILOG)
def set_command(
    topic: Annotated[str, typer.Argument(help="Which topic.")],
    min_racks: Annotated[int | None, typer.Option("--min-racks", min=1, help="min.insync.racks.")] = None,
    min_replicas: Annotated[int | None, typer.Option("--min-replicas", min=1, help="min.insync.replicas.")] = None,
    within: Annotated[
        str, typer.Option("--within", help="Time limit for brokers to report the new values.")
    ] = f"{requirement_changes.SETTLED_S:g}s",
    lab_name: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the ISR requirements of TOPIC and wait until every broker that leads or replicates it reports them.

    The run's history gets the times of the request and of its effect: 'rackgate judge' derives from them the number
    of racks that each record must be in.
    """
    timeout_s = seconds(within, "--within")
    if min_racks is None and min_replicas is None:
        raise RackgateError("lab set: needs --min-racks or --min-replicas")
    lab = lab_processes.attach(lab_name)
    if lab.bare:
        raise RackgateError(f"lab {lab.name} is bare: it has no topics")
    history = History(lab.history_path)
    change = requirement_changes.change_topic(
        lab.admin, topic, history, min_replicas=min_replicas, min_racks=min_racks, timeout_s=timeout_s
    )
    if as_json:
        typer.echo(json.dumps({"history": str(history.path), **asdict(change)}, indent=1))
        return
    now, before = (requirement_changes.requirement_text(value) for value in (change.value, change.before))
    typer.echo(
        f"topic {topic}: {now} (before: {before}); brokers {', '.join(map(str, change.brokers))} reported it"
        f" {change.reported_s:.2f} s after the request"
        + (f"; fenced: {', '.join(map(str, change.fenced))}" if change.fenced else "")
    )
