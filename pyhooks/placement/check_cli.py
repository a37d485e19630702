"""``rackgate check``: effect of M and R on a cluster's placements, their enforcement by brokers, and replicas to move.

M is ``min.insync.replicas``, R is ``min.insync.racks``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyhooks.audit.journal import DEFAULT_TOPIC
from pyhooks.core.errors import RackgateError
from pyhooks.core.exit_status import end_command
from pyhooks.core.terminal import plain, reader_may_leave, report_console, write_report
from pyhooks.lab import lab_processes
from pyhooks.lab.cli import BootstrapOption, CommandConfigOption, LabOption

if TYPE_CHECKING:
    from pyhooks.placement.check_report import CheckReport
    from pyhooks.placement.cluster_query import ClusterObservation
    from pyhooks.placement.findings import Finding
    from pyhooks.placement.gate_forecast import CheckedTopic, ClusterSnapshot
    from pyhooks.placement.readiness import CommandWriter
    from pyhooks.placement.reassignment_plan import ReassignmentPlan

WIDTH = 100  # columns, where there is no terminal
AUDIT_MIN_S = 2.0  # least timeout of a request to the audit topic, even if the queries took all their time

EPILOG = (
    "Examples: rackgate check --bootstrap kafka1:9092 · rackgate check --topic 'orders*' --json ·"
    " rackgate check --expect-racks 2 · rackgate check --without 3 && restart 3 ·"
    " rackgate check --plan >plan.json && kafka-reassign-partitions.sh --bootstrap-server … --execute"
    " --reassignment-json-file plan.json. Without --bootstrap: the lab that runs. For settings of new topics: rackgate"
    " plan."
)
check_app = typer.Typer()


@check_app.command("check", epilog=EPILOG)
def check_command(
    bootstrap: BootstrapOption = "",
    command_config: CommandConfigOption = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only topics of this name, * and ? allowed; can be given more than once.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Show notices too, and count them as risks.")] = False,
    expect_racks: Annotated[
        int,
        typer.Option(
            help="Report topics that require fewer racks as at risk, such as those with an R lowered in an outage, and"
            " restorations that 'rackgate audit' finds missed.",
            min=1,
        ),
    ] = 1,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print only the reassignment that fixes placements which can't reach R."),
    ] = False,
    plan_to: Annotated[
        Path | None, typer.Option(help="Write that reassignment to a file, in addition to the report.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Report only whether these brokers or controllers may be restarted now, all at once.", metavar="ID,ID"
        ),
    ] = None,
    without_rack: Annotated[
        list[str] | None, typer.Option(help="The same for all brokers of a rack; can be combined.", metavar="RACK")
    ] = None,
    accept_unavoidable: Annotated[
        bool,
        typer.Option(
            "--accept-unavoidable",
            help="With --without: count as a notice what waiting does not change, such as a topic with one replica.",
        ),
    ] = False,
    audit_file: Annotated[
        Path | None, typer.Option(help="Audit file for --expect-racks (default: see rackgate audit --help).")
    ] = None,
    audit_topic: Annotated[
        str, typer.Option(help="Audit topic of rackgate lower, for --expect-racks.", metavar="TOPIC")
    ] = DEFAULT_TOPIC,
    lab: LabOption = None,
    timeout: Annotated[
        float,
        typer.Option(
            help="Timeout of all queries together, in seconds; what no broker has reported by then is unknown.",
            min=1.0,
            max=600.0,
        ),
    ] = 30.0,
) -> None:
    """Report the effect of min.insync.replicas (M) and min.insync.racks (R) on the placement of each topic.

    The report has, for each topic: whether it is writable now, and would be without a broker or a rack; whether one
    rack can acknowledge alone; whether the placement can reach R. It also has what each broker enforces by its own
    response. The command works on any Kafka from 3.9 on, with the overlay or without.

    A row shows M and R as configured, "=n" if the gate uses another number, and the source of the value. "observes n"
    is min.insync.racks.observe if it is set, which is never enforced.

    A broker that does not respond within --timeout, rejects a request, or reports an invalid number is unknown, and
    the rest is reported. The command ends at most 10 s after --timeout: starting Java and closing connections take
    time, too.

    Exit status: 0 nothing is at risk, 1 something is at risk or unknown, 2 the cluster could not be queried. With
    --plan: 0 the plan fixes all partitions that can't reach R, 1 some can't be fixed or are unknown.

    With --without or --without-rack: 0 the brokers may be restarted, since every partition accepts acks=all and the
    controllers have a majority without them; 1 they must not; 2 something is unknown, such as a broker that did not
    respond.
    """
    from pyhooks.placement.readiness import CommandWriter

    restart = bool(without or without_rack)
    if restart and (plan or plan_to or strict or expect_racks > 1):
        raise RackgateError(
            "--without reports restarts alone: leave out --plan, --plan-to, --strict and --expect-racks"
        )
    if accept_unavoidable and not restart:
        raise RackgateError("--accept-unavoidable belongs to --without and --without-rack")
    commands = CommandWriter(bootstrap, str(command_config or ""))
    if not bootstrap:
        bootstrap = lab_processes.attach(lab, otherwise="name the cluster with --bootstrap host:port").bootstrap
    if plan and (json_ or plan_to):
        raise RackgateError("--plan prints the plan alone: leave out --json, or use --plan-to FILE beside it")
    end = time.monotonic() + timeout
    observation = _query(bootstrap, command_config, timeout)
    topics = select_topics(observation.cluster.topics, topic or [])
    if restart:
        brokers = restarted_brokers(observation.cluster, without or [], without_rack or [])
        status = _report_restart(
            observation, topics, brokers, commands, accept_unavoidable=accept_unavoidable, as_json=json_
        )
        end_command(status)
    if plan or plan_to is not None:
        complete = write_plan(observation.cluster, frozenset(one.name for one in topics), plan_to)
        if plan:
            end_command(0 if complete else 1)
    # the audit topic requires one rack, so that it takes records in an outage
    expected = [topic for topic in topics if topic.name != audit_topic]
    left_s = end - time.monotonic()
    missed = _missed_restores(
        observation, topics, bootstrap, command_config, audit_file, audit_topic, expect_racks, left_s
    )
    report = make_report(observation, topics, strict=strict, expect_racks=expect_racks, expected=expected, more=missed)
    from pyhooks.placement import check_report

    write_report(
        WIDTH,
        lambda console: check_report.print_report(console, report, strict=strict),
        check_report.json_parts(report) if json_ else None,
    )
    end_command(1 if report.at_risk else 0)


def make_report(
    observation: ClusterObservation,
    topics: Sequence[CheckedTopic],
    *,
    strict: bool,
    expect_racks: int = 1,
    expected: Sequence[CheckedTopic] | None = None,
    more: Sequence[Finding] = (),
) -> CheckReport:
    """Collect all findings of a check, worst first.

    Args:
        observation: the whole cluster.
        topics: topics to report on.
        strict: notices count as risks.
        expect_racks: topics that require fewer racks are at risk.
        expected: topics of which that is expected; None for all of ``topics``.
        more: further findings.
    """
    from pyhooks.placement.check_report import CheckReport
    from pyhooks.placement.enforcement import enforcement_findings
    from pyhooks.placement.findings import (
        at_risk,
        below_expected_findings,
        cluster_findings,
        internal_topic_findings,
        topic_reports,
        worst_first,
    )

    reports = topic_reports(observation.cluster, topics)
    names = {topic.name for topic in topics}
    broker_findings = enforcement_findings(
        observation.enforcement, observation.cluster.brokers, observation.cluster.topics
    )
    findings = worst_first(
        [
            *(finding for finding in broker_findings if not finding.topic or finding.topic in names),
            *cluster_findings(observation.cluster, observation.enforcement.default),
            *(finding for topic in reports for finding in topic.findings),
            *below_expected_findings(topics if expected is None else expected, expect_racks),
            *more,
            *internal_topic_findings(observation.cluster, topics),
        ]
    )
    return CheckReport(observation, reports, findings, at_risk(findings, strict=strict))


def _missed_restores(
    observation: ClusterObservation,
    topics: Sequence[CheckedTopic],
    bootstrap: str,
    command_config: Path | None,
    audit_file: Path | None,
    audit_topic: str,
    expect_racks: int,
    left_s: float,
) -> tuple[Finding, ...]:
    """Return findings of the audit if ``--expect-racks`` asks for them, within about ``left_s`` seconds."""
    if expect_racks <= 1:
        return ()
    from pyhooks.audit.audit_file import AuditFile, default_file
    from pyhooks.audit.audit_record import now
    from pyhooks.audit.audit_topic import AuditTopic
    from pyhooks.audit.journal import AuditJournal
    from pyhooks.placement.cluster_query import client_config
    from pyhooks.placement.topic_observation import missed_restore_findings

    # asked for even if it is not listed: it may be hidden from this principal, and that is unknown
    topic = AuditTopic(bootstrap, client_config(command_config), audit_topic, timeout_s=max(AUDIT_MIN_S, left_s / 3))
    journal = AuditJournal(observation.cluster.cluster_id, AuditFile(audit_file or default_file()), topic)
    return missed_restore_findings(journal.read(), observation, topics, now())


@contextmanager
def query_status() -> Iterator[Callable[[str], None]]:
    """Show the current step of the queries on a terminal during the block; yields the function that changes it."""
    with report_console(WIDTH, stderr=True).status("starting Java") as status:
        yield status.update


def _query(bootstrap: str, command_config: Path | None, timeout_s: float) -> ClusterObservation:
    with query_status() as report_step:
        # imported late because starting the JVM takes a second
        from pyhooks.placement import cluster_query

        cluster_query.disable_client_log()
        return cluster_query.query_cluster(
            bootstrap, cluster_query.client_config(command_config), timeout_s=timeout_s, report_step=report_step
        )


def restarted_brokers(cluster: ClusterSnapshot, ids: Sequence[str], racks: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of ``--without`` and of the brokers in the racks of ``--without-rack``, sorted.

    Each of ``ids`` may list several, separated by commas.

    Raises:
        RackgateError: an id is no broker or controller of the cluster, or no broker is in a rack.
    """
    known = {*cluster.brokers, *(cluster.voters or ())}
    found: set[int] = set()
    for word in (word.strip() for text in ids for word in text.split(",")):
        if not word.isdecimal() or int(word) not in known:
            raise RackgateError(f"--without {word}: no such node, there are: {', '.join(map(str, sorted(known)))}")
        found.add(int(word))
    for rack in racks:
        inside = {broker.broker_id for broker in cluster.brokers.values() if broker.rack == rack and rack}
        if not inside:
            names = sorted({broker.rack for broker in cluster.brokers.values() if broker.rack})
            raise RackgateError(f"--without-rack {rack}: no broker is in it, there are: {', '.join(names) or 'none'}")
        found |= inside
    return tuple(sorted(found))


