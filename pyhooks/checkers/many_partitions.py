"""Outages of a rack with many partitions, on stock and on patched Kafka: rejections, recovery times and CPU use.

Reads ``ArmDetails``, ``StageDetails``, ``ReachedDetails``, and ``ProduceDetails`` of clients without retries (mode
``probe``) on some of the topics.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pyhooks.checkers import cluster_view
from pyhooks.checkers.record_view import Attempt, attempt_of
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import ArmDetails, ProduceDetails, ReachedDetails, StageDetails
from pyhooks.history.outcomes import TOO_FEW_RACKS, TOO_FEW_REPLICAS

STOCK, OVERLAY = "stock", "overlay"
ARMS = (STOCK, OVERLAY)
# Minimum number of attempts on a topic in an outage; fewer are no evidence.
ATTEMPTS_MIN = 3
# Maximum share of attempts in an outage with another outcome, as happens on a busy machine.
UNCLEAR_MAX = 0.1


@dataclass(frozen=True)
class ProbedOutage:
    """An outage as observed by the probes of a topic."""

    arm: str  # stock or overlay
    topic: str
    # seconds from the fault to the first rejection due to too few racks; None if there was none
    rejected_s: float | None
    rejected: int  # rejections due to too few racks while all ISRs were without the lost rack
    short: int  # rejections due to too few replicas meanwhile
    acked: int
    unclear: int  # other outcomes meanwhile
    # seconds from the heal to the first acknowledgement before the next fault or cluster; None if there was none
    again_s: float | None
    back: bool  # whether all replicas were in sync again before that


def outages(events: Sequence[Event]) -> tuple[list[ProbedOutage], list[str]]:
    """Return all outages that took hold and were healed, for each probed topic, and what is missing."""
    probes: defaultdict[str, list[Attempt]] = defaultdict(list)
    for event, produced in ProduceDetails.each(events):
        if produced.mode == "probe":
            probes[produced.topic].append(attempt_of(event, produced))
    reached = [(event.mono_ns, edge) for event, edge in ReachedDetails.each(events)]
    probed: list[ProbedOutage] = []
    missing: list[str] = []
    faults = cluster_view.faults(events)
    arms = [(event.mono_ns, arm) for event, arm in ArmDetails.each(events)]
    # Later acknowledgements may be from the next outage, or from another cluster.
    ends = [fault.inject_ns for fault in faults] + [at_ns for at_ns, _ in arms]
    for fault in faults:
        begin_ns, heal_ns = fault.inject_ns, fault.heal_ns
        lost = [
            (at_ns, edge.arm)
            for at_ns, edge in reached
            if heal_ns is not None and edge.change == "lost" and begin_ns <= at_ns <= heal_ns
        ]
        if heal_ns is None or len(lost) != 1:
            missing.append(f"an outage that was not healed, or did not reach all partitions ({len(lost)} times)")
            continue
        ((from_ns, arm),) = lost
        until_ns = min((at_ns for at_ns in ends if at_ns > heal_ns), default=math.inf)
        before = [(at_ns, switch.probed) for at_ns, switch in arms if at_ns <= begin_ns]
        if not before:
            missing.append("an outage of an unknown cluster")
            continue
        _, topics = max(before, key=lambda pair: pair[0])
        back = any(edge.change == "back" and heal_ns < at_ns < until_ns for at_ns, edge in reached)
        for topic in sorted(topics):
            attempts = [attempt for attempt in probes[topic] if attempt.done_ns < until_ns]
            inside = [attempt for attempt in attempts if attempt.sent_ns >= from_ns and attempt.done_ns <= heal_ns]
            rejected_ns = [
                attempt.done_ns
                for attempt in attempts
                if attempt.exception in TOO_FEW_RACKS and begin_ns <= attempt.done_ns <= heal_ns
            ]
            again_ns = [
                attempt.done_ns for attempt in attempts if attempt.outcome == "ok" and attempt.sent_ns >= heal_ns
            ]
            rejected = sum(attempt.exception in TOO_FEW_RACKS for attempt in inside)
            short = sum(attempt.exception in TOO_FEW_REPLICAS for attempt in inside)
            acked = sum(attempt.outcome == "ok" for attempt in inside)
            probed.append(
                ProbedOutage(
                    arm=arm,
                    topic=topic,
                    rejected_s=round((min(rejected_ns) - begin_ns) / NS, 2) if rejected_ns else None,
                    rejected=rejected,
                    short=short,
                    acked=acked,
                    unclear=len(inside) - rejected - short - acked,
                    again_s=round((min(again_ns) - heal_ns) / NS, 2) if again_ns else None,
                    back=back,
                )
            )
    return probed, missing


def check_stops(events: Sequence[Event]) -> Verdict:
    """Check that patched Kafka rejects probes in each outage, stock Kafka never does, and both recover after heals.

    An outage counts from when all ISRs are without the lost rack until the heal begins. Unknown if there were too few
    replicas, too, or if the recovery after a heal is not recorded. Also unknown if too few attempts are conclusive, or
    more than ``UNCLEAR_MAX`` inconclusive.
    """
    probed, missing = outages(events)
    findings = Findings(missing=missing)
    findings.missing += [
        f"{arm}: no outage of a topic that is probed" for arm in ARMS if arm not in {outage.arm for outage in probed}
    ]
    for outage in probed:
        name = f"{outage.arm}, {outage.topic}"
        counts = (
            f"{name}: in an outage {outage.rejected} attempts rejected due to too few racks and {outage.short} due to"
            f" too few replicas, {outage.acked} acknowledged, {outage.unclear} others"
        )
        expected, other = outage.rejected, outage.acked
        if outage.arm != OVERLAY:
            expected, other = other, expected
        if other:
            findings.wrong.append(counts)
        elif outage.short or expected < ATTEMPTS_MIN or outage.unclear > UNCLEAR_MAX * (expected + outage.unclear):
            findings.missing.append(counts)
        else:
            findings.notes.append(counts)
        if outage.again_s is None or not outage.back:
            findings.missing.append(f"{name}: nothing acknowledged, or not all in sync, after a heal")
    return findings.verdict("stops")


def figures(events: Sequence[Event]) -> dict[str, Any]:
    """Return the measurements of each arm: times to reject and to recover, and CPU use.

    For each probed topic, the first rejection and the first acknowledgement after the heal count; for each stage, each
    node whose process ran throughout it.
    """
    probed, _ = outages(events)
    return {
        arm: {
            "reached_s": _reached(events, arm),
            "rejected_s": [
                outage.rejected_s for outage in probed if outage.arm == arm and outage.rejected_s is not None
            ],
            "acknowledged_s": [outage.again_s for outage in probed if outage.arm == arm and outage.again_s is not None],
            "processors": _processors(events, arm),
        }
        for arm in ARMS
    }


def _reached(events: Iterable[Event], arm: str) -> dict[str, list[float]]:
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for event, edge in ReachedDetails.each(events):
        if edge.arm == arm:
            seconds[edge.change].append(round((event.mono_ns - edge.since_ns) / NS, 2))
    return dict(seconds)


def _stages(events: Iterable[Event], arm: str) -> Iterable[tuple[float, StageDetails, StageDetails]]:
    """Yield the duration in seconds, the begin and the end of each stage of an arm."""
    begun: dict[tuple[str, int], tuple[int, StageDetails]] = {}
    for event, stage in StageDetails.each(events):
        name = stage.stage, stage.cycle
        if stage.arm != arm:
            continue
        if stage.edge == "begin":
            begun[name] = event.mono_ns, stage
        elif name in begun:
            begun_ns, first = begun[name]
            yield (event.mono_ns - begun_ns) / NS, first, stage


def _processors(events: Sequence[Event], arm: str) -> dict[str, dict[str, float]]:
    """Return how many CPUs each node's Kafka kept busy in each stage, as the mean over cycles."""
    used: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for lasted_s, first, last in _stages(events, arm):
        for node, (pid, ticks) in last.ticks.items():
            before = first.ticks.get(node)
            # A node restarted meanwhile has another process.
            if before is not None and before[0] == pid and lasted_s > 0:
                used[last.stage][node].append((ticks - before[1]) / last.hz / lasted_s)
    return {stage: {node: round(fmean(shares), 3) for node, shares in nodes.items()} for stage, nodes in used.items()}
