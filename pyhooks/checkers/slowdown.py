"""Does refusing the records of many partitions slow other topics more than taking them does?

Events of process ``test``, op ``block``: ``data`` ``{arm, round, edge, topics, probed, driven}``: a stretch of time in
an outage, from ``edge`` ``begin`` to ``end``, in which the latency of ``topics`` is measured while records of those in
``probed`` and ``driven`` are refused (arm ``gate``) or taken (``free``, and ``again``, which differs from it in
nothing). A round has one of each. Those in ``probed`` are tried once, by clients that know the gate's errors; those in
``driven`` until they are taken.

Beside that ``produce`` events and those of ``pyhooks.workload.arrivals`` are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from pyhooks.checkers import cluster_view
from pyhooks.checkers.verdict import Verdict
from pyhooks.core import statistics
from pyhooks.core.statistics import Interval
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import TOO_FEW_RACKS

GATE, FREE, AGAIN = "gate", "free", "again"
ARMS = (GATE, FREE, AGAIN)
BLOCK = "block"
# what others may be slowed by
BAND = 0.05
CONFIDENCE = 0.95
RESAMPLES = 10_000
# fewer records, or attempts at what is probed, say nothing of a block, and fewer rounds nothing of an arm
RECORDS_MIN = 20
PROBES_MIN = 10
# without an answer of what is probed nobody knows whether it is still as it was
SILENT_S = 2.0
# what is sent before a block in which all is taken is answered soon after it has begun
HELD_S = 1.0
ROUNDS_MIN = 6
KINDS = ("produce", "fetch")

# arm and round
Name = tuple[str, int]


@dataclass(frozen=True)
class Block:
    """A stretch of time in which latencies are measured.

    Attributes:
        from_ns: its beginning, monotonic.
        to_ns: its end.
        topics: of which topics.
        probed: topics that the gate is about, with attempts that each tell of it.
        driven: further ones.
    """

    from_ns: int
    to_ns: int
    topics: frozenset[str]
    probed: frozenset[str]
    driven: frozenset[str]

    def holds(self, event: Event) -> bool:
        """Whether a record was sent in it."""
        return self.from_ns <= int(event.data["sent_ns"]) < self.to_ns


def blocks(events: Sequence[Event]) -> tuple[dict[Name, Block], list[str]]:
    """All blocks that ended, and what is wrong with them, in words."""
    begun: dict[Name, Event] = {}
    found: dict[Name, Block] = {}
    missing: list[str] = []
    for event in events:
        if (event.process, event.op) == ("test", BLOCK):
            data = event.data
            name = str(data["arm"]), int(data["round"])
            if data["edge"] == "begin":
                if name in begun:
                    missing.append(f"{_words(name)}: begun twice")
                begun[name] = event
            elif name in begun:
                sets = [frozenset(map(str, data[which])) for which in ("topics", "probed", "driven")]
                if not all(sets):
                    missing.append(f"{_words(name)}: nobody is measured, probed or driven")
                found[name] = Block(begun[name].mono_ns, event.mono_ns, *sets)
    missing += [f"{_words(name)}: it did not end" for name in begun if name not in found]
    outages = [one for one in cluster_view.faults(events) if one.proved_ns is not None and one.heal_ns is not None]
    for name, block in found.items():
        if not any((one.proved_ns or 0) <= block.from_ns and block.to_ns <= (one.heal_ns or 0) for one in outages):
            missing.append(f"{_words(name)}: not within an outage that was proved and healed")
    return found, missing


def latencies(events: Sequence[Event], found: Mapping[Name, Block]) -> tuple[dict[str, dict[Name, float]], list[str]]:
    """The median latency of each block, by what was done, in milliseconds, and what is missing, in words.

    Produce: from the moment at which a client got a record to its acknowledgement; fetch: to its arrival at the
    consumer. A record belongs to the block in which it was sent.
    """
    sent: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.op == "produce" and event.data.get("sent_ns") is not None:
            sent[str(event.data["topic"])].append(event)
    came: dict[str, float] = {}
    for event in events:
        if event.op == "fetched":
            for key, ago_ms in zip(event.data["keys"], event.data["ago_ms"], strict=True):
                came[str(key)] = event.mono_ns - float(ago_ms) * 1e6
    values: dict[str, dict[Name, float]] = {kind: {} for kind in KINDS}
    missing: list[str] = []
    for name, block in found.items():
        missing += _not_as(name, block, sent)
        others = [one for topic in block.topics for one in sent[topic] if block.holds(one)]
        taken = [one for one in others if one.outcome == "ok"]
        there = [one for one in taken if str(one.data["key"]) in came]
        if len(there) < max(len(others), RECORDS_MIN):
            missing.append(
                f"{_words(name)}: of {len(others)} records of the others {len(taken)} acknowledged, {len(there)} "
                f"fetched, and all of at least {RECORDS_MIN} are needed"
            )
        if there:
            values["produce"][name] = median(float(one.data["latency_ms"]) for one in there)
            values["fetch"][name] = median(
                (came[str(one.data["key"])] - int(one.data["sent_ns"])) / 1e6 for one in there
            )
    return values, missing


def _not_as(name: Name, block: Block, sent: Mapping[str, Sequence[Event]]) -> list[str]:
    """Topics that were not refused, or not taken, throughout a block, as its arm wants it, were silent, or undriven.

    Of attempts at what is probed those count that were sent and answered in it.
    """
    wrong: list[str] = []
    for topic in sorted(block.probed):
        # what was answered after it may have met the next one's requirement
        mine = [one for one in sent[topic] if block.holds(one) and one.mono_ns <= block.to_ns]
        probes = [one for one in mine if one.data.get("mode") == "probe"]
        refused = sum(one.data.get("exception") in TOO_FEW_RACKS for one in probes)
        taken = sum(one.outcome == "ok" for one in probes)
        if len(probes) < PROBES_MIN or len(probes) != (refused if name[0] == GATE else taken):
            wrong.append(
                f"{_words(name)}: of {len(probes)} attempts at {topic} {refused} refused for want of racks, {taken} "
                f"acknowledged, and all of at least {PROBES_MIN} are needed"
            )
        told_ns = [block.from_ns, *sorted(one.mono_ns for one in probes), block.to_ns]
        silent_s = max(later - earlier for earlier, later in pairwise(told_ns)) / 1e9
        if silent_s > SILENT_S:
            wrong.append(f"{_words(name)}: {silent_s:.1f} s without an answer of {topic}")
    for topic in sorted(block.driven):
        mine = [one for one in sent[topic] if one.mono_ns >= block.from_ns]
        if not any(int(one.data["sent_ns"]) < block.to_ns for one in mine):
            wrong.append(f"{_words(name)}: nobody drove {topic}")
        before = [one for one in mine if int(one.data["sent_ns"]) < block.from_ns]
        if name[0] != GATE and (held := sum(one.mono_ns > block.from_ns + HELD_S * 1e9 for one in before)):
            wrong.append(f"{_words(name)}: {held} records of {topic} that were held back before were sent in it")
    return wrong


def _words(name: Name) -> str:
    return f"{name[0]}, round {name[1]}"


def ratios(medians: Mapping[Name, float], seed: int) -> tuple[Interval, Interval] | str:
    """How much slower others are while records are refused, and the same of two arms that do not differ.

    Each pair is a block by another one of its round. The second interval should be around 1.

    Returns:
        Both intervals, or why there are none.
    """
    rounds = sorted({number for _, number in medians})
    whole = [number for number in rounds if all((arm, number) in medians for arm in ARMS)]
    if len(whole) < ROUNDS_MIN or len(whole) < len(rounds):
        return f"{len(whole)} of {len(rounds)} rounds are whole, at least {ROUNDS_MIN} and all are needed"
    gate, free, again = ([medians[arm, number] for number in whole] for arm in ARMS)
    options: dict[str, Any] = {"confidence": CONFIDENCE, "resamples": RESAMPLES, "seed": seed}
    return statistics.ratio_interval(gate, free, **options), statistics.ratio_interval(again, free, **options)


def check_slowdown(events: Sequence[Event], *, seed: int = 1) -> Verdict:
    """Other topics are slower by less than 5 % while many partitions' records are refused than while they are taken.

    In the median. Wrong if all of the interval is above that. Unknown if the interval reaches across, or if two arms
    that do not differ may differ by as much; and, whatever the ratio is, if what should be refused or taken was not
    throughout, or if blocks are missing, too short, not in an outage, or have records of the other topics that were
    not acknowledged or not fetched, or if nobody was told for two seconds whether records are refused.

    Args:
        events: a whole history.
        seed: of the resamples.
    """
    found, missing = blocks(events)
    medians, more = latencies(events, found)
    if missing or more:
        # the arms may not have been what they are called
        return Verdict.of("slowdown", missing=[*missing, *more])
    wrong: list[str] = []
    notes: list[str] = []
    for kind in KINDS:
        got = ratios(medians[kind], seed)
        if isinstance(got, str):
            missing.append(f"{kind}: {got}")
            continue
        ratio, control = got
        said = f"{kind}: while others are refused it takes {_shown(ratio)} times as long as while they are taken"
        same = f"{kind}: two arms that do not differ: {_shown(control)}"
        notes += [said, same]
        if not control.inside(*statistics.band_ends(BAND)):
            missing.append(f"{said}; {same}")
        elif ratio.low > 1 + BAND:
            wrong.append(said)
        elif ratio.high >= 1 + BAND:
            missing.append(f"{said}: neither below {1 + BAND:g} nor above")
    return Verdict.of("slowdown", wrong=wrong, missing=missing, notes=notes)


def _shown(interval: Interval) -> str:
    return f"{interval.point:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def figures(events: Sequence[Event]) -> dict[str, Any]:
    """The median latency of each arm, in milliseconds, and both ratios with their intervals, or why there are none."""
    medians, _ = latencies(events, blocks(events)[0])
    told: dict[str, Any] = {}
    for kind in KINDS:
        by_arm = {arm: [value for name, value in medians[kind].items() if name[0] == arm] for arm in ARMS}
        got = ratios(medians[kind], 1)
        told[kind] = {
            "latency_ms": {arm: round(median(held), 3) for arm, held in by_arm.items() if held},
            "ratios": got if isinstance(got, str) else [[one.low, one.point, one.high] for one in got],
        }
    return told
