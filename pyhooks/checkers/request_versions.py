"""Check that a client uses the same versions of all requests, whichever Kafka the brokers run.

Reads ``VersionsDetails``; one kind of brokers is the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import VersionsDetails


def check_versions(events: Sequence[Event]) -> Verdict:
    """Check that a client uses the same versions with all other brokers as with the baseline's.

    Unknown if a client was not queried with the baseline, or with others, or if it reported no versions.

    Args:
        events: a whole history.
    """
    reports = [one for _, one in VersionsDetails.each(events)]
    wrong: list[str] = []
    missing: list[str] = []
    notes: list[str] = []
    for client in sorted({one.client for one in reports}):
        own = [one for one in reports if one.client == client]
        bases, others = ([one for one in own if one.baseline is which] for which in (True, False))
        if not bases or not others:
            missing.append(f"client {client} was not asked with {'other' if bases else 'baseline'} brokers")
            continue
        base = bases[0]
        missing += [f"client {client} tells no versions with {one.brokers}" for one in own if not one.versions]
        for one in (*bases[1:], *others):
            names = sorted(base.versions.keys() | one.versions.keys()) if one.versions else []
            for name in names:
                with_base, now = (each.versions.get(name, "none") for each in (base, one))
                if with_base != now:
                    brokers = f"with {base.brokers}, and {now} with {one.brokers}"
                    wrong.append(f"client {client} uses version {with_base} of {name} {brokers}")
        notes.append(f"client {client}: {len(base.versions)} requests, {len(others)} other kinds of brokers")
    if not reports:
        missing.append("nobody asked which versions a client uses")
    return Verdict.of("versions", wrong=wrong, missing=missing, notes=notes)
