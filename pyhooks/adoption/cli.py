"""``rackgate adopt``: enforce R (``min.insync.racks``) on topics step by step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pyhooks.audit.journal import DEFAULT_TOPIC
from pyhooks.core.errors import RackgateError
from pyhooks.core.exit_status import end_command
from pyhooks.core.terminal import confirm, plain, report_console
from pyhooks.lab import lab_processes
from pyhooks.lab.cli import BootstrapOption, CommandConfigOption, JsonOption, LabOption
from pyhooks.placement.check_cli import WIDTH, select_topics
from pyhooks.placement.preflight_cli import parse_controller_racks, preflight_words, query_facts, repeated

if TYPE_CHECKING:
    from pyhooks.adoption.plan import AdoptionStep
    from pyhooks.lab.mbeans import SocketSource
    from pyhooks.placement.preflight_judgement import PreflightFacts

STYLES = {"done": "green", "pending": "yellow", "not met": "bold red", "unknown": "magenta"}
FINDINGS_SHOWN = 30
ADOPT_EPILOG = (
    "Examples: rackgate adopt orders --dry-run · rackgate adopt orders --until observe, and days later rackgate adopt"
    " orders --jmx kafka1:9999 --jmx kafka2:9999 --jmx kafka3:9999 · rackgate adopt 'orders*' --racks 2 --yes --json."
    " Without --bootstrap: the lab that runs."
)
adopt_app = typer.Typer()


@adopt_app.command("adopt", epilog=ADOPT_EPILOG)
def adopt_command(
    topics: Annotated[list[str], typer.Argument(help="Topics, by name, * and ? allowed.", metavar="TOPIC...")],
    bootstrap: BootstrapOption = "",
    command_config: CommandConfigOption = None,
    racks: Annotated[int, typer.Option(help="The min.insync.racks (R) to be enforced.", min=2)] = 2,
    until: Annotated[
        Literal["preflight", "observe", "report", "enforce", "verify"],
        typer.Option(help="Stop after this step, such as observe, to observe for days."),
    ] = "verify",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands of the remaining steps, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before changes.")] = False,
    accept_report: Annotated[
        bool,
        typer.Option(
            "--accept-report",
            help="Go on though writes would have been rejected, or it is unknown whether. --yes does not.",
        ),
    ] = False,
    bootstrap_controller: Annotated[
        str, typer.Option(help="Controllers, host:port,host:port, for the preflight.", metavar="ADDR")
    ] = "",
    controller_rack: Annotated[
        list[str] | None,
        typer.Option(help="Rack of a controller that is not a broker, for the preflight.", metavar="ID=RACK"),
    ] = None,
    jmx: Annotated[
        list[str] | None,
        typer.Option(
            help="Unprotected JMX port of a broker, for preflight and report. Repeat for each; not needed for a lab.",
            metavar="HOST:PORT",
        ),
    ] = None,
    as_json: JsonOption = False,
    lab: LabOption = None,
    timeout: Annotated[
        float, typer.Option(help="Timeout of each query and change, in seconds.", min=1.0, max=600.0)
    ] = 30.0,
) -> None:
    """Enforce min.insync.racks (R) on topics, in steps that each can be repeated.

    preflight: check that nothing stands against it. observe: set min.insync.racks.observe, which rejects nothing.
    report: read from each broker what would have been rejected so far. enforce: enable the features, set R. verify:
    check what each broker reports. Internal topics that the topics' records depend on get the same R.

    Each step reads from the cluster whether it is already done, so the command can be repeated after any end. It asks
    before each step that changes something, reads each value before, and waits until every broker reports it after. It
    stops at the first check that is not met. The cluster does not know for how long was observed: all steps in one run
    enforce R right after they began to observe. So use --until observe first, and come back days later.

    Exit status: 0 all steps are done, up to --until; 1 stopped at a check that is not met, or nothing was agreed to; 2
    something is unknown, or the cluster could not be queried. With --dry-run steps with changes to make count as done.
    """
    from pyhooks.adoption.plan import AdoptionContext, exit_status
    from pyhooks.placement.preflight_judgement import PreflightGoal
    from pyhooks.placement.readiness import CommandWriter

    commands = CommandWriter(bootstrap, str(command_config or ""))
    given_racks = parse_controller_racks(controller_rack or [])
    words = preflight_words(racks, bootstrap_controller, controller_rack or [], jmx or [])
    sources: Sequence[SocketSource] = ()
    if not bootstrap:
        attached = lab_processes.attach(lab, otherwise="name the cluster with --bootstrap host:port")
        bootstrap = attached.bootstrap
        from pyhooks.lab.mbeans import lab_sources

        sources = lab_sources(attached)

    def query() -> PreflightFacts:
        return query_facts(bootstrap, command_config, bootstrap_controller, given_racks, jmx or [], timeout)

    facts = query()
    first = [facts]
    # the audit topic requires one rack, so that it takes records in an outage
    chosen = tuple(one for one in select_topics(facts.cluster.topics, topics) if one.name != DEFAULT_TOPIC)
    if not chosen:
        raise RackgateError(f"adopt: {DEFAULT_TOPIC} is the audit topic, which requires one rack")
    # starting the JVM takes a second
    from pyhooks.adoption.cluster import JavaCluster
    from pyhooks.adoption.run import Adoption
    from pyhooks.placement.cluster_query import client_config

    brokers = [source for source in sources if source.broker in facts.cluster.brokers]
    jmx_needed = [] if jmx or brokers else ["--jmx", "HOST:PORT"]
    context = AdoptionContext(
        PreflightGoal(racks, chosen, tuple(topics)),
        commands,
        commands.rackgate("preflight", *repeated("--topic", topics), *words),
        commands.rackgate("adopt", *words, *jmx_needed, "--until", "report", *topics),
        accept_report,
    )
    cluster = JavaCluster(
        bootstrap,
        client_config(command_config),
        lambda: first.pop() if first else query(),
        jmx=jmx or [],
        sources=brokers,
        timeout_s=timeout,
    )

    def agrees(step: AdoptionStep) -> bool:
        if as_json and yes:
            return step.name != "report"
        print_step(step, stderr=as_json)
        if step.name == "report":
            return not yes and confirm("enforce nevertheless?", "--accept-report")
        for command in step.commands:
            typer.echo(f"  {command}", err=as_json)
        return yes or confirm(f"{step.does}?", "--yes")

    def show(step: AdoptionStep) -> None:
        if not as_json:
            print_step(step)

    adoption = Adoption(cluster, context, until, agrees, show)
    steps = adoption.plan()[0] if dry_run else adoption.run()
    status = exit_status(steps, until, dry_run=dry_run)
    if as_json:
        names = [topic.name for topic in adoption.context.goal.topics]
        report = {
            "cluster": facts.cluster.cluster_id,
            "racks": racks,
            "topics": names,
            "until": until,
            "dry_run": dry_run,
            "status": status,
            "steps": [step_json(step) for step in steps],
        }
        typer.echo(json.dumps(report, indent=1))
    elif dry_run:
        for step in steps[: [step.name for step in steps].index(until) + 1]:
            print_step(step)
            if step.state != "done":
                for command in step.commands:
                    typer.echo(f"  {command}")
    end_command(status)


def step_json(step: AdoptionStep) -> dict[str, object]:
    """Return a step as JSON: ``{name, state, does, why, text, commands, findings}``."""
    return {name: value for name, value in vars(step).items() if name != "changes"}


def print_step(step: AdoptionStep, *, stderr: bool = False) -> None:
    """Print a step: what it does, why, its state and what was found."""
    console = report_console(WIDTH, stderr=stderr)
    console.print(plain(f"{step.name}: {step.does}", "bold"), soft_wrap=True)
    console.print(plain(f"  why: {step.why}", "dim"), soft_wrap=True)
    text = f": {step.text}" if step.text else ""
    console.print(plain(f"  {step.state}{text}", STYLES[step.state]), soft_wrap=True)
    for finding in step.findings[:FINDINGS_SHOWN]:
        console.print(plain(f"  - {finding}"), soft_wrap=True)
    if len(step.findings) > FINDINGS_SHOWN:
        console.print(plain(f"  - and {len(step.findings) - FINDINGS_SHOWN} more: see --json"), soft_wrap=True)
