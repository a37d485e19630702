"""``rackgate check``: effect of M and R on a cluster's placements, their enforcement by brokers, and replicas to move.

M is ``min.insync.replicas``, R is ``min.insync.racks``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pyhooks.core.errors import RackgateError
from pyhooks.core.terminal import plain, reader_may_leave
from pyhooks.lab import running_labs
from pyhooks.lab.cli import LabOption
from pyhooks.lab.lab import Lab

if TYPE_CHECKING:
    from rich.status import Status

    from pyhooks.placement.check_report import CheckReport
    from pyhooks.placement.cluster_query import ClusterObservation
    from pyhooks.placement.gate_forecast import CheckedTopic
    from pyhooks.placement.reassignment_plan import ReassignmentPlan

WIDTH = 100  # columns, where there is no terminal

EPILOG = (
    "Examples: rackgate check --bootstrap kafka1:9092 · rackgate check --topic 'orders*' --json ·"
    " rackgate check --expect-racks 2 ·"
    " rackgate check --plan >plan.json && kafka-reassign-partitions.sh --bootstrap-server … --execute"
    " --reassignment-json-file plan.json. Without --bootstrap: the lab that runs. For settings of new topics: rackgate"
    " plan."
)
check_app = typer.Typer()


@check_app.command("check", epilog=EPILOG)
def check_command(
    bootstrap: Annotated[
        str,
        typer.Option(envvar="RACKGATE_BOOTSTRAP", help="Brokers to ask first, host:port,host:port.", metavar="ADDR"),
    ] = "",
    command_config: Annotated[
        Path | None,
        typer.Option(help="Properties of Kafka's Admin client, as for Kafka's own tools: security and so on."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only topics of this name, * and ? allowed; can be given more than once.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="All that was found, for programs.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Show notices too, and count them as risks.")] = False,
    expect_racks: Annotated[
        int,
        typer.Option(help="Topics that require fewer racks than this are at risk: R lowered and left so.", min=1),
    ] = 1,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print the reassignment that mends placements which can't reach R, and no table."),
    ] = False,
    plan_to: Annotated[Path | None, typer.Option(help="Write that reassignment to a file, beside all else.")] = None,
    lab: LabOption = None,
    timeout: Annotated[
        float,
        typer.Option(
            help="Seconds for all questions together; what no broker has answered by then is unknown.",
            min=1.0,
            max=600.0,
        ),
    ] = 30.0,
) -> None:
    """Tells for each topic what min.insync.replicas (M) and min.insync.racks (R) mean where its replicas are.

    Is it writable now; would it still be without a broker, without a rack; can one rack alone acknowledge; can R be
    reached. And who enforces it: each broker is asked itself. Works on any Kafka, with the overlay or without.

    A row shows M and R as configured, "=n" where the gate counts another number, and where the value is from. "observes
    n" is min.insync.racks.observe if it is set, which is never enforced.

    A broker that does not answer within --timeout, refuses, or reports an invalid number is unknown, and the rest is
    reported. The command ends at most 10 s after --timeout: starting Java and closing connections take time, too.

    Exit status: 0 nothing is at risk, 1 something is or is unknown, 2 the cluster could not be asked. With --plan: 0
    all that can't reach R is in the plan (or nothing is), 1 some of it can't be mended or is unknown.
    """
    if not bootstrap:
        if not running_labs.inside(lab):
            raise typer.Exit(running_labs.enter_again(lab, otherwise="say which cluster with --bootstrap host:port"))
        bootstrap = Lab.attach().bootstrap
    if plan and (json_ or plan_to):
        raise RackgateError("--plan prints the plan alone: leave out --json, or use --plan-to FILE beside it")
    seen = _look(bootstrap, command_config, timeout)
    chosen = _chosen(seen.cluster.topics, topic or [])
    if plan or plan_to is not None:
        complete = _plan(seen, chosen, plan_to)
        if plan:
            raise typer.Exit(0 if complete else 1)
    report = make_report(seen, chosen, strict=strict, expect_racks=expect_racks)
    from pyhooks.placement import check_report

    with reader_may_leave():
        if json_:
            sys.stdout.writelines(check_report.json_parts(report))
            sys.stdout.write("\n")
        else:
            # rich would end the process with its own exit status if the reader closed the pipe
            console = _console(stderr=False)
            with console.capture() as printed:
                check_report.print_report(console, report, strict=strict)
            sys.stdout.write(printed.get())
    raise typer.Exit(1 if report.at_risk else 0)


def make_report(
    seen: ClusterObservation, topics: Sequence[CheckedTopic], *, strict: bool, expect_racks: int = 1
) -> CheckReport:
    """Collect all findings of a check, worst first.

    Args:
        seen: the whole cluster.
        topics: topics to report on.
        strict: notices count as risks.
        expect_racks: topics that require fewer racks are at risk.
    """
    from pyhooks.placement.check_report import CheckReport
    from pyhooks.placement.enforcement import enforcement_findings
    from pyhooks.placement.findings import (
        at_risk,
        below_expected,
        cluster_findings,
        topic_reports,
        weaker_internal_topics,
        worst_first,
    )

    reports = topic_reports(seen.cluster, topics)
    names = {one.name for one in topics}
    about_brokers = enforcement_findings(seen.enforcement, seen.cluster.brokers, seen.cluster.topics)
    found = worst_first(
        [
            *(finding for finding in about_brokers if not finding.topic or finding.topic in names),
            *cluster_findings(seen.cluster, seen.enforcement.default),
            *(finding for one in reports for finding in one.findings),
            *below_expected(topics, expect_racks),
            *weaker_internal_topics(seen.cluster, topics),
        ]
    )
    return CheckReport(seen, reports, found, at_risk(found, strict=strict))


def _look(bootstrap: str, command_config: Path | None, timeout_s: float) -> ClusterObservation:
    with _progress() as status:
        # imported late because starting the JVM takes a second
        from pyhooks.placement import cluster_query

        cluster_query.disable_client_log()
        return cluster_query.query_cluster(
            bootstrap, cluster_query.client_config(command_config), timeout_s=timeout_s, say=status.update
        )


@contextmanager
def _progress() -> Iterator[Status]:
    """Show the current step on a terminal; print nothing if standard error is no terminal."""
    console = _console(stderr=True)
    with console.status("starting Java") as status:
        yield status


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=WIDTH)


def _chosen(topics: Sequence[CheckedTopic], patterns: Sequence[str]) -> tuple[CheckedTopic, ...]:
    # brackets have no special meaning in these patterns
    literal = [pattern.replace("[", "[[]") for pattern in patterns]
    for pattern, own in zip(patterns, literal, strict=True):
        if not any(fnmatchcase(one.name, own) for one in topics):
            raise RackgateError(
                f"--topic {pattern}: the cluster has no such topic, or does not show it to this principal"
            )
    return tuple(one for one in topics if not literal or any(fnmatchcase(one.name, own) for own in literal))


def _plan(seen: ClusterObservation, topics: Sequence[CheckedTopic], file: Path | None) -> bool:
    """Print or write the plan, summarize it on standard error, and return whether it is complete."""
    from pyhooks.placement.reassignment_plan import plan_reassignment

    made = plan_reassignment(seen.cluster, frozenset(one.name for one in topics))
    text = made.to_json() + "\n"
    if file is None:
        with reader_may_leave():
            sys.stdout.write(text)
    else:
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise RackgateError(f"--plan-to {file}: {error.strerror}") from error
    _tell(made, file)
    return made.complete


def _tell(made: ReassignmentPlan, file: Path | None) -> None:
    console = _console(stderr=True)
    moved = sum(move.moved for move in made.moves)
    if made.moves:
        where = f", written to {file}" if file else ""
        console.print(plain(f"{len(made.moves)} partitions to mend, {moved} replicas to move{where}"))
    else:
        console.print("nothing to move: no placement can be mended, or none needs it")
    reasons: dict[tuple[str, str], list[str]] = {}
    for refusal in made.refusals:
        reasons.setdefault(("not mended", refusal.because), []).append(
            f"{refusal.partition.topic}-{refusal.partition.number}"
        )
    for one in made.unknown:
        reasons.setdefault(("unknown", one.because), []).append(one.topic)
    for (what, because), names in reasons.items():
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        console.print(plain(f"{what}: {', '.join(names[:5])}{more}: {because}"))
