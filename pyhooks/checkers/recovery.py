"""Check that replication and acknowledgements recover within a bound after a heal.

Reads faults, observations, settings and ``produce`` events; see ``pyhooks.checkers.cluster_view``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import ClusterView, RecordedFault, RecordedPartition
from pyhooks.checkers.record_view import Attempt, Records
from pyhooks.checkers.settling_times import LAG_NS, NS, attempts_of
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.kafka.gate import Requirement

# Bounds from the start of a heal: until all replicas are in sync, and until a record sent after it is acknowledged.
ISR_S = 60.0
ACK_S = 60.0
# A broker that was partitioned may report the old state for seconds, if it is the one queried.
STEADY_S = 2.0


@dataclass(frozen=True)
class Recovery:
    """Time after a heal; for overlapping faults, after the last heal."""

    name: str  # the fault that was healed
    heal_ns: int  # start of the heal, monotonic
    next_ns: float  # injection of the next fault, or infinity

    def has(self, at_ns: int) -> bool:
        """Return whether a moment is after the heal and before the next fault."""
        return self.heal_ns < at_ns < self.next_ns


def recoveries(faults: Sequence[RecordedFault], findings: Findings) -> Iterator[Recovery]:
    """Yield the time after each heal; faults that were never healed are reported as missing."""
    if not any(fault.heal_ns is not None for fault in faults):
        findings.missing.append("no heal in the history")
    heals: set[int] = set()
    for fault in faults:
        if fault.heal_ns is None:
            findings.missing.append(f"{fault.name}: never healed")
            continue
        heal_ns = last_heal(fault.heal_ns, faults)
        if heal_ns is not None and heal_ns not in heals:
            heals.add(heal_ns)
            next_ns = min((other.inject_ns for other in faults if other.inject_ns > heal_ns), default=math.inf)
            yield Recovery(fault.name, heal_ns, next_ns)


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

    ``isr_s`` and ``ack_s`` are the bounds until all replicas are in sync, and until a record sent after the heal is
    acknowledged, in seconds from the start of the heal.
    """
    cluster, records, findings = ClusterView.of(events), Records(events), Findings()
    attempts_by_partition = attempts_of(records)
    if not cluster.observations:
        findings.missing.append("no partition was observed")
    if not attempts_by_partition:
        findings.missing.append("no attempt in the history")
    for recovery in recoveries(cluster.faults, findings):
        for partition, observed in sorted(cluster.observations.items()):
            _check_isr(f"{recovery.name}: {partition}", recovery, observed, isr_s, findings)
        for partition, attempts in sorted(attempts_by_partition.items()):
            if not any(
                to_ns > recovery.heal_ns and recovery.next_ns > from_ns
                for from_ns, to_ns in records.run_times(partition.topic)
            ):
                continue  # no producer ran
            until_ns = max(attempt.done_ns for attempt in attempts)
            if recovery.next_ns < math.inf:
                until_ns = round(recovery.next_ns)
            required = cluster.settings.possible(partition.topic, recovery.heal_ns, until_ns)
            can = _can_acknowledge(_observed_around(cluster.of_partition(partition), recovery), required)
            if can is not False:
                # If it is unknown whether the partition can acknowledge at all, a missing acknowledgement is unknown.
                name = f"{recovery.name}: an acknowledgement by {partition}"
                _check_acknowledgements(name, recovery, attempts, ack_s, findings, certain=bool(can))
    return findings.verdict("recovery")


def _observed_around(observed: Sequence[RecordedPartition], recovery: Recovery) -> list[RecordedPartition]:
    """Return the last observation before a recovery, if any, and those in it."""
    before = cluster_view.observation_at(observed, recovery.heal_ns)
    return [
        *([before] if before else []),
        *(observation for observation in observed if recovery.has(observation.at_ns)),
    ]


