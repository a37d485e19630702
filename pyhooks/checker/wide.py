"""Outages of a rack with many partitions, on stock Kafka and on the patched one: what they stop, take and cost.

Events of process ``test``:

* op ``stage``: ``data`` ``{arm, stage, cycle, edge, ticks, hz}``: what the Kafka process of each node had used of a
  processor when a stage began and ended, ``ticks`` by node as ``[pid, ticks]``, of which there are ``hz`` a second;
* op ``reached``: ``data`` ``{arm, cycle, what, since_ns}``: all partitions concerned had lost a member of the ISR
  (``lost``), or had all back (``back``), so long after the fault, or its heal.

Beside that ``produce`` events of clients without retries (mode ``probe``) at some of the topics are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyhooks.checker import cluster
from pyhooks.checker.verdict import Verdict
from pyhooks.history import Event
from pyhooks.workload.certainty import TOO_FEW

STOCK, OVERLAY = "stock", "overlay"
ARMS = (STOCK, OVERLAY)
STAGE, REACHED = "stage", "reached"


@dataclass(frozen=True)
class Outage:
    """An outage as those met it who probed a topic in it.

    Attributes:
        arm: stock or overlay.
        topic: which one.
        refused_s: from the fault to the first refusal for want of replicas or racks; None if there was none.
        refused: refusals while all ISRs were without the lost rack.
        taken: acknowledgements meanwhile.
        again_s: from the heal to the first acknowledgement; None if there was none.
    """

    arm: str
    topic: str
    refused_s: float | None
    refused: int
    taken: int
    again_s: float | None


def outages(events: Sequence[Event]) -> tuple[list[Outage], list[str]]:
    """All outages that were begun, lasting and healed, of each topic that was probed, and what is missing, in words."""
    probes: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.op == "produce" and event.data.get("mode") == "probe":
            probes[str(event.data["topic"])].append(event)
    lost = [one for one in events if (one.process, one.op) == ("test", REACHED) and one.data["what"] == "lost"]
    found: list[Outage] = []
    missing: list[str] = []
    for fault in cluster.faults(events):
        heal_ns = fault.heal_ns
        own = [one for one in lost if heal_ns is not None and fault.inject_ns <= one.mono_ns <= heal_ns]
        if heal_ns is None or len(own) != 1:
            missing.append(f"an outage that was not healed, or never came to all partitions ({len(own)} times)")
            continue
        from_ns = own[0].mono_ns
        for topic, attempts in sorted(probes.items()):
            short = [one for one in attempts if one.data.get("exception") in TOO_FEW]
            refused = [one.mono_ns for one in short if fault.inject_ns <= one.mono_ns <= heal_ns]
            again = [one.mono_ns for one in attempts if one.outcome == "ok" and int(one.data["sent_ns"]) >= heal_ns]
            inside = [one for one in attempts if int(one.data["sent_ns"]) >= from_ns and one.mono_ns <= heal_ns]
            found.append(
                Outage(
                    arm=str(own[0].data["arm"]),
                    topic=topic,
                    refused_s=round((min(refused) - fault.inject_ns) / 1e9, 2) if refused else None,
                    refused=sum(one.data.get("exception") in TOO_FEW for one in inside),
                    taken=sum(one.outcome == "ok" for one in inside),
                    again_s=round((min(again) - heal_ns) / 1e9, 2) if again else None,
                )
            )
    return found, missing


def check_stops(events: Sequence[Event]) -> Verdict:
    """What is probed is refused in each outage by the patched Kafka, never by stock, and taken after each heal.

    In an outage: from when all ISRs are without the lost rack until the heal begins.

    Args:
        events: a whole history.
    """
    found, missing = outages(events)
    missing += [f"{arm}: no outage of a topic that is probed" for arm in ARMS if arm not in {one.arm for one in found}]
    wrong: list[str] = []
    for one in found:
        said = f"{one.arm}, {one.topic}: {one.refused} attempts refused and {one.taken} acknowledged in an outage"
        if (one.arm == OVERLAY and one.taken) or (one.arm == STOCK and one.refused):
            wrong.append(said)
        elif not (one.refused if one.arm == OVERLAY else one.taken):
            missing.append(said)
        if one.again_s is None:
            missing.append(f"{one.arm}, {one.topic}: nothing acknowledged after a heal")
    notes = [f"{arm}: {sum(one.arm == arm for one in found)} outages of topics that are probed" for arm in ARMS]
    return Verdict.of("stops", wrong=wrong, missing=missing, notes=notes)


def figures(events: Sequence[Event]) -> dict[str, Any]:
    """What was measured in each arm: times to refuse and to recover, and the use of processors.

    Of topics that are probed the first refusal, and the first acknowledgement after the heal, count; of each stage
    each node whose process went through it.
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
    """Processors that each node's Kafka kept busy in each stage, the mean over cycles."""
    used: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for stage, first, last in _stages(events, arm):
        seconds = (last.mono_ns - first.mono_ns) / 1e9
        for node, (pid, ticks) in last.data["ticks"].items():
            before = first.data["ticks"].get(node)
            # one that was started meanwhile has another process
            if before is not None and before[0] == pid and seconds > 0:
                used[stage][node].append((int(ticks) - int(before[1])) / int(last.data["hz"]) / seconds)
    return {stage: {node: round(sum(v) / len(v), 3) for node, v in own.items()} for stage, own in used.items()}
