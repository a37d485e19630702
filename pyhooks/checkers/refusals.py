"""Check that each rejection names its cause: too few replicas, or enough replicas in too few racks.

Reads ``intend`` and ``produce`` events, observations, settings and faults, and the clients of a ``ride``
(``pyhooks.checkers.client_retries``). Older clients know one error for both causes. They get the error for missing
replicas, because they retry after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.checkers.progress import windows
from pyhooks.checkers.record_view import Attempt, Records, clients_of
from pyhooks.checkers.settling_times import NS, SETTLE_S, attempts_of
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import RideDetails
from pyhooks.history.outcomes import ERRORS, TOO_FEW

# Clients that distinguish the two causes, by their names in ``intend`` events.
KNOWS_RACKS = frozenset({"patched"})
REPLICAS_NAMES = frozenset({f"{ERRORS}.NotEnoughReplicasException", "NOT_ENOUGH_REPLICAS"})
RACKS_NAMES = TOO_FEW - REPLICAS_NAMES


def check_refusals(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Check in every settled interval with too few replicas or racks that rejections name what is missing.

    If replicas are missing, the error is that of replicas, even if racks are missing, too; else it is that of racks. A
    client that does not know the second error gets the first. Unknown if no rejection could be judged, or none of a
    client that was to ride out an outage, or if the client is not recorded.

    Args:
        events: a whole history.
        settle_s: how long a change may take to take effect, in seconds.
    """
    records = Records(events)
    settings, faults, observations = (
        RequirementTimeline(events),
        cluster_view.faults(events),
        cluster_view.observations(events),
    )
    clients = clients_of(events)
    wrong: list[str] = []
    missing: list[str] = []
    seen: Counter[str] = Counter()
    judged: set[str | None] = set()
    for place, own in sorted(attempts_of(records).items()):
        for window in windows(place, observations.get(place, ()), settings, faults, round(settle_s * NS)):
            wanted = settings.possible(place[0], window.from_ns, window.to_ns)
            short = {not one.ask(window.observation).enough_replicas for one in wanted}
            if window.enough or len(short) != 1:
                continue
            for attempt in own:
                if window.judges(attempt) and attempt.exception in TOO_FEW:
                    problem = _misnamed(attempt, clients, replicas=next(iter(short)))
                    seen[attempt.exception] += 1
                    judged.add(clients.get(attempt.run or ""))
                    if problem:
                        (missing if attempt.run not in clients else wrong).append(f"{place[0]}-{place[1]}: {problem}")
    riding = {name for _, ride in RideDetails.each(events) for name in ride.clients}
    missing += [f"{client}: no refusal could be judged" for client in sorted(riding - judged)]
    if not seen:
        missing.append("no refusal for want of replicas or racks could be judged")
    notes = [f"{count} refusals with {name.rpartition('.')[2]}" for name, count in sorted(seen.items())]
    return Verdict.of("refusals", wrong=wrong, missing=missing, notes=notes)


def _misnamed(attempt: Attempt, clients: Mapping[str, str], *, replicas: bool) -> str:
    client = clients.get(attempt.run or "")
    if client is None:
        return f"nothing tells which client was refused {attempt.key}"
    expected = REPLICAS_NAMES if replicas or client not in KNOWS_RACKS else RACKS_NAMES
    if attempt.exception in expected:
        return ""
    lack = "replicas" if replicas else "racks"
    return f"record {attempt.key} of a client {client} was refused with {attempt.exception} for want of {lack}"