def _report_restart(
    observation: ClusterObservation,
    topics: Sequence[CheckedTopic],
    brokers: Sequence[int],
    commands: CommandWriter,
    *,
    accept_unavoidable: bool,
    as_json: bool,
) -> int:
    """Print whether brokers may be restarted, and return the exit status."""
    from pyhooks.placement import readiness_report
    from pyhooks.placement.findings import brokers_text
    from pyhooks.placement.readiness import readiness_status
    from pyhooks.placement.restart_judgement import restart_findings

    findings = restart_findings(
        observation.cluster,
        observation.enforcement,
        topics,
        brokers,
        commands,
        accept_unavoidable=accept_unavoidable,
    )
    subject = brokers_text(brokers)
    if not observation.cluster.brokers.keys() >= set(brokers):
        subject = subject.replace("broker", "node")  # some are controllers
    write_report(
        WIDTH,
        lambda console: readiness_report.print_restart(console, subject, findings),
        [readiness_report.restart_json(observation.cluster.cluster_id, brokers, findings)] if as_json else None,
    )
    return readiness_status(findings)


def select_topics(topics: Sequence[CheckedTopic], patterns: Sequence[str]) -> tuple[CheckedTopic, ...]:
    """Return the topics whose names match one of the patterns of ``--topic``; all without patterns.

    Raises:
        RackgateError: no topic matches a pattern.
    """
    # brackets have no special meaning in these patterns
    escaped_patterns = [pattern.replace("[", "[[]") for pattern in patterns]
    for pattern, escaped in zip(patterns, escaped_patterns, strict=True):
        if not any(fnmatchcase(topic.name, escaped) for topic in topics):
            raise RackgateError(
                f"--topic {pattern}: the cluster has no such topic, or this principal may not describe it"
            )
    return tuple(
        topic
        for topic in topics
        if not escaped_patterns or any(fnmatchcase(topic.name, escaped) for escaped in escaped_patterns)
    )


