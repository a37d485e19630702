"""Check that the gate's gauges show correct values in time, and that its meter counts the clients' rejections.

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
from pyhooks.checkers.cluster_view import RecordedFault
from pyhooks.checkers.expected_gauges import COUNTS, GAUGES, LEADER_GAUGES, REPLICA_GAUGE, Key, Truth
from pyhooks.checkers.record_view import Records
from pyhooks.checkers.refusals import KNOWS_RACKS
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import IntendDetails, MetricsDetails
from pyhooks.history.outcomes import ERRORS

NS = 1_000_000_000
# Maximum lateness of a gauge.
BEHIND_S = 2.0
# How long a broker may take to create the log of a new partition, whose gauges appear with it. The maximum observed was
# 3 s, on two cores with two labs, for a broker that was polled for the first time.
COMES_S = 10.0
# One poll a second, and half a second if one is late: a longer silence leaves a second of the outage unobserved.
SILENT_S = 2.5
# A response shows values from any moment between poll and response, so this adds to the lateness of a gauge. A slower
# response is evidence only if nothing changed meanwhile.
QUICK_S = 0.5
METER = "RackCheckFailureRate.Count"
RACK_GAUGES = tuple(name for name in (*GAUGES, *COUNTS.values()) if "Rack" in name)
REFUSED = frozenset({f"{ERRORS}.NotEnoughRacksException", f"{ERRORS}.NotEnoughRacksAfterAppendException"})
SHOWN_MAX = 12


@dataclass(frozen=True)
class GaugeSample:
    """Response of one broker to a poll, with values from some moment of an interval.

    Attributes:
        broker: node id.
        from_ns: when it was polled.
        to_ns: when the response arrived.
        values: value by topic and partition, or None for both, and the metric's name.
    """

    broker: int
    from_ns: int
    to_ns: int
    values: Mapping[tuple[str | None, int | None, str], float]

    @property
    def quick(self) -> bool:
        """Whether the response took no longer than ``QUICK_S``."""
        return self.to_ns - self.from_ns <= QUICK_S * NS


def samples(events: Sequence[Event]) -> dict[int, list[GaugeSample]]:
    """Return the polls with a response, by broker and in order of time."""
    found: defaultdict[int, list[GaugeSample]] = defaultdict(list)
    for event, response in MetricsDetails.each(events):
        to_ns = event.mono_ns + round(response.took_ms * 1e6)
        values = dict(_values(response))
        found[response.broker].append(GaugeSample(response.broker, event.mono_ns, to_ns, values))
    return {broker: sorted(own, key=lambda one: one.from_ns) for broker, own in found.items()}


def _values(response: MetricsDetails) -> Iterator[tuple[tuple[str | None, int | None, str], float]]:
    for name, value in response.values.items():
        if value is not None:
            yield (None, None, name), float(value)
    for key, cells in response.partitions.items():
        topic, _, number = key.rpartition("-")
        for name, value in zip(response.columns, cells, strict=True):
            if value is not None:
                yield (topic, int(number), name), float(value)


def check_metrics(events: Sequence[Event]) -> Verdict:
    """Check that each gauge of each responding broker was true at some moment since ``BEHIND_S`` before the poll.

    It is unknown when gauges were read between poll and response. So a response that took longer than ``QUICK_S`` is
    ignored, unless each gauge had a single true value from ``BEHIND_S`` before the poll to the response. A gauge that
    passes was thus late by no more than ``BEHIND_S`` and ``QUICK_S`` together. The maximum lateness of each gauge at
    the response is a note.

    Wrong:

    * another value;
    * a missing gauge that an unfenced broker should have had for ``COMES_S``, or for ``BEHIND_S`` if it had the replica
      before;
    * a leader gauge on an unfenced broker that does not lead.

    Unknown:

    * a metadata log that is missing or incomplete;
    * a broker that is neither fenced nor under a fault and does not respond for more than ``SILENT_S`` of a fault;
    * no fault;
    * a rack gauge that was always 0 in all faults, since a gauge that does not work would be, too.

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
    """Return how late gauges were; no verdict.

    Args:
        events: a whole history.

    Returns:
        ``polls``: number of polls that could be compared with the truth; ``late_s``: by gauge, the longest time in
        seconds since its value had last been true when the response arrived. Values that were not true since
        ``BEHIND_S`` before the poll are excluded: the checker reports them.
    """
    truth = Truth(events)
    judged, _, latest = _compare(truth, _telling(truth, samples(events)))
    return {"polls": len(judged), "late_s": {name: round(late, 3) for name, late in sorted(latest.items())}}


def _telling(truth: Truth, polled: Mapping[int, Sequence[GaugeSample]]) -> dict[int, list[GaugeSample]]:
    """Return samples that were quick, or taken while nothing changed, so that the time of reading does not matter."""

    def unchanged(one: GaugeSample) -> bool:
        window = round(one.from_ns - BEHIND_S * NS), one.to_ns + truth.error_ns
        return all(len(truth.within(key, *window)) == 1 for key in truth.keys if key[0] == one.broker)

    return {broker: [one for one in own if one.quick or unchanged(one)] for broker, own in polled.items()}


