"""Outages of a rack with many partitions, on stock and on patched Kafka: rejections, recovery times and CPU use.

Events of process ``test``:

* op ``arm``: ``data`` ``{arm, probed}``: from here on the cluster is that of this arm, on which these topics are
  probed;
* op ``stage``: ``data`` ``{arm, stage, cycle, edge, ticks, hz}``: CPU time used by the Kafka process of each node when
  a stage began and ended: ``ticks`` by node as ``[pid, ticks]``, at ``hz`` ticks a second;
* op ``reached``: ``data`` ``{arm, cycle, what, since_ns}``: all partitions concerned had lost a member of the ISR
  (``lost``), or had all back (``back``); ``since_ns`` is the time of the fault, or of its heal.

Also reads ``produce`` events of clients without retries (mode ``probe``) on some of the topics.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyhooks.checkers import cluster_view
from pyhooks.checkers.record_view import ARM
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import TOO_FEW_RACKS, TOO_FEW_REPLICAS

STOCK, OVERLAY = "stock", "overlay"
ARMS = (STOCK, OVERLAY)
STAGE, REACHED = "stage", "reached"
# Minimum number of attempts on a topic in an outage; fewer are no evidence.
ATTEMPTS_MIN = 3
# Maximum share of attempts in an outage with another outcome, as happens on a busy machine.
UNSURE_MAX = 0.1


@dataclass(frozen=True)
class Outage:
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


def outages(events: Sequence[Event]) -> tuple[list[Outage], list[str]]:
    """Return all outages that took hold and were healed, for each probed topic, and what is missing."""
    probes: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.op == "produce" and event.data.get("mode") == "probe":
            probes[str(event.data["topic"])].append(event)
    reached = [one for one in events if (one.process, one.op) == ("test", REACHED)]
    found: list[Outage] = []
    missing: list[str] = []
    faults = cluster_view.faults(events)
    arms = [one for one in events if (one.process, one.op) == ("test", ARM)]
    # Later acknowledgements may be from the next outage, or from another cluster.
    ends = [fault.inject_ns for fault in faults] + [one.mono_ns for one in arms]
    for fault in faults:
        heal_ns = fault.heal_ns
        lost = [
            one
            for one in reached
            if heal_ns is not None and one.data["what"] == "lost" and fault.inject_ns <= one.mono_ns <= heal_ns
        ]
        if heal_ns is None or len(lost) != 1:
            missing.append(f"an outage that was not healed, or never came to all partitions ({len(lost)} times)")
            continue
        from_ns = lost[0].mono_ns
        until_ns = min((at_ns for at_ns in ends if at_ns > heal_ns), default=math.inf)
        mine = max((one for one in arms if one.mono_ns <= fault.inject_ns), key=lambda one: one.mono_ns, default=None)
        if mine is None:
            missing.append("an outage of a cluster of which nothing tells which it is")
            continue
        for topic in sorted(map(str, mine.data["probed"])):
            own = [one for one in probes[topic] if one.mono_ns < until_ns]
            inside = [one for one in own if int(one.data["sent_ns"]) >= from_ns and one.mono_ns <= heal_ns]
            refused = [
                one.mono_ns for one in own if _for(TOO_FEW_RACKS, one) and fault.inject_ns <= one.mono_ns <= heal_ns
            ]
            again = [one.mono_ns for one in own if one.outcome == "ok" and int(one.data["sent_ns"]) >= heal_ns]
            counts = [
                sum(_for(TOO_FEW_RACKS, one) for one in inside),
                sum(_for(TOO_FEW_REPLICAS, one) for one in inside),
                sum(one.outcome == "ok" for one in inside),
            ]
            found.append(
                Outage(
                    arm=str(lost[0].data["arm"]),
                    topic=topic,
                    refused_s=round((min(refused) - fault.inject_ns) / 1e9, 2) if refused else None,
                    refused=counts[0],
                    short=counts[1],
                    taken=counts[2],
                    unsure=len(inside) - sum(counts),
                    again_s=round((min(again) - heal_ns) / 1e9, 2) if again else None,
                    back=any(one.data["what"] == "back" and heal_ns < one.mono_ns < until_ns for one in reached),
                )
            )
    return found, missing


def _for(what: frozenset[str], event: Event) -> bool:
    """Return whether an attempt was rejected with one of these errors."""
    return event.data.get("exception") in what


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
    for event in events:
        if (event.process, event.op) == ("test", REACHED) and event.data["arm"] == arm:
            found[str(event.data["what"])].append(round((event.mono_ns - int(event.data["since_ns"])) / 1e9, 2))
    return dict(found)


def _stages(events: Iterable[Event], arm: str) -> Iterable[tuple[str, Event, Event]]:
    begun: dict[tuple[str, int], Event] = {}
    for event in events:
        if (event.process, event.op) == ("test", STAGE) and event.data["arm"] == arm:
            name = str(event.data["stage"]), int(event.data["cycle"])
            if event.data["edge"] == "begin":
                begun[name] = event
            elif name in begun:
                yield name[0], begun[name], event


def _processors(events: Sequence[Event], arm: str) -> dict[str, dict[str, float]]:
    """Return how many CPUs each node's Kafka kept busy in each stage, as the mean over cycles."""
    used: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for stage, first, last in _stages(events, arm):
        seconds = (last.mono_ns - first.mono_ns) / 1e9
        for node, (pid, ticks) in last.data["ticks"].items():
            before = first.data["ticks"].get(node)
            # A node restarted meanwhile has another process.
            if before is not None and before[0] == pid and seconds > 0:
                used[stage][node].append((int(ticks) - int(before[1])) / int(last.data["hz"]) / seconds)
    return {stage: {node: round(sum(v) / len(v), 3) for node, v in own.items()} for stage, own in used.items()}