def write_plan(cluster: ClusterSnapshot, topics: frozenset[str], file: Path | None) -> bool:
    """Print or write the plan, summarize it on standard error, and return whether it is complete.

    Without ``file`` it is printed on standard output.

    Raises:
        RackgateError: the file can't be written.
    """
    from pyhooks.placement.reassignment_plan import plan_reassignment

    plan = plan_reassignment(cluster, topics)
    text = plan.to_json() + "\n"
    if file is None:
        with reader_may_leave():
            sys.stdout.write(text)
    else:
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise RackgateError(f"--plan-to {file}: {error.strerror}") from error
    _print_plan_summary(plan, file)
    return plan.complete


def _print_plan_summary(plan: ReassignmentPlan, file: Path | None) -> None:
    console = report_console(WIDTH, stderr=True)
    moved = sum(move.moved for move in plan.moves)
    if plan.moves:
        where = f", written to {file}" if file else ""
        console.print(plain(f"{len(plan.moves)} partitions to fix, {moved} replicas to move{where}"))
    else:
        console.print("nothing to move: no placement can be fixed, or none needs it")
    reasons: dict[tuple[str, str], list[str]] = {}
    for rejection in plan.rejections:
        reasons.setdefault(("not fixed", rejection.because), []).append(
            f"{rejection.partition.topic}-{rejection.partition.number}"
        )
    for topic in plan.unknown:
        reasons.setdefault(("unknown", topic.because), []).append(topic.topic)
    for (outcome, because), names in reasons.items():
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        console.print(plain(f"{outcome}: {', '.join(names[:5])}{more}: {because}"))
