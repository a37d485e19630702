"""Command ``rackgate monitoring``: export the files for Prometheus and Grafana."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pyhooks.core.terminal import visible
from pyhooks.monitoring.export import export_files

monitoring_app = typer.Typer(name="monitoring", no_args_is_help=True, help="Files for Prometheus and Grafana.")


@monitoring_app.callback()
def _root() -> None:
    """Files for Prometheus and Grafana."""


@monitoring_app.command(
    "export",
    epilog="Examples: rackgate monitoring export monitoring · rackgate monitoring export /etc/prometheus/kafka --json",
)
def export_command(
    folder: Annotated[Path, typer.Argument(help="Folder for the files; created if it is missing.", metavar="DIR")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write rules of the JMX exporter, alert rules, a scrape configuration and a dashboard to DIR.

    Files of an earlier export are replaced unless they were changed. Any other file of the same name is an error, and
    nothing is written. kip/monitoring.md describes what to install.
    """
    written = export_files(folder)
    if as_json:
        rows = [{"path": str(folder / file.name), "purpose": file.purpose} for file in written]
        typer.echo(json.dumps({"files": rows}, indent=1))
        return
    for file in written:
        typer.echo(visible(f"{folder / file.name}: {file.purpose}"))
