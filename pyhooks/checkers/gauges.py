"""Do the metrics of the gate tell the truth, soon enough, and does the meter count what clients were refused?

Reads the polls of brokers (``pyhooks.lab.metrics``, op ``metric``), the metadata log
(``pyhooks.checkers.expected_gauges``), faults, and the events of producers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import Fault
from pyhooks.checkers.expected_gauges import COUNTS, GAUGES, LEADER_GAUGES, REPLICA_GAUGE, Key, Truth
from pyhooks.checkers.record_view import Records
from pyhooks.checkers.refusals import KNOWS_RACKS
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import ERRORS

NS = 1_000_000_000
# how late a gauge may be
BEHIND_S = 2.0
# How long a broker may take to make the log of a new partition, whose gauges come with it: 3 s were seen on two cores
# with two labs, of a broker that was asked for its metrics for the first time.
COMES_S = 10.0
# A poll a second, and half a second for one that is late: a longer silence leaves a second of the outage out.
SILENT_S = 2.5
# An answer is of some moment of the time that it took. So this is added to how late a gauge may be; one that took
# longer tells something only where nothing changed at all.
QUICK_S = 0.5
METER = "RackCheckFailureRate.Count"
RACK_GAUGES = tuple(name for name in (*GAUGES, *COUNTS.values()) if "Rack" in name)
REFUSED = frozenset({f"{ERRORS}.NotEnoughRacksException", f"{ERRORS}.NotEnoughRacksAfterAppendException"})
SHOWN_MAX = 12


@dataclass(frozen=True)
class Sample:
    """What one broker told at some moment of a stretch of time.

    Attributes:
        broker: node id.
        from_ns: when it was asked.
        to_ns: when the answer was there.
        values: by topic and partition, or None for both, and the metric's name.
    """

    broker: int
    from_ns: int
    to_ns: int
    values: Mapping[tuple[str | None, int | None, str], float]

    @property
    def quick(self) -> bool:
        """Whether it took no longer than gauges are judged by."""
        return self.to_ns - self.from_ns <= QUICK_S * NS


def samples(events: Sequence[Event]) -> dict[int, list[Sample]]:
    """The polls of brokers that were answered, by broker and in the order of time."""
    found: defaultdict[int, list[Sample]] = defaultdict(list)
    for event in events:
        if (event.process, event.op, event.outcome) == ("metrics", "metric", "ok"):
            broker = int(event.data["broker"])
            to_ns = event.mono_ns + round(float(event.data["took_ms"]) * 1e6)
            found[broker].append(Sample(broker, event.mono_ns, to_ns, dict(_values(event))))
    return {broker: sorted(own, key=lambda one: one.from_ns) for broker, own in found.items()}


def _values(event: Event) -> Iterator[tuple[tuple[str | None, int | None, str], float]]:
    for name, value in event.data["values"].items():
        if value is not None:
            yield (None, None, str(name)), float(value)
    for key, cells in event.data["partitions"].items():
        topic, _, number = str(key).rpartition("-")
        for name, value in zip(event.data["columns"], cells, strict=True):
            if value is not None:
                yield (topic, int(number), str(name)), float(value)


def check_metrics(events: Sequence[Event]) -> Verdict:
    """Each gauge of each broker that answers shows a value that was true at most two seconds before it was asked.

    An answer that took longer than ``QUICK_S`` counts as none unless one value of each gauge was true from ``BEHIND_S``
    before the question to the answer, since nobody knows when in that time gauges were read: so a gauge that passes was
    late by no more than ``BEHIND_S`` and ``QUICK_S`` together. How late each was at most is
    told, reckoned to the moment of the answer.

    Wrong is another value; a gauge that a broker that is not fenced ought to have since ``COMES_S``, or ``BEHIND_S`` if
    it had the replica before, and does not show; and a gauge of leaders on such a broker that does not lead. Unknown: a
    metadata log that is not there, or not whole; a broker that is neither fenced nor under a fault and does not answer
    for more than ``SILENT_S`` of a fault; no fault; a gauge of racks that showed nothing but 0 in all faults, since one
    that does nothing at all would show that too.

    Args:
        events: a whole history.
    """
    truth = Truth(events)
    faults = [one for one in cluster_view.faults(events) if one.heal_ns is not None]
    every = samples(events)
    polled = _telling(truth, every)
    missing = list(truth.missing)
    if not faults:
        missing.append("no fault in the history that was healed")
    if truth.from_ns is None:
        return Verdict.of("metrics", missing=missing or ["nothing tells what is true"])
    judged, wrong, latest = _compare(truth, polled)
    shown: Counter[str] = Counter()
    for one in judged:
        if any(fault.inject_ns <= one.from_ns <= (fault.heal_ns or 0) for fault in faults):
            shown.update({name for (_, _, name), value in one.values.items() if value})
    missing += [] if judged else ["no poll of a broker within the time of which the truth is known"]
    for fault in faults:
        missing += _silences(truth, fault, faults, polled)
    missing += [f"{name} showed nothing but 0 in all faults" for name in RACK_GAUGES if not shown[name]]
    slow = sum(not one.quick for own in every.values() for one in own)
    untold = sum(map(len, every.values())) - sum(map(len, polled.values()))
    told = f"{len(judged)} polls judged, {slow} answers took longer than {QUICK_S:g} s"
    notes = [f"{told}, of which {untold} tell nothing, as gauges changed then"]
    notes += [f"{name} was up to {late:.2f} s late" for name, late in sorted(latest.items()) if late]
    if len(wrong) > SHOWN_MAX:
        wrong = [*wrong[:SHOWN_MAX], f"and {len(wrong) - SHOWN_MAX} more"]
    return Verdict.of("metrics", wrong=wrong, missing=missing, notes=notes)


def figures(events: Sequence[Event]) -> dict[str, Any]:
    """How late gauges were; it judges nothing.

    Args:
        events: a whole history.

    Returns:
        ``polls``: how many of a broker could be compared with the truth; ``late_s``: for each gauge for how long, in
        seconds, what it showed had not been true any more when the answer was there, at most. What was not true within
        ``BEHIND_S`` before the question is none of it: the checker tells of that.
    """
    truth = Truth(events)
    judged, _, latest = _compare(truth, _telling(truth, samples(events)))
    return {"polls": len(judged), "late_s": {name: round(late, 3) for name, late in sorted(latest.items())}}


def _telling(truth: Truth, polled: Mapping[int, Sequence[Sample]]) -> dict[int, list[Sample]]:
    """Those that were quick, or of a time in which nothing changed: then it does not matter when gauges were read."""

    def unchanged(one: Sample) -> bool:
        window = round(one.from_ns - BEHIND_S * NS), one.to_ns + truth.error_ns
        return all(len(truth.within(key, *window)) == 1 for key in truth.keys if key[0] == one.broker)

    return {broker: [one for one in own if one.quick or unchanged(one)] for broker, own in polled.items()}


def _compare(truth: Truth, polled: Mapping[int, Sequence[Sample]]) -> tuple[list[Sample], list[str], dict[str, float]]:
    """The polls that can be judged, what is wrong with them, and how late each gauge was at most, in seconds."""
    judged: list[Sample] = []
    wrong: list[str] = []
    latest: dict[str, float] = {}
    keys: defaultdict[int, list[Key]] = defaultdict(list)
    for key in truth.keys:
        keys[key[0]].append(key)
    for broker, own in sorted(polled.items()):
        for one in own:
            # what held up to two seconds before must be known, and until the answer
            if truth.from_ns is None or one.from_ns - BEHIND_S * NS < truth.from_ns or one.to_ns > truth.to_ns:
                continue
            judged.append(one)
            for key in keys[broker]:
                wrong += _untrue(truth, one, key, latest)
    return judged, wrong, latest


def _untrue(truth: Truth, sample: Sample, key: Key, latest: dict[str, float]) -> Iterator[str]:
    """What is wrong with a gauge in a sample; how late it was goes into ``latest``."""
    broker, topic, number, name = key
    # what is true a moment later by a clock that is behind may be shown already
    to_ns = sample.to_ns + truth.error_ns
    true = truth.within(key, round(sample.from_ns - BEHIND_S * NS), to_ns)
    value = sample.values.get((topic, number, name))
    about = f"broker {broker}: {name}{f' of {topic}-{number}' if topic else ''}"
    unfenced = truth.unfenced(broker, round(sample.from_ns - BEHIND_S * NS), to_ns)
    if value is None:
        # one that comes or goes just then need not be there, and a broker that starts answers before it has any
        comes = (broker, topic, number, REPLICA_GAUGE) if name in LEADER_GAUGES else key
        lately = truth.within(comes, round(sample.from_ns - COMES_S * NS), to_ns)
        if None not in true | lately and unfenced:
            yield f"{about} is not there, {min(map(str, true))} is true"
        return
    if true == {None}:
        # What a broker has just been rid of, or is about to get, has no leader there. Gauges of leaders are removed.
        if value or (name in LEADER_GAUGES and unfenced):
            has = "lead" if name in LEADER_GAUGES else "have"
            yield f"{about} is {value:g} on a broker that does not {has} it"
        return
    if value not in true and not (None in true and value == 0):
        at_s = (sample.from_ns - (truth.from_ns or 0)) / NS
        told = ", ".join(sorted(map(str, true)))
        yield f"{about} is {value:g} at {at_s:.1f} s, true within {BEHIND_S:g} s was {told}"
    else:
        late_s = truth.behind_ns(key, value, to_ns) / NS
        latest[name] = max(late_s, latest.get(name, 0.0))


def _silences(
    truth: Truth, fault: Fault, faults: Sequence[Fault], polled: Mapping[int, Sequence[Sample]]
) -> Iterator[str]:
    """Stretches of a fault in which a broker that lives and is under no fault does not answer."""
    from_ns, to_ns = fault.inject_ns, fault.heal_ns or fault.inject_ns
    for broker in truth.brokers:
        spared = truth.unfenced(broker, from_ns, to_ns) and not _under(broker, from_ns, to_ns, faults, truth)
        if not spared:
            continue
        inside = [one.from_ns for one in polled.get(broker, ()) if from_ns < one.from_ns < to_ns]
        longest_s = max(later - one for one, later in pairwise([from_ns, *inside, to_ns])) / NS
        if longest_s > SILENT_S:
            yield f"broker {broker} did not answer for {longest_s:.1f} s of {fault.op} {fault.rack or fault.broker}"


def _under(broker: int, from_ns: int, to_ns: int, faults: Sequence[Fault], truth: Truth) -> bool:
    racks = truth.racks
    return any(
        one.hits(broker, racks) and one.inject_ns < to_ns and (one.healed_ns or to_ns) > from_ns for one in faults
    )


def check_meter(events: Sequence[Event]) -> Verdict:
    """The meters of all brokers together count as many refusals as producers were told that try everything once.

    The meter counts each partition of each request that is refused for want of racks (``ReplicaManager`` of the patch
    series): so every producer must send one record a request, once, and know the error's name. Unknown
    if one does not, if records were refused by nobody, if a broker's first poll is later than the first record, or its
    last one earlier than the last answer; and where the counts differ by no more than answers that were lost, or
    by what a broker may have counted before it ended.

    Args:
        events: a whole history.
    """
    records = Records(events)
    missing = [
        f"run {run} does not count refusals: not one record a request, once, by name"
        for run in sorted({str(event.data["run"]) for event in events if event.op == "intend" and not _counts(event)})
    ]
    told = sum(attempt.exception in REFUSED for attempt in records.attempts)
    lost = sum(attempt.outcome == "unknown" and attempt.exception not in REFUSED for attempt in records.attempts)
    if not told:
        missing.append("no record was refused for want of racks")
    counted, resets = 0, 0
    begun_ns = min((attempt.sent_ns for attempt in records.attempts), default=0)
    ended_ns = max((attempt.done_ns for attempt in records.attempts), default=0)
    polled = samples(events)
    missing += [] if polled else ["no poll of a broker"]
    for broker, own in sorted(polled.items()):
        # a broker that starts answers before it has a meter
        held = [one for one in own if (None, None, METER) in one.values]
        if not held or held[0].to_ns > begun_ns or held[-1].from_ns < ended_ns:
            missing.append(f"broker {broker} was not asked before the first record and after the last one")
        counts = [one.values[None, None, METER] for one in held]
        for one, later in pairwise(counts):
            # a broker that was started again begins anew
            resets += later < one
            counted += round(later - one if later >= one else later)
    said = f"the meters counted {counted} refusals, producers were told {told}"
    notes = [said, f"{lost} answers were lost", f"{resets} brokers began anew"]
    if missing:
        return Verdict.of("meter", missing=missing, notes=notes)
    if counted == told:
        return Verdict.of("meter", notes=notes)
    if told < counted <= told + lost or (counted < told and resets):
        return Verdict.of("meter", missing=[f"{said}: {lost} answers were lost, {resets} brokers began anew"])
    return Verdict.of("meter", wrong=[said], notes=notes)


def _counts(intend: Event) -> bool:
    """Whether each refusal of a run is one request of one record, and is told by the name that the meter stands for."""
    data = intend.data
    return bool(data["first_only"]) and data["mode"] == "probe" and data["client"] in KNOWS_RACKS
