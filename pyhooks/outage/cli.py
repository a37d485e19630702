"""``rackgate lower``, ``restore`` and ``audit``: lower R in an outage on record, and restore it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyhooks.audit.journal import DEFAULT_TOPIC
from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError
from pyhooks.core.exit_status import end_command
from pyhooks.core.terminal import confirm, plain, report_console, write_report
from pyhooks.lab import lab_processes
from pyhooks.lab.cli import BootstrapOption, CommandConfigOption, JsonOption, LabOption

if TYPE_CHECKING:
    from rich.status import Status

    from pyhooks.audit.audit_record import AuditRecord
    from pyhooks.audit.journal import AuditJournal, ReadRecords
    from pyhooks.outage.cluster_access import OutageCluster
    from pyhooks.outage.steps import Operator, TopicOutcome
    from pyhooks.placement.topic_observation import ObservedTopic

WIDTH = 100  # columns, where there is no terminal
LONGEST_S = 7 * 24 * 3600.0
POLL_S = 5.0

AuditFileOption = Annotated[
    Path | None,
    typer.Option(
        help="Audit file of this user on this host, which no other user may write (default: rackgate/audit.jsonl in"
        " $XDG_STATE_HOME or ~/.local/state)."
    ),
]
AuditTopicOption = Annotated[str, typer.Option(help="Audit topic of the cluster.", metavar="TOPIC")]
TimeoutOption = Annotated[float, typer.Option(help="Timeout of each query and change, in seconds.", min=1.0, max=600.0)]

LOWER_EPILOG = (
    "Examples: rackgate lower orders --to 1 --for 30m --reason 'rack b lost power' · rackgate lower orders invoices"
    " --to 1 --until-healed --reason 'rack b lost power' · rackgate lower orders --to 1 --for 2h --reason TICKET-7"
    " --yes --no-wait, and 'rackgate restore --due' in a cron job."
)
RESTORE_EPILOG = (
    "Examples: rackgate restore · rackgate restore orders --until-healed · */5 * * * * rackgate restore --due"
    " --bootstrap kafka1:9092 · rackgate restore orders --dismiss 'stays at 1, see TICKET-8'."
)
AUDIT_EPILOG = "Examples: rackgate audit · rackgate audit orders --history · rackgate audit --json."

lower_app = typer.Typer()
restore_app = typer.Typer()
audit_app = typer.Typer()


@dataclass(frozen=True)
class _Session:
    """Cluster and audit of a command."""

    bootstrap: str
    cluster: OutageCluster
    journal: AuditJournal
    operator: Operator
    status: Status  # shows the current step on a terminal within ``with``


@lower_app.command("lower", epilog=LOWER_EPILOG)
def lower_command(
    topics: Annotated[list[str], typer.Argument(help="Topics, by name.", metavar="TOPIC...")],
    to: Annotated[int, typer.Option("--to", min=1, help="New value of min.insync.racks.")],
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit.")],
    for_: Annotated[
        str | None, typer.Option("--for", help="Restore after this time, such as 30m or 2h; at most 168h.")
    ] = None,
    until_healed: Annotated[
        bool, typer.Option("--until-healed", help="Restore as soon as racks are back, even before --for is over.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    accept_file_only: Annotated[
        bool,
        typer.Option(
            "--accept-file-only", help="Go on if the audit topic can't be used. Other hosts then do not know of it."
        ),
    ] = False,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait", help="End when R is lowered. Nothing restores it until 'rackgate restore' is run, as by cron."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the outcomes as JSON at the end, all else on standard error.")
    ] = False,
    bootstrap: BootstrapOption = "",
    command_config: CommandConfigOption = None,
    audit_file: AuditFileOption = None,
    audit_topic: AuditTopicOption = DEFAULT_TOPIC,
    lab: LabOption = None,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Lower min.insync.racks (R) of topics for a while, on record, and restore it.

    First shows what is given up, and asks. Then records who lowers what, when, why and until when, in the audit file
    and in the audit topic, lowers R and verifies it. The command then stays, and restores R when its time is up or
    racks are back, but only when each partition's in-sync replicas are M replicas in R racks; until then it reports
    what it waits for. Whatever ends it before, 'rackgate audit' and 'rackgate check --expect-racks' report the topics,
    and 'rackgate restore' restores them. A topic without a value of its own gets its value removed again.

    Topics are lowered one after another, each in some seconds. One that is lowered already, by anyone, is rejected. The
    cluster's default is not lowered by this command.

    Exit status: 0 lowered, and restored unless --no-wait; 1 rejected, or another client changed the value; 2 not known
    whether it was changed, or the cluster could not be queried; 130 interrupted: topics stay lowered.
    """
    if for_ is None and not until_healed:
        raise RackgateError("lower: needs --for or --until-healed, so that R is restored")
    if not reason.strip():
        raise RackgateError("lower: --reason must not be empty")
    duration = None if for_ is None else timedelta(seconds=seconds(for_, "--for", max_s=LONGEST_S))
    topics, reason = list(dict.fromkeys(topics)), reason.strip()
    from pyhooks.audit.audit_record import Terms, author, now
    from pyhooks.outage.lowering_cost import cost_lines, lowering_cost
    from pyhooks.outage.steps import exit_status

    with _session(bootstrap, command_config, audit_file, audit_topic, lab, timeout) as session:
        with session.status:
            observed = session.cluster.observe(topics)
        before = {topic: _value_before(topic, observed.get(topic), to) for topic in topics}
        console = report_console(WIDTH, stderr=as_json)
        with session.status:
            records = session.cluster.count_records([observed[topic] for topic in topics])
        # the address may be that of an environment variable or of a lab
        console.print(plain(f"cluster {session.journal.cluster} at {session.bootstrap}"), soft_wrap=True)
        for topic, (_, old_racks) in before.items():
            for line in cost_lines(lowering_cost(observed[topic], old_racks, to, records)):
                console.print(plain(line), soft_wrap=True)
        console.print(
            "if the racks that are left are destroyed before the others are back in sync, all of that is lost",
            soft_wrap=True,
        )
        if not yes and not confirm("lower it?", "--yes"):
            raise RackgateError("nothing was changed", exit_status=1)

        def accepts(error: str) -> bool:
            console.print(plain(f"the audit topic can't be used: {error}"), soft_wrap=True)
            return accept_file_only or confirm("go on with the audit file of this host alone?", "--accept-file-only")

        lowering, began, by = uuid.uuid4().hex[:12], now(), author()
        until = None if duration is None else began + duration
        terms = [
            Terms(
                lowering=lowering,
                cluster=session.journal.cluster,
                topic=topic,
                reason=reason,
                lowered_by=by,
                began=began,
                old=own,
                old_racks=old_racks,
                new=to,
                until=until,
                until_healed=until_healed,
            )
            for topic, (own, old_racks) in before.items()
        ]
        try:
            outcomes = session.operator.lower(terms, accepts)
            _print_outcomes(outcomes, stderr=as_json)
            lowered = [outcome.topic for outcome in outcomes if outcome.result == "lowered"]
            restored: tuple[TopicOutcome, ...] = ()
            if lowered and not no_wait:
                restored = _wait_and_restore(
                    session.operator, lowered, lowering=lowering, due_only=True, deadline=None, stderr=as_json
                )
            if as_json:
                _print_outcomes((*outcomes, *restored), as_json=True)
        except KeyboardInterrupt:
            _print_error_line(f"interrupted; {' '.join(topics)}: see 'rackgate audit'; to restore: rackgate restore")
            raise
        end_command(max(exit_status(outcomes), exit_status(restored)))


