"""Command ``rackgate``: loads the package of a verb on use; maps errors to a message and an exit status."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from pyhooks import __version__
from pyhooks.core import exit_status, paths
from pyhooks.core.errors import RackgateError


@dataclass(frozen=True)
class Verb:
    """Top-level subcommand.

    Attributes:
        summary: line in ``rackgate --help``, shown without importing the package.
        apps: ``module:name`` of the verb's app, then of the apps that add commands to it.
    """

    summary: str
    apps: tuple[str, ...]


VERBS = {
    "build": Verb("Build the patched Kafka: published jars and small overlay jars.", ("pyhooks.verify.cli:build_app",)),
    "check": Verb(
        "Report what M and R mean for the placements of a cluster.", ("pyhooks.placement.check_cli:check_app",)
    ),
    "preflight": Verb(
        "Report what stands against enabling min.insync.racks on a cluster.",
        ("pyhooks.placement.preflight_cli:preflight_app",),
    ),
    "adopt": Verb("Enforce min.insync.racks on topics step by step.", ("pyhooks.adoption.cli:adopt_app",)),
    "lower": Verb("Lower R of topics in an outage, on record, and restore it.", ("pyhooks.outage.cli:lower_app",)),
    "restore": Verb("Restore R of topics that were lowered.", ("pyhooks.outage.cli:restore_app",)),
    "audit": Verb("Print who lowered R, and what was not restored.", ("pyhooks.outage.cli:audit_app",)),
    "watch": Verb("Show racks, brokers and partitions live.", ("pyhooks.watch.cli:watch_app",)),
    "monitoring": Verb("Export files for Prometheus and Grafana.", ("pyhooks.monitoring.cli:monitoring_app",)),
    "judge": Verb("Run the checkers on a stored history.", ("pyhooks.checkers.cli:judge_app",)),
    "plan": Verb("Compare RF, M, R and placements for new topics.", ("pyhooks.placement.model_cli:plan_app",)),
    "formal": Verb("Check the formal model and draw its counter-examples.", ("pyhooks.formal.cli:formal_app",)),
    "evidence": Verb(
        "Run the commands behind the KIP's claims and judge them.", ("pyhooks.evidence.cli:evidence_app",)
    ),
    "patch": Verb("Edit, check and test the patch series.", ("pyhooks.verify.cli:patch_app",)),
    "lab": Verb(
        "Run clusters in namespaces of this machine.", ("pyhooks.lab.cli:lab_app", "pyhooks.workload.cli:set_app")
    ),
    "rack": Verb("Inject and heal a fault of a rack in a lab.", ("pyhooks.faults.cli:rack_app",)),
    "broker": Verb("Inject and heal a fault of a broker in a lab.", ("pyhooks.faults.cli:broker_app",)),
    "bench": Verb("Measure produce latency and outages.", ("bench.cli:bench_app",)),
    "system": Verb("Run the system tests.", ("ducktape_tests.cli:system_app",)),
    "kafkatest": Verb(
        "Run Kafka's own system tests on stock Kafka and with the overlay.",
        ("ducktape_tests.kafkatest.cli:kafkatest_app",),
    ),
    "model": Verb(
        "Compute and simulate availability and losses of a placement.",
        (
            "pyhooks.placement.model_cli:model_app",
            "pyhooks.simulation.cli:simulate_app",
        ),
    ),
}


@cache
def _load(verb: str) -> Any:
    """Import and return the group or command of a verb."""
    first, *more = (
        getattr(import_module(module), name) for module, name in (app.split(":") for app in VERBS[verb].apps)
    )
    for app in more:
        first.add_typer(app)
    alone = typer.Typer()
    alone.add_typer(first)
    command = typer.main.get_group(alone).commands[verb]
    _unwrap_help(command)
    return command


def _unwrap_help(command: Any) -> None:
    """Join the lines of paragraphs in help texts, since typer keeps the line breaks of docstrings; not of examples."""
    command.help = re.sub(r"(?<!\n)\n(?=\S)", " ", inspect.cleandoc(command.help or ""))
    for inner in getattr(command, "commands", {}).values():
        _unwrap_help(inner)


class Verbs(TyperGroup):
    """Command group that imports a verb's package only when the verb is used; the help needs none of them."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs in help order."""
        return [*VERBS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the group or command of a verb, or None."""
        if cmd_name not in VERBS:
            return super().get_command(ctx, cmd_name)
        return TyperCommand(cmd_name, help=VERBS[cmd_name].summary) if self._listing else _load(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the summaries of ``VERBS``."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="min.insync.racks for Apache Kafka: build it, run it in a lab, break it, measure it.",
    epilog="Examples: rackgate build · rackgate lab run --topology az3-outside -- bash · rackgate bench run ·"
    " rackgate --debug build (tracebacks) · rackgate --kafka VERSION build",
)


@app.callback()
def _root(
    kafka: Annotated[
        str,
        typer.Option("--kafka", metavar="VERSION", envvar=paths.KAFKA_VARIABLE, help="Version of Kafka to work on."),
    ] = paths.DEFAULT_KAFKA,
) -> None:
    """Choose the version of Kafka, for this process and its children."""
    if kafka not in (known := paths.patched_versions()):
        raise RackgateError(f"no series for Kafka {kafka}: patch/ has {', '.join(known)}")
    os.environ[paths.KAFKA_VARIABLE] = kafka


@app.command("version")
def version_command() -> None:
    """Print the version, and the revision of the series with the version of Kafka that it is for."""
    from pyhooks.patchset import series

    kafka = paths.kafka_version()
    Console().print(f"kafka-rackgate {__version__}, series {series.revision()} for Kafka {kafka}", highlight=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, by default that of this process; ``--debug`` before ``--`` shows tracebacks."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--debug" in own:
        arguments.remove("--debug")
        os.environ[exit_status.DEBUG_VARIABLE] = "1"
    try:
        app(arguments, prog_name="rackgate")
    except KeyboardInterrupt:
        exit_status.end_process(130)
    except Exception as error:  # noqa: BLE001 - else Python ends with 1, which says that something was found wrong
        exit_status.end_process(exit_status.report_error(error, Console(stderr=True, soft_wrap=True, highlight=False)))


if __name__ == "__main__":
    main()
