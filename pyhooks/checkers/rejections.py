"""Check that each rejection names its cause: too few replicas, or enough replicas in too few racks.

Reads ``intend`` and ``produce`` events, observations, settings and faults, and the clients of a ``ride``
(``pyhooks.checkers.client_retries``). Older clients know one error for both causes. They get the error for missing
replicas, because they retry after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.progress import windows
from pyhooks.checkers.record_view import Attempt, Records, clients_of
from pyhooks.checkers.settling_times import NS, SETTLE_S, attempts_of
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import RideDetails
from pyhooks.history.outcomes import ERRORS, TOO_FEW

# Clients that distinguish the two causes, by their names in ``intend`` events.
KNOWS_RACKS = frozenset({"patched"})
REPLICAS_NAMES = frozenset({f"{ERRORS}.NotEnoughReplicasException", "NOT_ENOUGH_REPLICAS"})
RACKS_NAMES = TOO_FEW - REPLICAS_NAMES


def check_rejections(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Check in every settled interval with too few replicas or racks that rejections name the missing ones.

    If replicas are missing, the error is that of replicas, even if racks are missing, too; else it is that of racks. A
    client that does not know the second error gets the first. Unknown if no rejection could be judged, or none of a
    client that was to ride out an outage, or if the client is not recorded.
    """
    records, cluster = Records(events), ClusterView.of(events)
    clients = clients_of(events)
    findings = Findings()
    counts: Counter[str] = Counter()
    judged: set[str | None] = set()
    for partition, attempts in sorted(attempts_of(records).items()):
        for window in windows(partition, cluster, round(settle_s * NS)):
            required = cluster.settings.possible(partition.topic, window.from_ns, window.to_ns)
            few_replicas = {not requirement.decide(window.observation).enough_replicas for requirement in required}
            if window.enough or len(few_replicas) != 1:
                continue
            for attempt in attempts:
                if window.judges(attempt) and attempt.exception in TOO_FEW:
                    client = clients.get(attempt.run or "")
                    counts[attempt.exception] += 1
                    judged.add(client)
                    if problem := _problem(attempt, client, few_replicas=True in few_replicas):
                        findings.add(f"{partition}: {problem}", certain=client is not None)
    riding = {name for _, ride in RideDetails.each(events) for name in ride.clients}
    findings.missing += [f"{client}: no rejection could be judged" for client in sorted(riding - judged)]
    if not counts:
        findings.missing.append("no rejection due to too few replicas or racks could be judged")
    findings.notes += [f"{count} rejections with {name.rpartition('.')[2]}" for name, count in sorted(counts.items())]
    return findings.verdict("rejections")


def _problem(attempt: Attempt, client: str | None, *, few_replicas: bool) -> str:
    """Describe the problem with a rejection, if any."""
    if client is None:
        return f"the client whose record {attempt.key} was rejected is not recorded"
    expected = REPLICAS_NAMES if few_replicas or client not in KNOWS_RACKS else RACKS_NAMES
    if attempt.exception in expected:
        return ""
    cause = "replicas" if few_replicas else "racks"
    return f"record {attempt.key} of a client {client} was rejected with {attempt.exception} due to too few {cause}"