def _value_before(topic: str, observed: ObservedTopic | None, to: int) -> tuple[int | None, int]:
    """Return a topic's own R and the R in force.

    Raises:
        RackgateError: it can't be lowered.
    """
    from pyhooks.placement.topic_observation import NO_TOPIC, describe

    if observed is None:
        raise RackgateError(f"topic {topic}: {NO_TOPIC}")
    if observed.unknown:
        raise RackgateError(f"topic {topic}: {observed.unknown}")
    if len(observed.own_values) != 1:
        raise RackgateError(f"topic {topic}: brokers differ: min.insync.racks {describe(observed)}; try again")
    (own,) = observed.own_values
    racks = observed.in_force(own)
    if racks <= to:
        raise RackgateError(
            f"topic {topic}: min.insync.racks is {racks}, so --to {to} does not lower it; see 'rackgate audit'"
            " if it was lowered before",
            exit_status=1,
        )
    if offline := observed.offline():
        raise RackgateError(
            f"topic {topic}: partition {', '.join(map(str, offline))} has no leader; with a lower min.insync.racks the"
            " controller would forget all but one of the replicas that could lead: see 'A partition that waits for a"
            " replica' in kip/operations.md",
            exit_status=1,
        )
    return own, racks


@restore_app.command("restore", epilog=RESTORE_EPILOG)
def restore_command(
    topics: Annotated[list[str] | None, typer.Argument(help="Topics, by name; all if there is none.")] = None,
    due: Annotated[
        bool,
        typer.Option(
            "--due", help="Only topics whose time is up, or that have --until-healed and whose racks are back."
        ),
    ] = False,
    until_healed: Annotated[bool, typer.Option("--until-healed", help="Wait until they can be restored.")] = False,
    within: Annotated[
        str | None, typer.Option("--within", help="With --until-healed: at most so long, such as 10m.")
    ] = None,
    dismiss: Annotated[
        str | None, typer.Option("--dismiss", help="Close the topics' records without a change, for this reason.")
    ] = None,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = "",
    command_config: CommandConfigOption = None,
    audit_file: AuditFileOption = None,
    audit_topic: AuditTopicOption = DEFAULT_TOPIC,
    lab: LabOption = None,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Restore min.insync.racks of topics that 'rackgate lower' has lowered, also by a command that was killed.

    Without --due also before their time is up, whoever lowered them. A topic is restored only while it still has the
    value that was set, and when each partition has a leader and M in-sync replicas in R racks. Otherwise the command
    reports what it waits for, or that another client changed the value. Any user and host that can read the audit topic
    can run it, also at the same time as others.

    Exit status: 0 restored, or nothing is to be restored now; 1 some can't be restored yet, or another client changed
    the value; 2 something is not known, whatever else is, or the cluster or its audit could not be read.
    """
    from pyhooks.outage.steps import exit_status

    if dismiss is not None and (not topics or not dismiss.strip() or due or until_healed):
        raise RackgateError("restore: --dismiss needs topics and a reason, and no --due or --until-healed")
    if within is not None and not until_healed:
        raise RackgateError("restore: --within is for --until-healed")
    deadline = None if within is None else time.monotonic() + seconds(within, "--within", max_s=LONGEST_S)
    with _session(bootstrap, command_config, audit_file, audit_topic, lab, timeout) as session:
        contents = session.journal.read()
        if topics and (missing := [topic for topic in topics if not contents.open_lowerings(topic)]):
            unknown = f"; {contents.unknown[0]}" if contents.unknown else ""
            raise RackgateError(
                f"topic {missing[0]}: it has no open lowering in the audit{unknown}", exit_status=2 if unknown else 1
            )
        if dismiss is not None:
            outcomes = session.operator.dismiss(topics or [], dismiss.strip())
        elif until_healed:
            chosen = sorted({one.terms.topic for one in contents.lowerings if one.open})
            outcomes = _wait_and_restore(
                session.operator, list(topics or chosen), lowering=None, due_only=due, deadline=deadline
            )
        else:
            with session.status:
                outcomes = session.operator.restore(topics, due_only=due)
        _print_outcomes(outcomes, as_json=as_json, nothing="nothing to restore")
        for reason in contents.unknown:
            _print_error_line(f"unknown: {reason}")
        end_command(2 if contents.unknown else exit_status(outcomes))


@audit_app.command("audit", epilog=AUDIT_EPILOG)
def audit_command(
    topics: Annotated[list[str] | None, typer.Argument(help="Topics, by name; all if there is none.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Print each record, too.")] = False,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = "",
    command_config: CommandConfigOption = None,
    audit_file: AuditFileOption = None,
    audit_topic: AuditTopicOption = DEFAULT_TOPIC,
    lab: LabOption = None,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Print who lowered min.insync.racks of what, when, why and until when, and what was not restored.

    The records are those of the audit file of this user and of the audit topic. If the file is lost, the topic has all
    records but those that were reported as "in the audit file alone". If the topic is lost, the records of others are;
    those of this file are appended to it again.

    Exit status: 0 nothing has to be done yet; 1 something is to be restored or closed, whatever else is unknown; 2 only
    that something is not known, such as when the cluster can't be queried: then the file alone is printed.
    """
    from pyhooks.audit.audit_record import now
    from pyhooks.outage import audit_report

    with _session(bootstrap, command_config, audit_file, audit_topic, lab, timeout, offline=True) as session:
        with session.status:
            contents = session.journal.read()
            observed: Mapping[str, ObservedTopic] | str = contents.topic_error
            if session.journal.cluster:
                open_ = sorted({one.terms.topic for one in contents.lowerings if one.open})
                try:
                    observed = session.cluster.observe(open_) if open_ else {}
                except RackgateError as error:
                    observed = str(error)
        report = audit_report.make_report(contents, observed, now(), topics or ())
    write_report(
        WIDTH,
        lambda console: audit_report.print_report(console, report, history=history),
        [json.dumps(audit_report.report_json(report), indent=1)] if as_json else None,
    )
    end_command(report.exit_status)


def _wait_and_restore(
    operator: Operator,
    topics: Sequence[str],
    *,
    lowering: str | None,
    due_only: bool,
    deadline: float | None,
    stderr: bool = False,
) -> tuple[TopicOutcome, ...]:
    """Restore topics as soon as possible; print what they wait for whenever that changes."""
    from pyhooks.outage.steps import TopicOutcome

    left, done = list(topics), []
    printed: object = None
    while left:
        problem: list[TopicOutcome] = []
        try:
            outcomes: Sequence[TopicOutcome] = operator.restore(left, due_only=due_only, lowering=lowering)
        except RackgateError as error:
            outcomes, text = (), str(error)
            problem = [TopicOutcome(topic, "unknown", text) for topic in left]
        waiting = [one for one in outcomes if one.result in ("active", "waiting", "recorded", "unknown")]
        finished = [one for one in outcomes if one not in waiting]
        closed = set(left) - {one.topic for one in outcomes} if not problem else set()
        for topic in sorted(closed):
            _print_error_line(f"{topic}: another command has restored or closed it: see 'rackgate audit'")
        waiting += problem
        if lowering is not None:
            _print_outcomes(finished, stderr=stderr)
        if [(one.topic, one.text) for one in waiting] != printed:
            printed = [(one.topic, one.text) for one in waiting]
            for one in waiting:
                _print_error_line(f"{one.topic}: {one.text}")
        done += finished
        left = [topic for topic in left if topic not in closed and topic not in {one.topic for one in finished}]
        if left and deadline is not None and time.monotonic() >= deadline:
            return (*done, *waiting)
        if left:
            time.sleep(POLL_S)
    return tuple(done)


@contextmanager
def _session(
    bootstrap: str,
    command_config: Path | None,
    audit_file: Path | None,
    audit_topic: str,
    lab: str | None,
    timeout_s: float,
    *,
    offline: bool = False,
) -> Iterator[_Session]:
    """Connect to the cluster; if ``offline``, a cluster that can't be queried has an empty id.

    Raises:
        RackgateError: the cluster can't be queried.
    """
    if not bootstrap:
        bootstrap = lab_processes.attach(lab, otherwise="name the cluster with --bootstrap host:port").bootstrap
    # imported late because starting the JVM takes a second
    status = report_console(WIDTH, stderr=True).status("starting Java")
    with status:
        from pyhooks.audit.audit_file import AuditFile, default_file
        from pyhooks.audit.audit_record import author
        from pyhooks.audit.audit_topic import AuditTopic
        from pyhooks.audit.journal import AuditJournal
        from pyhooks.outage.cluster_access import OutageCluster
        from pyhooks.outage.steps import Operator
        from pyhooks.placement import cluster_query

        cluster_query.disable_client_log()
        config = cluster_query.client_config(command_config)
        cluster = OutageCluster(bootstrap, config, timeout_s=timeout_s, report_step=status.update)
        file = AuditFile(audit_file or default_file())
        try:
            cluster_id = cluster.cluster_id()
            topic = AuditTopic(bootstrap, config, audit_topic)
        except RackgateError as error:
            if not offline:
                raise
            journal = AuditJournal("", file, _UnreadableTopic(str(error)))
        else:
            journal = AuditJournal(cluster_id, file, topic)
    yield _Session(bootstrap, cluster, journal, Operator(cluster, journal, author()), status)


@dataclass(frozen=True)
class _UnreadableTopic:
    """Audit topic of a cluster that can't be queried."""

    reason: str

    def read(self) -> ReadRecords:
        """Raise the reason."""
        raise RackgateError(self.reason)

    def append(self, records: Sequence[AuditRecord]) -> None:  # noqa: ARG002 - of the protocol
        """Raise the reason."""
        raise RackgateError(self.reason)


def _print_outcomes(
    outcomes: Iterable[TopicOutcome], *, as_json: bool = False, nothing: str = "", stderr: bool = False
) -> None:
    """Print outcomes, with ``stderr`` or if they are not done on standard error; as JSON all on standard output."""
    from pyhooks.outage.steps import NOT_DONE

    outcomes = list(outcomes)
    if as_json:
        typer.echo(json.dumps([vars(outcome) for outcome in outcomes], indent=1))
        return
    if not outcomes and nothing:
        typer.echo(nothing)
    for outcome in outcomes:
        line = f"{outcome.topic}: {outcome.result}: {outcome.text}"
        if stderr or outcome.result in NOT_DONE or outcome.result == "unknown":
            _print_error_line(line)
        else:
            report_console(WIDTH).print(plain(line), soft_wrap=True)


def _print_error_line(text: str) -> None:
    report_console(WIDTH, stderr=True).print(plain(text), soft_wrap=True)
