"""Outages of a rack with many partitions, on stock and on patched Kafka: rejections, recovery times and CPU use.

Reads ``ArmDetails``, ``StageDetails``, ``ReachedDetails``, and ``ProduceDetails`` of clients without retries (mode
``probe``) on some of the topics.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyhooks.checkers import cluster_view
from pyhooks.checkers.record_view import Attempt, attempt_of
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import ArmDetails, ProduceDetails, ReachedDetails, StageDetails
from pyhooks.history.outcomes import TOO_FEW_RACKS, TOO_FEW_REPLICAS

STOCK, OVERLAY = "stock", "overlay"
ARMS = (STOCK, OVERLAY)
# Minimum number of attempts on a topic in an outage; fewer are no evidence.
ATTEMPTS_MIN = 3
# Maximum share of attempts in an outage with another outcome, as happens on a busy machine.
UNSURE_MAX = 0.1


@dataclass(frozen=True)
class ProbedOutage:
    """An outage as observed by the probes of a topic.

    Attributes:
        arm: stock or overlay.
        topic: the probed topic.
        refused_s: seconds from the fault to the first rejection due to too few racks; None if there was none.
        refused: rejections due to too few racks while all ISRs were without the lost rack.
        short: rejections due to too few replicas meanwhile.
        taken: acknowledgements meanwhile.
        unsure: other outcomes meanwhile.
        again_s: seconds from the heal to the first acknowledgement before the next fault or cluster; None if there was
            none.
        back: whether all replicas were in sync again before that.
    """

    arm: str
    topic: str
    refused_s: float | None
    refused: int
    short: int
    taken: int
    unsure: int
    again_s: float | None
    back: bool


def outages(events: Sequence[Event]) -> tuple[list[ProbedOutage], list[str]]:
    """Return all outages that took hold and were healed, for each probed topic, and what is missing."""
    probes: defaultdict[str, list[Attempt]] = defaultdict(list)
    for event, produced in ProduceDetails.each(events):
        if produced.mode == "probe":
            probes[produced.topic].append(attempt_of(event, produced))
    reached = list(ReachedDetails.each(events))
    found: list[ProbedOutage] = []
    missing: list[str] = []
    faults = cluster_view.faults(events)
    arms = list(ArmDetails.each(events))
    # Later acknowledgements may be from the next outage, or from another cluster.
    ends = [fault.inject_ns for fault in faults] + [event.mono_ns for event, _ in arms]
    for fault in faults:
        heal_ns = fault.heal_ns
        lost = [
            (event.mono_ns, one)
            for event, one in reached
            if heal_ns is not None and one.what == "lost" and fault.inject_ns <= event.mono_ns <= heal_ns
        ]
        if heal_ns is None or len(lost) != 1:
            missing.append(f"an outage that was not healed, or never came to all partitions ({len(lost)} times)")
            continue
        from_ns = lost[0][0]
        until_ns = min((at_ns for at_ns in ends if at_ns > heal_ns), default=math.inf)
        before = [(event.mono_ns, one) for event, one in arms if event.mono_ns <= fault.inject_ns]
        if not before:
            missing.append("an outage of a cluster of which nothing tells which it is")
            continue
        _, mine = max(before, key=lambda pair: pair[0])
        for topic in sorted(mine.probed):
            own = [one for one in probes[topic] if one.done_ns < until_ns]
            inside = [one for one in own if one.sent_ns >= from_ns and one.done_ns <= heal_ns]
            refused = [
                one.done_ns
                for one in own
                if one.exception in TOO_FEW_RACKS and fault.inject_ns <= one.done_ns <= heal_ns
            ]
            again = [one.done_ns for one in own if one.outcome == "ok" and one.sent_ns >= heal_ns]
            counts = [
                sum(one.exception in TOO_FEW_RACKS for one in inside),
                sum(one.exception in TOO_FEW_REPLICAS for one in inside),
                sum(one.outcome == "ok" for one in inside),
            ]
            found.append(
                ProbedOutage(
                    arm=lost[0][1].arm,
                    topic=topic,
                    refused_s=round((min(refused) - fault.inject_ns) / 1e9, 2) if refused else None,
                    refused=counts[0],
                    short=counts[1],
                    taken=counts[2],
                    unsure=len(inside) - sum(counts),
                    again_s=round((min(again) - heal_ns) / 1e9, 2) if again else None,
                    back=any(one.what == "back" and heal_ns < event.mono_ns < until_ns for event, one in reached),
                )
            )
    return found, missing


def check_stops(events: Sequence[Event]) -> Verdict:
    """Check that patched Kafka rejects probes in each outage, stock Kafka never does, and both recover after heals.

    An outage counts from when all ISRs are without the lost rack until the heal begins. Unknown if there were too few
    replicas, too, or if the recovery after a heal is not recorded. Also unknown if too few attempts are conclusive, or
    more than ``UNSURE_MAX`` inconclusive.

    Args:
        events: a whole history.
    """
    found, missing = outages(events)
    missing += [f"{arm}: no outage of a topic that is probed" for arm in ARMS if arm not in {one.arm for one in found}]
    wrong: list[str] = []
    notes: list[str] = []
    for one in found:
        said = (
            f"{one.arm}, {one.topic}: in an outage {one.refused} attempts refused for want of racks and {one.short} of "
            f"replicas, {one.taken} acknowledged, {one.unsure} neither"
        )
        meant, other = (one.refused, one.taken) if one.arm == OVERLAY else (one.taken, one.refused)
        if other:
            wrong.append(said)
        elif one.short or meant < ATTEMPTS_MIN or one.unsure > UNSURE_MAX * (meant + one.unsure):
            missing.append(said)
        else:
            notes.append(said)
        if one.again_s is None or not one.back:
            missing.append(f"{one.arm}, {one.topic}: nothing acknowledged, or not all in sync, after a heal")
    return Verdict.of("stops", wrong=wrong, missing=missing, notes=notes)


def figures(events: Sequence[Event]) -> dict[str, Any]:
    """Return the measurements of each arm: times to reject and to recover, and CPU use.

    For each probed topic, the first rejection and the first acknowledgement after the heal count; for each stage, each
    node whose process ran throughout it.
    """
    probed, _ = outages(events)
    told: dict[str, Any] = {}
    for arm in ARMS:
        own = [one for one in probed if one.arm == arm]
        told[arm] = {
            "reached_s": _reached(events, arm),
            "refused_s": [one.refused_s for one in own if one.refused_s is not None],
            "acknowledged_s": [one.again_s for one in own if one.again_s is not None],
            "processors": _processors(events, arm),
        }
    return told


def _reached(events: Iterable[Event], arm: str) -> dict[str, list[float]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for event, one in ReachedDetails.each(events):
        if one.arm == arm:
            found[one.what].append(round((event.mono_ns - one.since_ns) / 1e9, 2))
    return dict(found)


def _stages(events: Iterable[Event], arm: str) -> Iterable[tuple[float, StageDetails, StageDetails]]:
    """Yield the duration in seconds, the begin and the end of each stage of an arm."""
    begun: dict[tuple[str, int], tuple[int, StageDetails]] = {}
    for event, one in StageDetails.each(events):
        name = one.stage, one.cycle
        if one.arm != arm:
            continue
        if one.edge == "begin":
            begun[name] = event.mono_ns, one
        elif name in begun:
            begun_ns, first = begun[name]
            yield (event.mono_ns - begun_ns) / 1e9, first, one


def _processors(events: Sequence[Event], arm: str) -> dict[str, dict[str, float]]:
    """Return how many CPUs each node's Kafka kept busy in each stage, as the mean over cycles."""
    used: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for lasted_s, first, last in _stages(events, arm):
        for node, (pid, ticks) in last.ticks.items():
            before = first.ticks.get(node)
            # A node restarted meanwhile has another process.
            if before is not None and before[0] == pid and lasted_s > 0:
                used[last.stage][node].append((ticks - before[1]) / last.hz / lasted_s)
    return {stage: {node: round(sum(v) / len(v), 3) for node, v in own.items()} for stage, own in used.items()}
