"""Check that replication and acknowledgements recover within a bound after a heal.

Reads faults, observations, settings and ``produce`` events; see ``pyhooks.checkers.cluster_view``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedFault, RecordedPartition
from pyhooks.checkers.record_view import Records
from pyhooks.checkers.settling_times import LAG_NS, NS, attempts_of
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.kafka.gate import Requirement

ISR_S = 60.0
ACK_S = 60.0
# A broker that was partitioned may report the old state for seconds, if it is the one queried.
STEADY_S = 2.0


def check_recovery(events: Sequence[Event], *, isr_s: float = ISR_S, ack_s: float = ACK_S) -> Verdict:
    """Check after each heal that observed partitions have all replicas in sync, and acknowledge if a producer runs.

    Wrong if that took longer than the bound, or had not happened at its end while observations (or attempts) continued.
    Unknown without a heal, without observations (or attempts) after it, or if the end of the history or the next fault
    cuts the bound short. For overlapping faults, the last heal counts.

    A partition that can't acknowledge even with all replicas in sync, because its topic requires more racks than its
    placement has, needs no acknowledgement. Replicas that a reassignment adds after the heal are not waited for. If
    replicas are moved, or the placement was not observed before the heal, a late recovery is unknown.

    Acknowledgements with acks=1 do not count. An observation shows a state up to ``LAG_S`` old. All replicas are in
    sync from the first observation after the heal that shows it, if the next one and all within ``STEADY_S`` show it,
    too.

    Args:
        events: a whole history.
        isr_s: time from the start of the heal to all replicas in sync, in seconds.
        ack_s: time from the start of the heal to the first acknowledgement of a record sent after it, in seconds.
    """
    faults = cluster_view.faults(events)
    observations = cluster_view.observations(events)
    records = Records(events)
    attempts = attempts_of(records)
    wrong: list[str] = []
    missing: list[str] = []
    if not any(fault.heal_ns is not None for fault in faults):
        missing.append("no heal in the history")
    if not observations:
        missing.append("nobody looked at a partition")
    if not attempts:
        missing.append("no attempt in the history")
    judged: set[int] = set()
    settings = cluster_view.RequirementTimeline(events)
    for fault in faults:
        name = f"{fault.op} {fault.rack if fault.broker is None else f'broker {fault.broker}'}"
        if fault.heal_ns is None:
            missing.append(f"{name}: never healed")
            continue
        heal_ns = last_heal(fault.heal_ns, faults)
        if heal_ns is None or heal_ns in judged:
            continue  # reported with the other fault
        judged.add(heal_ns)
        next_ns = min((other.inject_ns for other in faults if other.inject_ns > heal_ns), default=None)
        for place, seen in sorted(observations.items()):
            after = [
                observation
                for observation in seen
                if observation.at_ns > heal_ns and (next_ns is None or observation.at_ns < next_ns)
            ]
            before = cluster_view.at(seen, heal_ns)
            # Replicas that a reassignment adds later do not concern this heal.
            placed = set(before.replicas) if before else set[int]()
            whole = [
                bool(observation.replicas)
                and (placed or set(observation.replicas)).intersection(observation.replicas) <= set(observation.isr)
                and observation.since_ns - LAG_NS > heal_ns
                for observation in after
            ]
            bad = [observation.since_ns - LAG_NS for observation, good in zip(after, whole, strict=True) if not good]
            # A replica that was moved away and back may be late because of the move.
            stayed = bool(placed) and all(set(observation.replicas) == placed for observation in after)
            _bounded(f"{name}: {place[0]}-{place[1]} with all replicas in sync", heal_ns, isr_s,
                     bad, _steady(after, whole), wrong if stayed else missing, missing)  # fmt: skip
        for place, own in sorted(attempts.items()):
            if not any(to_ns > heal_ns and (next_ns or math.inf) > from_ns for from_ns, to_ns in records.ran(place[0])):
                continue  # no producer ran
            sent = [one for one in own if one.sent_ns > heal_ns and (next_ns is None or one.sent_ns < next_ns)]
            acked = [one.done_ns for one in sent if one.outcome == "ok"]
            bad = [one.done_ns for one in sent if one.outcome != "ok" and (next_ns is None or one.done_ns < next_ns)]
            seen = observations.get(place, [])
            before = cluster_view.at(seen, heal_ns)
            within = [
                observation
                for observation in seen
                if observation.at_ns > heal_ns and (next_ns is None or observation.at_ns < next_ns)
            ]
            wanted = settings.possible(place[0], heal_ns, next_ns or max(one.done_ns for one in own))
            can = _can([*filter(None, [before]), *within], wanted)
            if can is not False:
                # If it is unknown whether the partition can acknowledge at all, a missing acknowledgement is unknown,
                # too.
                _bounded(f"{name}: an acknowledgement by {place[0]}-{place[1]}", heal_ns, ack_s,
                         bad, acked, wrong if can else missing, missing)  # fmt: skip
    return Verdict.of("recovery", wrong=wrong, missing=missing)


def last_heal(heal_ns: int, faults: Sequence[RecordedFault]) -> int | None:
    """Return when the last of overlapping faults was healed, starting from a heal; None if one of them never was."""
    while True:
        active = [one for one in faults if one.inject_ns <= heal_ns and (one.heal_ns is None or one.heal_ns > heal_ns)]
        if not active:
            return heal_ns
        ends = [one.heal_ns for one in active if one.heal_ns is not None]
        if len(ends) < len(active):
            return None
        heal_ns = max(ends)


def _can(seen: Sequence[RecordedPartition], wanted: Collection[Requirement]) -> bool | None:
    """Return whether a partition acknowledges with all replicas in sync; None if that is unknown, or changes."""
    placements = {observation.replicas: observation for observation in seen}
    if not placements or () in placements:
        return None
    whole = [
        replace(observation, leader=placed[0], isr=tuple(sorted(placed))) for placed, observation in placements.items()
    ]
    found = {one.met_by(observation) for one in wanted for observation in whole}
    return found.pop() if len(found) == 1 else None


def _steady(seen: Sequence[RecordedPartition], whole: Sequence[bool]) -> list[int]:
    """Return the times of observations with all replicas in sync that later observations confirm."""
    found = []
    for at, observation in enumerate(seen):
        near = [number for number in range(at, len(seen)) if seen[number].at_ns - observation.at_ns <= STEADY_S * NS]
        borne = range(at, max(at + 2, near[-1] + 1))
        if borne[-1] < len(seen) and all(whole[number] for number in borne):
            found.append(observation.at_ns)
    return found


def _bounded(
    what: str,
    heal_ns: int,
    bound_s: float,
    bad_ns: Sequence[int],
    good_ns: Sequence[int],
    wrong: list[str],
    missing: list[str],
) -> None:
    """Judge the first good moment after a heal; ``bad_ns`` are moments at which recovery was definitely incomplete."""
    took_s = (min(good_ns) - heal_ns) / NS if good_ns else None
    if took_s is not None and took_s <= bound_s:
        return
    watched_s = max(0, max(bad_ns) - heal_ns) / NS if bad_ns else 0.0
    if took_s is not None:
        # It may have recovered earlier, between observations.
        last_bad = max((at for at in bad_ns if at < min(good_ns)), default=heal_ns)
        late = (last_bad - heal_ns) / NS > bound_s
        (wrong if late else missing).append(f"{what}: seen {took_s:.1f} s after the heal, {bound_s:g} s are the bound")
    elif watched_s > bound_s:
        wrong.append(f"{what}: not within {watched_s:.1f} s after the heal, {bound_s:g} s are the bound")
    else:
        missing.append(f"{what}: not seen, and nobody asked later than {watched_s:.1f} s after the heal")
