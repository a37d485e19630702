"""``rackgate preflight``: whether min.insync.racks may be enabled on a cluster, and what stands against it.

M is ``min.insync.replicas``, R is ``min.insync.racks``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyhooks.audit.journal import DEFAULT_TOPIC
from pyhooks.core.errors import RackgateError
from pyhooks.core.exit_status import end_command
from pyhooks.core.terminal import write_report
from pyhooks.lab import lab_processes
from pyhooks.lab.cli import BootstrapOption, CommandConfigOption, LabOption
from pyhooks.placement.check_cli import WIDTH, query_status, select_topics, write_plan

if TYPE_CHECKING:
    from pyhooks.placement.preflight_judgement import PreflightFacts

PREFLIGHT_EPILOG = (
    "Examples: rackgate preflight --bootstrap kafka1:9092 --topic orders · rackgate preflight --bootstrap kafka1:9092"
    " --bootstrap-controller controller1:9093 --controller-rack 101=a --controller-rack 102=b --controller-rack 103=c"
    " --jmx kafka1:9999 · rackgate preflight --racks 3 --json · rackgate preflight --plan-to plan.json. Without"
    " --bootstrap: the lab that runs."
)
preflight_app = typer.Typer()


@preflight_app.command("preflight", epilog=PREFLIGHT_EPILOG)
def preflight_command(
    bootstrap: BootstrapOption = "",
    command_config: CommandConfigOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            help="Only for topics of this name, * and ? allowed; can be given more than once. Without it: for all, with"
            " R as the cluster's default."
        ),
    ] = None,
    racks: Annotated[int, typer.Option(help="The min.insync.racks (R) to be enabled.", min=2)] = 2,
    bootstrap_controller: Annotated[
        str, typer.Option(help="Controllers, host:port,host:port: ask them, too (Kafka 3.7 and later).", metavar="ADDR")
    ] = "",
    controller_rack: Annotated[
        list[str] | None,
        typer.Option(
            help="Rack of a controller that is not a broker; Kafka does not know it. Repeat for each.",
            metavar="ID=RACK",
        ),
    ] = None,
    jmx: Annotated[
        list[str] | None,
        typer.Option(
            help="Unprotected JMX port of a broker: Kafka's version, clients' Produce versions. Repeat for each.",
            metavar="HOST:PORT",
        ),
    ] = None,
    plan_to: Annotated[
        Path | None, typer.Option(help="Write the reassignment that brings placements into R racks to a file.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
    lab: LabOption = None,
    timeout: Annotated[
        float,
        typer.Option(
            help="Timeout of each of the queries of brokers, controllers and JMX, in seconds.", min=1.0, max=600.0
        ),
    ] = 30.0,
) -> None:
    """Report whether min.insync.racks may be enabled, and each obstacle with the commands that remove it.

    It asks every broker, and every controller with --bootstrap-controller: Kafka's version and the overlay, feature
    levels and what enabling eligible.leader.replicas.version changes, racks, placements, replicas out of sync, settings
    that stand only in properties, internal topics, unclean elections. It ends with the commands to run next. It changes
    nothing, and works on any Kafka from 3.9 on, with the overlay or without.

    Controllers, their racks and the Produce versions of clients need --bootstrap-controller, --controller-rack and
    --jmx. Without these options a notice says so, which does not change the exit status.

    Exit status: 0 ready, 1 an obstacle, 2 no obstacle found but something is unknown, such as a broker that did not
    respond; also 2 if the cluster could not be queried.
    """
    from pyhooks.placement import preflight_judgement, readiness_report
    from pyhooks.placement.readiness import CommandWriter, readiness_status

    # without --bootstrap, commands of the lab know the addresses
    commands = CommandWriter(bootstrap, str(command_config or ""))
    given_racks = parse_controller_racks(controller_rack or [])
    words = preflight_words(racks, bootstrap_controller, controller_rack or [], jmx or [])
    again = commands.rackgate("preflight", *repeated("--topic", topic or []), *words)
    if not bootstrap:
        bootstrap = lab_processes.attach(lab, otherwise="name the cluster with --bootstrap host:port").bootstrap
    facts = query_facts(bootstrap, command_config, bootstrap_controller, given_racks, jmx or [], timeout)
    topics = select_topics(facts.cluster.topics, topic or [])
    # the audit topic requires one rack, so that it takes records in an outage
    topics = tuple(one for one in topics if one.name != DEFAULT_TOPIC)
    goal = preflight_judgement.PreflightGoal(racks, topics, tuple(topic or ()))
    findings = preflight_judgement.preflight_findings(facts, goal, commands)
    following = preflight_judgement.next_commands(facts, goal, findings, commands, again)
    if plan_to is not None:
        names = frozenset(one.name for one in goal.concerned(facts.cluster))
        write_plan(preflight_judgement.planned_cluster(facts, goal), names, plan_to)
    write_report(
        WIDTH,
        lambda console: readiness_report.print_preflight(console, facts, goal, findings, following),
        [readiness_report.preflight_json(facts, goal, findings, following)] if json_ else None,
    )
    end_command(readiness_status(findings))


def repeated(option: str, values: Sequence[str]) -> list[str]:
    """Return the words of an option that is given once for each value."""
    return [word for value in values for word in (option, value)]


def preflight_words(
    racks: int, bootstrap_controller: str, controller_racks: Sequence[str], jmx: Sequence[str]
) -> list[str]:
    """Return the options of a preflight but for those of its cluster and topics."""
    return [
        *repeated("--racks", [str(racks)]),
        *repeated("--bootstrap-controller", [bootstrap_controller] if bootstrap_controller else []),
        *repeated("--controller-rack", controller_racks),
        *repeated("--jmx", jmx),
    ]


def parse_controller_racks(texts: Sequence[str]) -> dict[int, str]:
    """Return racks by node id from texts ``ID=RACK``.

    Raises:
        RackgateError: a text has another form.
    """
    racks = {}
    for text in texts:
        node, _, rack = text.partition("=")
        if not node.isdecimal() or not rack.strip():
            raise RackgateError(f"--controller-rack {text}: expected ID=RACK, such as 101=a")
        racks[int(node)] = rack
    return racks


def query_facts(
    bootstrap: str,
    command_config: Path | None,
    bootstrap_controller: str,
    controller_racks: Mapping[int, str],
    jmx: Sequence[str],
    timeout_s: float,
) -> PreflightFacts:
    """Query brokers, and controllers and JMX ports if they are given.

    ``timeout_s`` is the timeout of each of the queries.

    Raises:
        RackgateError: the cluster can't be queried, or there is no such controller.
    """
    with query_status() as report_step:
        # imported late because starting the JVM takes a second
        from pyhooks.placement import cluster_query, preflight_query
        from pyhooks.placement.preflight_judgement import JmxReport, PreflightFacts

        cluster_query.disable_client_log()
        config = cluster_query.client_config(command_config)
        observation = cluster_query.query_cluster(
            bootstrap, config, timeout_s=timeout_s, report_step=report_step, unclean=True
        )
        voters = observation.cluster.voters
        if voters is not None and (strangers := sorted(set(controller_racks) - set(voters))):
            raise RackgateError(
                f"--controller-rack {strangers[0]}={controller_racks[strangers[0]]}: no such controller, there are:"
                f" {', '.join(map(str, voters))}"
            )
        controllers = None
        if bootstrap_controller:
            report_step("querying the controllers")
            controllers = preflight_query.query_controllers(bootstrap_controller, config, timeout_s=timeout_s)
        reports: dict[int, JmxReport] | None = None
        unanswered: dict[str, str] = {}
        if jmx:
            report_step("querying JMX")
            reports, unanswered = preflight_query.query_ports(jmx, preflight_query.read_versions, timeout_s=timeout_s)
    return PreflightFacts(
        observation.cluster, observation.enforcement, controllers, controller_racks, reports, unanswered
    )
