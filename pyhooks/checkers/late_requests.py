"""Check that records of requests that arrive after their client gave up stay in their transaction.

Reads ``produce`` and ``txn`` events, ``appended`` events of records without an acknowledgement, and all read_committed
``read`` events.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhooks.checkers.record_view import COMMITTED, Records
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import AppendedDetails, ProduceDetails

# Clients write an event as soon as they have the result; the leader's clock is read in whole milliseconds.
MARGIN_MS = 20


def check_late_requests(events: Sequence[Event]) -> Verdict:
    """Check records that a leader appended after the client had given them up.

    Wrong: such a record is read as committed, but its transaction was aborted, so it became part of another one.

    Unknown without such a record, since then no request was late. Their number is a note.
    """
    findings, records = Findings(), Records(events)
    given_up = {produced.key: event.wall_ms for event, produced in ProduceDetails.each(events) if event.outcome != "ok"}
    late = {
        appended.key: appended.append_ms - given_up[appended.key]
        for _, appended in AppendedDetails.each(events)
        if appended.key in given_up and appended.append_ms > given_up[appended.key] + MARGIN_MS
    }
    if not late:
        findings.missing.append("no record was appended after its client had given up: no request was late")
        return findings.verdict("late")
    longest_s = max(late.values()) / 1000
    findings.notes.append(f"{len(late)} records were appended up to {longest_s:.1f} s after their client had given up")
    committed = {key for read in records.reads if read.isolation == COMMITTED for key in read.keys.values()}
    for attempt in records.attempts:
        if attempt.key not in late or attempt.run is None or attempt.txn is None:
            continue
        end = records.transactions.get((attempt.run, attempt.txn))
        if end is not None and end.outcome == "fail" and attempt.key in committed:
            findings.wrong.append(
                f"{attempt.key} was appended {late[attempt.key] / 1000:.1f} s after its client gave up transaction"
                f" {attempt.txn} of run {attempt.run}, which was aborted, and is read as committed"
            )
    return findings.verdict("late")
