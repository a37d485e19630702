"""Does an outage of some topics slow others more with the gate than without it?

Two arms, stock and overlay, go through the same outages. Events of process ``test``:

* op ``block``: ``data`` ``{arm, stage, cycle, number, topics, edge}``: a stretch of time, from ``edge`` ``begin`` to
  ``end``, of an arm, before an outage (``stage`` ``before``) or in it (``outage``), in which the latency of ``topics``
  is measured;
* op ``stage``: ``data`` ``{arm, stage, cycle, edge, ticks, hz}``: what the Kafka process of each node had used of a
  processor when a stage began and ended, ``ticks`` by node as ``[pid, ticks]``, of which there are ``hz`` a second;
* op ``reached``: ``data`` ``{arm, cycle, what, since_ns}``: all partitions concerned had lost a member of the ISR
  (``lost``), or had all back (``back``), so long after the fault, or its heal.

Beside that ``produce`` events and those of ``pyhooks.workload.arrivals`` are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pyhooks import stats
from pyhooks.checker import cluster
from pyhooks.checker.verdict import Verdict
from pyhooks.history import Event
from pyhooks.stats import Interval
from pyhooks.workload.certainty import TOO_FEW

STOCK, OVERLAY = "stock", "overlay"
ARMS = (STOCK, OVERLAY)
BEFORE, OUTAGE = "before", "outage"
BLOCK, STAGE, REACHED = "block", "stage", "reached"
# what others may be slowed by
BAND = 0.05
CONFIDENCE = 0.95
RESAMPLES = 10_000
# fewer records say nothing of a block, and fewer blocks nothing of an arm
RECORDS_MIN = 20
PAIRS_MIN = 6
KINDS = ("produce", "fetch")

# arm, stage, cycle, number
Name = tuple[str, str, int, int]


@dataclass(frozen=True)
class Block:
    """A stretch of time in which latencies are measured.

    Attributes:
        from_ns: its beginning, monotonic.
        to_ns: its end.
        topics: of which topics.
    """

    from_ns: int
    to_ns: int
    topics: frozenset[str]


def blocks(events: Iterable[Event]) -> dict[Name, Block]:
    """All blocks that ended."""
    begun: dict[Name, Event] = {}
    found: dict[Name, Block] = {}
    for event in events:
        if (event.process, event.op) == ("test", BLOCK):
            data = event.data
            name = str(data["arm"]), str(data["stage"]), int(data["cycle"]), int(data["number"])
            if data["edge"] == "begin":
                begun[name] = event
            elif name in begun:
                found[name] = Block(begun[name].mono_ns, event.mono_ns, frozenset(map(str, data["topics"])))
    return found


def latencies(events: Sequence[Event], found: Mapping[Name, Block]) -> tuple[dict[str, dict[Name, float]], list[str]]:
    """The median latency of each block, by what was done, in milliseconds, and what is missing, in words.

    Produce: from the moment at which a client got a record to its acknowledgement; fetch: to its arrival at the
    consumer. A record belongs to the block in which it was sent.
    """
    sent: dict[str, Event] = {}
    for event in events:
        if event.op == "produce" and event.data.get("sent_ns") is not None:
            sent[str(event.data["key"])] = event
    came: dict[str, float] = {}
    for event in events:
        if event.op == "fetched":
            for key, ago_ms in zip(event.data["keys"], event.data["ago_ms"], strict=True):
                came[str(key)] = event.mono_ns - float(ago_ms) * 1e6
    values: dict[str, defaultdict[Name, list[float]]] = {kind: defaultdict(list) for kind in KINDS}
    missing: list[str] = []
    for name, block in found.items():
        refused = 0
        for key, event in sent.items():
            sent_ns = int(event.data["sent_ns"])
            if not (block.from_ns <= sent_ns < block.to_ns and event.data["topic"] in block.topics):
                continue
            if event.outcome != "ok":
                refused += 1
                continue
            values["produce"][name].append(float(event.data["latency_ms"]))
            if key in came:
                values["fetch"][name].append((came[key] - sent_ns) / 1e6)
        if refused:
            missing.append(f"{_words(name)}: {refused} records of the other topics were not acknowledged")
        missing += [
            f"{_words(name)}: {len(values[kind][name])} latencies of {kind}, at least {RECORDS_MIN} are needed"
            for kind in KINDS
            if len(values[kind][name]) < RECORDS_MIN
        ]
    return {kind: {name: median(held) for name, held in values[kind].items() if held} for kind in KINDS}, missing


def _words(name: Name) -> str:
    arm, stage, cycle, number = name
    return f"{arm}, {stage}, cycle {cycle}, block {number}"


def slowdowns(medians: Mapping[Name, float], seed: int) -> tuple[Interval, Interval] | str:
    """How much more an outage slows the overlay than stock, and the same of two halves of what came before outages.

    Each pair is one block in the outage by one before it, of the overlay by that of stock. The second interval should
    be around 1, since nothing differs between its halves.

    Returns:
        Both intervals, or why there are none.
    """
    names = sorted({name[2:] for name in medians})
    whole = [one for one in names if all((arm, stage, *one) in medians for arm in ARMS for stage in (BEFORE, OUTAGE))]
    if len(whole) < PAIRS_MIN or len(whole) < len(names):
        return f"{len(whole)} of {len(names)} pairs of blocks are whole, at least {PAIRS_MIN} and all are needed"

    def slowed(arm: str) -> list[float]:
        return [medians[arm, OUTAGE, *one] / medians[arm, BEFORE, *one] for one in whole]

    options: dict[str, Any] = {"confidence": CONFIDENCE, "resamples": RESAMPLES, "seed": seed}
    before = [medians[arm, BEFORE, *one] for arm in ARMS for one in whole]
    even = len(before) // 2 * 2
    control = stats.ratio_interval(before[0:even:2], before[1:even:2], **options)
    return stats.ratio_interval(slowed(OVERLAY), slowed(STOCK), **options), control


def check_slowdown(events: Sequence[Event], *, seed: int = 1) -> Verdict:
    """An outage slows the other topics by less than 5 % more with the gate than without it.

    Wrong if all of the interval is above that. Unknown if the interval reaches across, if what came before the outages
    differs by more than that between two halves which nothing distinguishes, or if blocks are missing, too short, or
    have records that were not acknowledged.

    Args:
        events: a whole history.
        seed: of the resamples.
    """
    found = blocks(events)
    medians, missing = latencies(events, found)
    wrong: list[str] = []
    notes: list[str] = []
    for kind in KINDS:
        got = slowdowns(medians[kind], seed)
        if isinstance(got, str):
            missing.append(f"{kind}: {got}")
            continue
        ratio, control = got
        said = f"{kind}: an outage slows others {_shown(ratio)} times as much with the gate as without it"
        notes += [said, f"{kind}: two halves of what came before outages: {_shown(control)}"]
        if not control.inside(*stats.band_ends(BAND)):
            missing.append(f"{said}; two halves of what came before outages differ, too: {_shown(control)}")
        elif ratio.low > 1 + BAND:
            wrong.append(said)
        elif ratio.high >= 1 + BAND:
            missing.append(f"{said}: neither below {1 + BAND:g} nor above")
    return Verdict.of("slowdown", wrong=wrong, missing=missing, notes=notes)


def _shown(interval: Interval) -> str:
    return f"{interval.point:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def figures(events: Sequence[Event]) -> dict[str, Any]:
    """What was measured in each arm: times to refuse and to recover, processor use, latencies.

    Of topics that are probed the first refusal, and the first acknowledgement after the heal, count; of each stage
    each node whose process went through it.
    """
    medians, _ = latencies(events, blocks(events))
    told: dict[str, Any] = {}
    for arm in ARMS:
        told[arm] = {
            "reached_s": _reached(events, arm),
            "probed_s": _probed(events, arm),
            "processors": _processors(events, arm),
            "latency_ms": {
                kind: {stage: _median([v for name, v in medians[kind].items() if name[:2] == (arm, stage)])
                       for stage in (BEFORE, OUTAGE)}
                for kind in KINDS
            },
        }  # fmt: skip
    for kind in KINDS:
        got = slowdowns(medians[kind], 1)
        told[f"{kind}_slowdown"] = got if isinstance(got, str) else [[one.low, one.point, one.high] for one in got]
    return told


def _median(values: Sequence[float]) -> float | None:
    return round(median(values), 3) if values else None


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


def _probed(events: Sequence[Event], arm: str) -> dict[str, list[float]]:
    """Of each topic and outage that was probed, in seconds: when it was first refused, and acknowledged again."""
    bounds = [event.mono_ns for event in events if event.op == STAGE and event.data["arm"] == arm]
    found: dict[str, list[float]] = {"refused": [], "acknowledged": []}
    own: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.op == "produce" and event.data.get("mode") == "probe":
            own[str(event.data["topic"])].append(event)
    for fault in cluster.faults(events):
        if not bounds or fault.heal_ns is None or not min(bounds) <= fault.inject_ns <= max(bounds):
            continue
        heal_ns = fault.heal_ns
        for attempts in own.values():
            short = [one.mono_ns for one in attempts if one.data.get("exception") in TOO_FEW]
            refused = [at_ns for at_ns in short if fault.inject_ns <= at_ns <= heal_ns]
            again = [one.mono_ns for one in attempts if one.outcome == "ok" and int(one.data["sent_ns"]) >= heal_ns]
            found["refused"] += [round((min(refused) - fault.inject_ns) / 1e9, 2)] if refused else []
            found["acknowledged"] += [round((min(again) - heal_ns) / 1e9, 2)] if again else []
    return found