def _compare(
    truth: Truth, polled: Mapping[int, Sequence[GaugeSample]]
) -> tuple[list[GaugeSample], list[str], dict[str, float]]:
    """Return the samples that can be judged, what is wrong with them, and the maximum lateness of gauges in seconds."""
    judged: list[GaugeSample] = []
    wrong: list[str] = []
    latest: dict[str, float] = {}
    keys: defaultdict[int, list[Key]] = defaultdict(list)
    for key in truth.keys:
        keys[key[0]].append(key)
    for broker, own in sorted(polled.items()):
        for one in own:
            # The truth must be known from two seconds before the poll until the response.
            if truth.from_ns is None or one.from_ns - BEHIND_S * NS < truth.from_ns or one.to_ns > truth.to_ns:
                continue
            judged.append(one)
            for key in keys[broker]:
                wrong += _untrue(truth, one, key, latest)
    return judged, wrong, latest


def _untrue(truth: Truth, sample: GaugeSample, key: Key, latest: dict[str, float]) -> Iterator[str]:
    """Yield what is wrong with a gauge in a sample; store its maximum lateness in ``latest``."""
    broker, topic, number, name = key
    # If the clock of the truth is behind, a value may be shown before it is recorded as true.
    to_ns = sample.to_ns + truth.error_ns
    true = truth.within(key, round(sample.from_ns - BEHIND_S * NS), to_ns)
    value = sample.values.get((topic, number, name))
    about = f"broker {broker}: {name}{f' of {topic}-{number}' if topic else ''}"
    unfenced = truth.unfenced(broker, round(sample.from_ns - BEHIND_S * NS), to_ns)
    if value is None:
        # A gauge that appears or disappears just then may be absent. A starting broker responds before it has any.
        comes = (broker, topic, number, REPLICA_GAUGE) if name in LEADER_GAUGES else key
        lately = truth.within(comes, round(sample.from_ns - COMES_S * NS), to_ns)
        if None not in true | lately and unfenced:
            yield f"{about} is not there, {min(map(str, true))} is true"
        return
    if true == {None}:
        # A replica just removed, or about to be created, has no leader on this broker. Leader gauges are removed.
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
    truth: Truth, fault: RecordedFault, faults: Sequence[RecordedFault], polled: Mapping[int, Sequence[GaugeSample]]
) -> Iterator[str]:
    """Describe silences of more than ``SILENT_S`` of unfenced brokers under no fault, during one fault."""
    from_ns, to_ns = fault.inject_ns, fault.heal_ns or fault.inject_ns
    for broker in truth.brokers:
        spared = truth.unfenced(broker, from_ns, to_ns) and not _under(broker, from_ns, to_ns, faults, truth)
        if not spared:
            continue
        inside = [one.from_ns for one in polled.get(broker, ()) if from_ns < one.from_ns < to_ns]
        longest_s = max(later - one for one, later in pairwise([from_ns, *inside, to_ns])) / NS
        if longest_s > SILENT_S:
            yield f"broker {broker} did not answer for {longest_s:.1f} s of {fault.op} {fault.rack or fault.broker}"


def _under(broker: int, from_ns: int, to_ns: int, faults: Sequence[RecordedFault], truth: Truth) -> bool:
    racks = truth.racks
    return any(
        one.hits(broker, racks) and one.inject_ns < to_ns and (one.healed_ns or to_ns) > from_ns for one in faults
    )


def check_meter(events: Sequence[Event]) -> Verdict:
    """Check that the meters of all brokers together count as many rejections as producers without retries received.

    The meter counts each partition of each request that is rejected due to too few racks (``ReplicaManager`` of the
    patch series). So every producer must send one record per request, once, and know the error.

    Unknown:

    * a producer that does not meet these conditions;
    * no rejected record;
    * a broker's first poll that is later than the first record, or its last one that is earlier than the last outcome;
    * counts that differ by no more than the lost responses, or by what a broker may have counted before it ended.

    Args:
        events: a whole history.
    """
    records = Records(events)
    missing = [
        f"run {run} does not count refusals: not one record a request, once, by name"
        for run in sorted({str(intend.run) for _, intend in IntendDetails.each(events) if not _counts(intend)})
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
        # A starting broker responds before it has a meter.
        held = [one for one in own if (None, None, METER) in one.values]
        if not held or held[0].to_ns > begun_ns or held[-1].from_ns < ended_ns:
            missing.append(f"broker {broker} was not asked before the first record and after the last one")
        counts = [one.values[None, None, METER] for one in held]
        for one, later in pairwise(counts):
            # The meter of a restarted broker begins at 0.
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


def _counts(intend: IntendDetails) -> bool:
    """Return whether each rejection of a run is one request with one record, with the error that the meter counts."""
    return intend.first_only and intend.mode == "probe" and intend.client in KNOWS_RACKS
