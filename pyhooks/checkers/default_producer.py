"""Check how a long rejection appears to an application with a producer's default settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.progress import SettledWindow, windows
from pyhooks.checkers.record_view import UNCOMMITTED, Attempt, PartitionName, Records
from pyhooks.checkers.settling_times import NS, SETTLE_S
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import ProduceDetails
from pyhooks.history.outcomes import ERRORS

TIMEOUT = f"{ERRORS}.TimeoutException"


def check_defaults(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Check that failed attempts with default settings ended with a timeout, and not too early.

    The producer's retries hide each rejection until the delivery timeout has passed; then it reports a timeout, not the
    cause. Unknown if none failed, or if that timeout is not recorded. Whether an acknowledged attempt should have been
    acknowledged is not judged here.

    If the ISR was insufficient from the send until ``settle_s`` after the failure, each try was rejected before the
    append: the record is wrong if the final read has it. Unknown if this applies to no attempt, or if the final read is
    incomplete.
    """
    findings = Findings()
    acked = failed = 0
    keys: set[str] = set()
    for event, produced in ProduceDetails.each(events):
        if not produced.defaults:
            continue
        keys.add(produced.key)
        if event.outcome == "ok":
            acked += 1
            continue
        failed += 1
        name, latency_ms, timeout_ms = f"seq {produced.seq}", produced.latency_ms, produced.delivery_timeout_ms
        if produced.exception != TIMEOUT:
            findings.wrong.append(f"{name} got {produced.exception or event.outcome}, expected {TIMEOUT}")
        elif timeout_ms is None:
            findings.missing.append(f"{name}: its delivery timeout is not recorded")
        elif latency_ms is None:
            findings.missing.append(f"{name}: its latency is not recorded")
        elif latency_ms < timeout_ms:
            findings.wrong.append(f"{name} failed after {latency_ms:.0f} ms, before the timeout of {timeout_ms:g} ms")
    if not failed:
        findings.missing.append("no attempt with default settings failed")
    else:
        _check_unwritten(events, keys, round(settle_s * NS), findings)
    findings.notes.append(f"{failed} attempts with default settings failed, {acked} were acknowledged")
    return findings.verdict("defaults")


def _check_unwritten(events: Sequence[Event], keys: Collection[str], settle_ns: int, findings: Findings) -> None:
    """Check that attempts that failed while the ISR was insufficient throughout are in no log."""
    records, cluster = Records(events), ClusterView.of(events)
    failed: defaultdict[PartitionName, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if attempt.key in keys and attempt.outcome != "ok" and (partition := attempt.partition_name) is not None:
            failed[partition].append(attempt)
    count = 0
    for partition, attempts in sorted(failed.items()):
        known = list(windows(partition, cluster, settle_ns))
        rejected = [
            attempt for attempt in attempts if any(_always_rejected(attempt, window, settle_ns) for window in known)
        ]
        if not rejected:
            continue
        count += len(rejected)
        reads, gaps = records.final(partition.topic, UNCOMMITTED)
        findings.missing += gaps
        keys_read = {key for read in reads.values() for key in read.keys.values()}
        findings.wrong += [
            f"{partition}: record {attempt.key} was read, and too few were in sync while it was tried"
            for attempt in rejected
            if attempt.key in keys_read
        ]
    if not count:
        findings.missing.append("no failed attempt with too few replicas or racks in sync throughout")


def _always_rejected(attempt: Attempt, window: SettledWindow, settle_ns: int) -> bool:
    """Return whether a window of an insufficient ISR contains an attempt, and any request in flight at its end."""
    return not window.enough and window.judges(attempt) and attempt.done_ns + settle_ns <= window.to_ns
