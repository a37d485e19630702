"""Check that a client uses the same versions of all requests, whichever Kafka the brokers run.

Reads ``VersionsDetails``; one kind of brokers is the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import VersionsDetails


def check_versions(events: Sequence[Event]) -> Verdict:
    """Check that a client uses the same versions with all other brokers as with the baseline's.

    Unknown if a client was not queried with the baseline, or with others, or if it reported no versions.
    """
    findings = Findings()
    reports = [versions for _, versions in VersionsDetails.each(events)]
    for client in sorted({report.client for report in reports}):
        bases = [report for report in reports if report.client == client and report.baseline]
        others = [report for report in reports if report.client == client and not report.baseline]
        if not bases or not others:
            findings.missing.append(f"client {client} was not queried with {'other' if bases else 'baseline'} brokers")
            continue
        base = bases[0]
        for report in (*bases, *others):
            if not report.versions:
                findings.missing.append(f"client {client} reported no versions with {report.brokers}")
                continue
            for name in sorted(base.versions.keys() | report.versions.keys()):
                expected, version = base.versions.get(name, "none"), report.versions.get(name, "none")
                if version != expected:
                    findings.wrong.append(
                        f"client {client} uses version {expected} of {name} with {base.brokers}, and {version} with"
                        f" {report.brokers}"
                    )
        findings.notes.append(f"client {client}: {len(base.versions)} requests, {len(others)} other kinds of brokers")
    if not reports:
        findings.missing.append("no versions of a client were queried")
    return findings.verdict("versions")
