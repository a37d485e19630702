"""Check that rejecting the records of many partitions slows other topics no more than accepting them does.

A block (``BlockDetails``) is an interval of an outage in which the latency of some topics is measured. Meanwhile
records of the probed and driven topics are rejected (arm ``gate``) or accepted (``free``, and the identical arm
``again``). A round has one block of each arm. Records of probed topics are sent once, by clients that know the gate's
errors; those of driven topics until they are accepted. Also reads ``ProduceDetails`` and ``ArrivalsDetails``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from pyhooks.checkers import cluster_view
from pyhooks.checkers.record_view import Attempt, attempt_of
from pyhooks.checkers.verdict import Verdict
from pyhooks.core import statistics
from pyhooks.core.statistics import Interval
from pyhooks.history.event_log import Event
from pyhooks.history.events import ArrivalsDetails, BlockDetails, ProduceDetails
from pyhooks.history.outcomes import TOO_FEW_RACKS

GATE, FREE, AGAIN = "gate", "free", "again"
ARMS = (GATE, FREE, AGAIN)
# Maximum relative slowdown of other topics.
BAND = 0.05
CONFIDENCE = 0.95
RESAMPLES = 10_000
# Fewer records, or probes, are no evidence for a block, and fewer rounds are none for an arm.
RECORDS_MIN = 20
PROBES_MIN = 10
# Without outcomes of probes, it is unknown whether records are still rejected, or accepted.
SILENT_S = 2.0
# Records sent before a block in which all are accepted are acknowledged within this time of its start.
HELD_S = 1.0
ROUNDS_MIN = 6
KINDS = ("produce", "fetch")

# arm and round
Name = tuple[str, int]


@dataclass(frozen=True)
class Block:
    """An interval in which latencies are measured.

    Attributes:
        from_ns: its start, monotonic.
        to_ns: its end.
        topics: topics whose latency is measured.
        probed: topics subject to the gate whose records are sent once, so that each attempt has an outcome.
        driven: further topics subject to the gate, whose records are sent until accepted.
    """

    from_ns: int
    to_ns: int
    topics: frozenset[str]
    probed: frozenset[str]
    driven: frozenset[str]

    def has(self, attempt: Attempt) -> bool:
        """Return whether a record was sent in it."""
        return self.from_ns <= attempt.sent_ns < self.to_ns


def blocks(events: Sequence[Event]) -> tuple[dict[Name, Block], list[str]]:
    """Return all blocks that ended, and descriptions of what is wrong with blocks."""
    begun_ns: dict[Name, int] = {}
    found: dict[Name, Block] = {}
    missing: list[str] = []
    for event, edge in BlockDetails.each(events):
        name = edge.arm, edge.round
        if edge.edge == "begin":
            if name in begun_ns:
                missing.append(f"{_text(name)}: begun twice")
            begun_ns[name] = event.mono_ns
        elif name in begun_ns:
            sets = [frozenset(topics) for topics in (edge.topics, edge.probed, edge.driven)]
            if not all(sets):
                missing.append(f"{_text(name)}: nobody is measured, probed or driven")
            found[name] = Block(begun_ns[name], event.mono_ns, *sets)
    missing += [f"{_text(name)}: it did not end" for name in begun_ns if name not in found]
    outages = [one for one in cluster_view.faults(events) if one.proved_ns is not None and one.heal_ns is not None]
    for name, block in found.items():
        if not any((one.proved_ns or 0) <= block.from_ns and block.to_ns <= (one.heal_ns or 0) for one in outages):
            missing.append(f"{_text(name)}: not within an outage that was proved and healed")
    return found, missing


def latencies(events: Sequence[Event], found: Mapping[Name, Block]) -> tuple[dict[str, dict[Name, float]], list[str]]:
    """Return the median latency of each block in milliseconds, by kind, and descriptions of what is missing.

    Both kinds start when a client gets a record. Produce latency is up to its acknowledgement, fetch latency up to its
    arrival at the consumer. A record belongs to the block in which it was sent.
    """
    sent: defaultdict[str, list[Attempt]] = defaultdict(list)
    for event, produced in ProduceDetails.each(events):
        if produced.sent_ns is not None:
            sent[produced.topic].append(attempt_of(event, produced))
    arrived_ns: dict[str, float] = {}
    for event, arrivals in ArrivalsDetails.each(events):
        for key, ago_ms in zip(arrivals.keys, arrivals.ago_ms, strict=True):
            arrived_ns[str(key)] = event.mono_ns - ago_ms * 1e6
    values: dict[str, dict[Name, float]] = {kind: {} for kind in KINDS}
    missing: list[str] = []
    for name, block in found.items():
        missing += _not_as(name, block, sent)
        others = [one for topic in block.topics for one in sent[topic] if block.has(one)]
        taken = [one for one in others if one.outcome == "ok"]
        fetched = [one for one in taken if one.key in arrived_ns]
        if len(fetched) < max(len(others), RECORDS_MIN):
            missing.append(
                f"{_text(name)}: of {len(others)} records of the others {len(taken)} acknowledged, {len(fetched)} "
                f"fetched, and all of at least {RECORDS_MIN} are needed"
            )
        if fetched:
            values["produce"][name] = median(
                (one.done_ns - one.sent_ns) / 1e6 if one.latency_ms is None else one.latency_ms for one in fetched
            )
            values["fetch"][name] = median((arrived_ns[one.key] - one.sent_ns) / 1e6 for one in fetched)
    return values, missing


def _not_as(name: Name, block: Block, sent: Mapping[str, Sequence[Attempt]]) -> list[str]:
    """Describe topics not rejected, or not accepted, throughout a block as its arm requires, silent or not driven.

    Probes count if they were sent and finished in the block.
    """
    wrong: list[str] = []
    for topic in sorted(block.probed):
        # A later outcome may be due to the requirement of the next block.
        mine = [one for one in sent[topic] if block.has(one) and one.done_ns <= block.to_ns]
        probes = [one for one in mine if one.mode == "probe"]
        refused = sum(one.exception in TOO_FEW_RACKS for one in probes)
        taken = sum(one.outcome == "ok" for one in probes)
        if len(probes) < PROBES_MIN or len(probes) != (refused if name[0] == GATE else taken):
            wrong.append(
                f"{_text(name)}: of {len(probes)} attempts at {topic} {refused} refused for want of racks, {taken} "
                f"acknowledged, and all of at least {PROBES_MIN} are needed"
            )
        moments_ns = [block.from_ns, *sorted(one.done_ns for one in probes), block.to_ns]
        silent_s = max(later - earlier for earlier, later in pairwise(moments_ns)) / 1e9
        if silent_s > SILENT_S:
            wrong.append(f"{_text(name)}: {silent_s:.1f} s without an answer of {topic}")
    for topic in sorted(block.driven):
        mine = [one for one in sent[topic] if one.done_ns >= block.from_ns]
        if not any(one.sent_ns < block.to_ns for one in mine):
            wrong.append(f"{_text(name)}: nobody drove {topic}")
        before = [one for one in mine if one.sent_ns < block.from_ns]
        if name[0] != GATE and (held := sum(one.done_ns > block.from_ns + HELD_S * 1e9 for one in before)):
            wrong.append(f"{_text(name)}: {held} records of {topic} that were held back before were sent in it")
    return wrong


def _text(name: Name) -> str:
    return f"{name[0]}, round {name[1]}"


def ratios(medians: Mapping[Name, float], seed: int) -> tuple[Interval, Interval] | str:
    """Return how much slower other topics are while records are rejected, and the same ratio of two identical arms.

    Each pair is a block and another one of its round. The second interval should be around 1.

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
    """Check that rejecting many partitions' records slows other topics by less than 5 % compared with accepting them.

    Medians are compared. Wrong if the whole interval is above that. Unknown if the interval includes it, or if two
    identical arms may differ by as much. Also unknown, whatever the ratio:

    * records that were not rejected, or accepted, throughout as required;
    * blocks that are missing, too short, or not in an outage;
    * records of the other topics that were not acknowledged or not fetched;
    * two seconds without an outcome of a probe.

    Args:
        events: a whole history.
        seed: random seed of the resamples.
    """
    found, missing = blocks(events)
    medians, more = latencies(events, found)
    if missing or more:
        # The arms may not have been what their names say.
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
    """Return the median latency of each arm in milliseconds, and both ratios with intervals, or why there are none."""
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
