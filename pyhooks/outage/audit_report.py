"""Audit as a table and as JSON.

The JSON is one object. Keys are stable: later versions may add some.

- ``cluster``: Kafka's cluster id, or null if the cluster could not be queried.
- ``needs_action``: true if a lowering is to be restored or closed.
- ``unknown``: a list of reasons why something is not known.
- ``damaged_lines``: number of lines of file and topic that are no records, left by writers that were killed.
- ``lowerings``: a list of ``{lowering, cluster, topic, reason, lowered_by, began, old, old_racks, new, until,
  until_healed, status, means, records}``, oldest first. ``old`` is null if the topic had no value of its own.
- ``records`` of a lowering: a list of ``{record, event, at, by, note, in_file, in_topic}``, by time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pyhooks.audit.audit_record import Terms, terms_json, time_text
from pyhooks.audit.journal import AuditContents
from pyhooks.audit.replay import NEEDS_ACTION, Lowering, Status, status_of
from pyhooks.core.terminal import plain
from pyhooks.placement.topic_observation import ObservedTopic, lowering_status

SHOWN = 40
STYLES: Mapping[Status, str] = {
    "due": "bold red",
    "waiting": "yellow",
    "unfinished": "yellow",
    "changed": "yellow",
    "unknown": "magenta",
    "active": "bold",
}


@dataclass(frozen=True)
class AuditedLowering:
    """Lowering with its status."""

    lowering: Lowering
    status: Status
    means: str  # the status in a sentence


@dataclass(frozen=True)
class AuditReport:
    """Report of the audit."""

    contents: AuditContents
    lowerings: tuple[AuditedLowering, ...]  # oldest first
    unknown: tuple[str, ...]

    @property
    def needs_action(self) -> bool:
        """Whether a lowering is to be restored or closed."""
        return any(one.status in NEEDS_ACTION for one in self.lowerings)

    @property
    def exit_status(self) -> int:
        """Exit status of ``rackgate audit``."""
        return 1 if self.needs_action else 2 if self.unknown else 0


def make_report(
    contents: AuditContents, observed: Mapping[str, ObservedTopic] | str, at: datetime, topics: Sequence[str] = ()
) -> AuditReport:
    """Return the report of an audit.

    ``observed`` has the topics with open lowerings, or is the reason why the cluster could not be queried. Without
    ``topics`` all are reported.
    """
    by_name = {} if isinstance(observed, str) else observed
    unknown = list(contents.unknown)
    if isinstance(observed, str):
        unknown.append(observed)
    lowerings = [one for one in contents.lowerings if not topics or one.terms.topic in topics]
    audited = []
    for one in lowerings:
        if one.open and isinstance(observed, str):
            status, means = status_of(one, None, (), at)
        else:
            status, means = lowering_status(one, contents.lowerings, by_name.get(one.terms.topic), at)
            if status == "unknown":
                unknown.append(f"topic {one.terms.topic}: {means}")
        audited.append(AuditedLowering(one, status, means))
    return AuditReport(contents, tuple(audited), tuple(dict.fromkeys(unknown)))


def report_json(report: AuditReport) -> dict[str, Any]:
    """Return the JSON object that the module's docstring describes."""
    in_file = {record.record for record in report.contents.file.records}
    in_topic = {record.record for record in report.contents.topic.records}

    def lowering_json(one: AuditedLowering) -> dict[str, Any]:
        return {
            **terms_json(one.lowering.terms),
            "status": one.status,
            "means": one.means,
            "records": [
                {
                    "record": record.record,
                    "event": record.event,
                    "at": time_text(record.at),
                    "by": record.by,
                    "note": record.note,
                    "in_file": record.record in in_file,
                    "in_topic": record.record in in_topic,
                }
                for record in one.lowering.records
            ],
        }

    return {
        "cluster": report.contents.cluster or None,
        "needs_action": report.needs_action,
        "unknown": list(report.unknown),
        "damaged_lines": report.contents.file.damaged + report.contents.topic.damaged,
        "lowerings": [lowering_json(one) for one in report.lowerings],
    }


def short_time(at: datetime) -> str:
    """Return a time in UTC for the table."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")


def terms_until(terms: Terms) -> str:
    """Return until when a topic is to stay lowered."""
    texts = [] if terms.until is None else [short_time(terms.until)]
    texts += ["racks are back"] * terms.until_healed
    return " or ".join(texts)


def print_report(console: Console, report: AuditReport, *, history: bool) -> None:
    """Print the audit; with ``history`` each record, too."""
    shown = report.lowerings[-SHOWN:]
    if shown:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("topic", "R", "status", "lowered by", "at", "until", "reason"):
            table.add_column(name, overflow="fold", no_wrap=name in ("R", "status", "at"))
        for one in shown:
            terms = one.lowering.terms
            table.add_row(
                plain(terms.topic),
                f"{terms.old if terms.old is not None else 'unset'} -> {terms.new}",
                plain(one.status, STYLES.get(one.status, "dim")),
                plain(terms.lowered_by),
                short_time(terms.began),
                terms_until(terms),
                plain(terms.reason),
            )
        console.print(table)
    if len(report.lowerings) > len(shown):
        console.print(f"and {len(report.lowerings) - len(shown)} older ones: see --json", style="dim")
    for one in shown:
        if one.status not in ("active", "restored") and one.means:
            line = f"{one.lowering.terms.topic}: {one.status}: {one.means}"
            console.print(plain(line, STYLES.get(one.status, "dim")))
        for record in one.lowering.records if history else ():
            note = f": {record.note}" if record.note else ""
            console.print(plain(f"  {time_text(record.at)} {record.event} by {record.by}{note}"))
    if damaged := report.contents.file.damaged + report.contents.topic.damaged:
        console.print(f"{damaged} damaged lines: records of commands that were killed while they wrote", style="dim")
    for reason in report.unknown:
        console.print(plain(f"unknown: {reason}", "magenta"))
    console.print(_summary(report))


def _summary(report: AuditReport) -> str:
    if not report.lowerings:
        return "nothing was lowered" if not report.unknown else "no lowering is known here"
    count = sum(one.status in NEEDS_ACTION for one in report.lowerings)
    if count:
        return f"[bold red]{count} to be restored or closed[/]: rackgate restore"
    active = sum(one.status == "active" for one in report.lowerings)
    return f"{len(report.lowerings)} recorded, {active} lowered now, none to be restored yet"