def _check_isr(
    name: str, recovery: Recovery, observed: Sequence[RecordedPartition], isr_s: float, findings: Findings
) -> None:
    """Check that all replicas of a partition are in sync within the bound."""
    after = [observation for observation in observed if recovery.has(observation.at_ns)]
    before = cluster_view.observation_at(observed, recovery.heal_ns)
    # Replicas that a reassignment adds later do not concern this heal.
    placed = set(before.replicas) if before else set[int]()
    complete = [
        bool(observation.replicas)
        and (placed or set(observation.replicas)).intersection(observation.replicas) <= set(observation.isr)
        and observation.since_ns - LAG_NS > recovery.heal_ns
        for observation in after
    ]
    incomplete_ns = [
        observation.since_ns - LAG_NS for observation, in_sync in zip(after, complete, strict=True) if not in_sync
    ]
    # A replica that was moved away and back may be late because of the move.
    stayed = bool(placed) and all(set(observation.replicas) == placed for observation in after)
    name = f"{name} with all replicas in sync"
    _check_bound(name, recovery.heal_ns, isr_s, incomplete_ns, _steady(after, complete), findings, certain=stayed)


def _check_acknowledgements(
    name: str, recovery: Recovery, attempts: Sequence[Attempt], ack_s: float, findings: Findings, *, certain: bool
) -> None:
    """Check that a record of a partition is acknowledged within the bound."""
    sent = [attempt for attempt in attempts if recovery.has(attempt.sent_ns)]
    acked_ns = [attempt.done_ns for attempt in sent if attempt.outcome == "ok"]
    failed_ns = [attempt.done_ns for attempt in sent if attempt.outcome != "ok" and attempt.done_ns < recovery.next_ns]
    _check_bound(name, recovery.heal_ns, ack_s, failed_ns, acked_ns, findings, certain=certain)


def last_heal(heal_ns: int, faults: Sequence[RecordedFault]) -> int | None:
    """Return when the last of overlapping faults was healed, starting from a heal; None if one of them never was."""
    while True:
        active = [
            fault
            for fault in faults
            if fault.inject_ns <= heal_ns and (fault.heal_ns is None or fault.heal_ns > heal_ns)
        ]
        if not active:
            return heal_ns
        ends = [fault.heal_ns for fault in active if fault.heal_ns is not None]
        if len(ends) < len(active):
            return None
        heal_ns = max(ends)


def _can_acknowledge(observed: Sequence[RecordedPartition], required: Collection[Requirement]) -> bool | None:
    """Return whether a partition acknowledges with all replicas in sync; None if that is unknown, or changes."""
    placements = {observation.replicas: observation for observation in observed}
    if not placements or () in placements:
        return None
    restored = [
        replace(observation, leader=placed[0], isr=tuple(sorted(placed))) for placed, observation in placements.items()
    ]
    results = {requirement.met_by(observation) for requirement in required for observation in restored}
    return results.pop() if len(results) == 1 else None


def _steady(observed: Sequence[RecordedPartition], complete: Sequence[bool]) -> list[int]:
    """Return the times of observations with all replicas in sync that later observations confirm."""
    confirmed_ns = []
    for index, observation in enumerate(observed):
        until_ns = observation.at_ns + STEADY_S * NS
        last = max(number for number in range(index, len(observed)) if observed[number].at_ns <= until_ns)
        confirming = complete[index : max(index + 2, last + 1)]
        if len(confirming) > 1 and all(confirming):
            confirmed_ns.append(observation.at_ns)
    return confirmed_ns


def _check_bound(
    name: str,
    heal_ns: int,
    bound_s: float,
    incomplete_ns: Sequence[int],
    recovered_ns: Sequence[int],
    findings: Findings,
    *,
    certain: bool,
) -> None:
    """Check that the recovery called ``name`` was complete within the bound, by when it was and was not complete.

    A late recovery is wrong if that is ``certain``, else unknown.
    """
    if recovered_ns:
        first_ns = min(recovered_ns)
        # It may have recovered earlier, between observations.
        last_incomplete_ns = max((at for at in incomplete_ns if at < first_ns), default=heal_ns)
        if first_ns - heal_ns > bound_s * NS:
            reason = f"{name}: seen {(first_ns - heal_ns) / NS:.1f} s after the heal, the bound is {bound_s:g} s"
            findings.add(reason, certain=certain and last_incomplete_ns - heal_ns > bound_s * NS)
        return
    watched_s = max(0, max(incomplete_ns, default=heal_ns) - heal_ns) / NS
    if watched_s > bound_s:
        reason = f"{name}: not within {watched_s:.1f} s after the heal, the bound is {bound_s:g} s"
        findings.add(reason, certain=certain)
    else:
        findings.missing.append(f"{name}: not seen, and not observed later than {watched_s:.1f} s after the heal")
