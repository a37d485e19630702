"""Check that rejecting the records of many partitions slows other topics no more than accepting them does.

A block (``BlockDetails``) is an interval of an outage in which the latency of some topics is measured. Meanwhile
records of the probed and driven topics are rejected (arm ``gate``) or accepted (``free``, and the identical arm
``again``). A round has one block of each arm. Records of probed topics are sent once, by clients that know the gate's
errors; those of driven topics until they are accepted. Also reads ``ProduceDetails`` and ``ArrivalsDetails``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from pyhooks.checkers import cluster_view
from pyhooks.checkers.record_view import Attempt, attempt_of
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.verdict import Findings, Verdict
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
    """An interval in which latencies are measured."""

    from_ns: int  # its start, monotonic
    to_ns: int
    topics: frozenset[str]  # topics whose latency is measured
    # topics subject to the gate whose records are sent once, so that each attempt has an outcome
    probed: frozenset[str]
    driven: frozenset[str]  # further topics subject to the gate, whose records are sent until accepted

    def has(self, attempt: Attempt) -> bool:
        """Return whether a record was sent in it."""
        return self.from_ns <= attempt.sent_ns < self.to_ns


def blocks(events: Sequence[Event]) -> tuple[dict[Name, Block], list[str]]:
    """Return all blocks that ended, and descriptions of what is wrong with blocks."""
    begun_ns: dict[Name, int] = {}
    ended_blocks: dict[Name, Block] = {}
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
                missing.append(f"{_text(name)}: no topic is measured, probed or driven")
            ended_blocks[name] = Block(begun_ns[name], event.mono_ns, *sets)
    missing += [f"{_text(name)}: it did not end" for name in begun_ns if name not in ended_blocks]
    outages = [
        (fault.proved_ns, fault.heal_ns)
        for fault in cluster_view.faults(events)
        if fault.proved_ns is not None and fault.heal_ns is not None
    ]
    for name, block in ended_blocks.items():
        if not any(proved_ns <= block.from_ns and block.to_ns <= heal_ns for proved_ns, heal_ns in outages):
            missing.append(f"{_text(name)}: not within an outage that was proved and healed")
    return ended_blocks, missing


def latencies(
    events: Sequence[Event], ended_blocks: Mapping[Name, Block]
) -> tuple[dict[str, dict[Name, float]], list[str]]:
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
    for name, block in ended_blocks.items():
        missing += _block_problems(name, block, sent)
        others = [attempt for topic in block.topics for attempt in sent[topic] if block.has(attempt)]
        acked = [attempt for attempt in others if attempt.outcome == "ok"]
        fetched = [attempt for attempt in acked if attempt.key in arrived_ns]
        if len(fetched) < max(len(others), RECORDS_MIN):
            missing.append(
                f"{_text(name)}: of {len(others)} records of other topics {len(acked)} acknowledged, {len(fetched)} "
                f"fetched; required: all, and at least {RECORDS_MIN}"
            )
        if fetched:
            values["produce"][name] = median(
                (fetch.done_ns - fetch.sent_ns) / 1e6 if fetch.latency_ms is None else fetch.latency_ms
                for fetch in fetched
            )
            values["fetch"][name] = median((arrived_ns[fetch.key] - fetch.sent_ns) / 1e6 for fetch in fetched)
    return values, missing


def _block_problems(name: Name, block: Block, sent: Mapping[str, Sequence[Attempt]]) -> Iterator[str]:
    """Describe topics not rejected, or not accepted, throughout a block as its arm requires, silent or not driven.

    Probes count if they were sent and finished in the block.
    """
    for topic in sorted(block.probed):
        # A later outcome may be due to the requirement of the next block.
        probes = [
            attempt
            for attempt in sent[topic]
            if attempt.mode == "probe" and block.has(attempt) and attempt.done_ns <= block.to_ns
        ]
        rejected = sum(attempt.exception in TOO_FEW_RACKS for attempt in probes)
        acked = sum(attempt.outcome == "ok" for attempt in probes)
        if len(probes) < PROBES_MIN or len(probes) != (rejected if name[0] == GATE else acked):
            yield (
                f"{_text(name)}: of {len(probes)} attempts at {topic} {rejected} rejected due to too few racks, "
                f"{acked} acknowledged; required: all, and at least {PROBES_MIN}"
            )
        moments_ns = [block.from_ns, *sorted(attempt.done_ns for attempt in probes), block.to_ns]
        silent_s = max(later - earlier for earlier, later in pairwise(moments_ns)) / NS
        if silent_s > SILENT_S:
            yield f"{_text(name)}: {silent_s:.1f} s without a result of {topic}"
    for topic in sorted(block.driven):
        ended = [attempt for attempt in sent[topic] if attempt.done_ns >= block.from_ns]
        if not any(attempt.sent_ns < block.to_ns for attempt in ended):
            yield f"{_text(name)}: no record was sent to {topic}"
        held_ns = block.from_ns + HELD_S * NS
        held = sum(attempt.sent_ns < block.from_ns and attempt.done_ns > held_ns for attempt in ended)
        if held and name[0] != GATE:
            yield f"{_text(name)}: {held} records of {topic} that were held back before were sent in it"


def _text(name: Name) -> str:
    return f"{name[0]}, round {name[1]}"


def ratios(medians: Mapping[Name, float]) -> tuple[Interval, Interval] | str:
    """Return how much slower other topics are while records are rejected, and the same ratio of two identical arms.

    Each pair is a block and another one of its round. The second interval should be around 1.

    Returns:
        Both intervals, or why there are none.
    """
    rounds = sorted({number for _, number in medians})
    complete = [number for number in rounds if all((arm, number) in medians for arm in ARMS)]
    if len(complete) < ROUNDS_MIN or len(complete) < len(rounds):
        return f"{len(complete)} of {len(rounds)} rounds are complete; required: all, and at least {ROUNDS_MIN}"
    gate, free, again = ([medians[arm, number] for number in complete] for arm in ARMS)
    return statistics.ratio_interval(gate, free, CONFIDENCE), statistics.ratio_interval(again, free, CONFIDENCE)


def check_slowdown(events: Sequence[Event]) -> Verdict:
    """Check that rejecting many partitions' records slows other topics by less than 5 % compared with accepting them.

    Medians are compared. Wrong if the whole interval is above that. Unknown if the interval includes it, or if two
    identical arms may differ by as much. Also unknown, whatever the ratio:

    * records that were not rejected, or accepted, throughout as required;
    * blocks that are missing, too short, or not in an outage;
    * records of the other topics that were not acknowledged or not fetched;
    * two seconds without an outcome of a probe.
    """
    ended_blocks, missing = blocks(events)
    medians, more = latencies(events, ended_blocks)
    if missing or more:
        # The arms may not have rejected or accepted records as their names state.
        return Verdict.of("slowdown", missing=[*missing, *more])
    result = Findings()
    for kind in KINDS:
        intervals = ratios(medians[kind])
        if isinstance(intervals, str):
            result.missing.append(f"{kind}: {intervals}")
            continue
        ratio, control = intervals
        slowdown = f"{kind}: while other records are rejected it takes {_shown(ratio)} times as long as while accepted"
        difference = f"{kind}: two identical arms: {_shown(control)}"
        result.notes += [slowdown, difference]
        if not control.inside(*statistics.band_ends(BAND)):
            result.missing.append(f"{slowdown}; {difference}")
        elif ratio.low > 1 + BAND:
            result.wrong.append(slowdown)
        elif ratio.high >= 1 + BAND:
            result.missing.append(f"{slowdown}: neither below {1 + BAND:g} nor above")
    return result.verdict("slowdown")


def _shown(interval: Interval) -> str:
    return f"{interval.point:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def figures(events: Sequence[Event]) -> dict[str, Any]:
    """Return the median latency of each arm in milliseconds, and both ratios with intervals, or why there are none."""
    medians, _ = latencies(events, blocks(events)[0])
    result: dict[str, Any] = {}
    for kind in KINDS:
        by_arm = {arm: [value for name, value in medians[kind].items() if name[0] == arm] for arm in ARMS}
        intervals = ratios(medians[kind])
        result[kind] = {
            "latency_ms": {arm: round(median(values), 3) for arm, values in by_arm.items() if values},
            "ratios": intervals
            if isinstance(intervals, str)
            else [[interval.low, interval.point, interval.high] for interval in intervals],
        }
    return result
