"""Check that the gate's gauges show correct values in time, and that its meter counts the clients' rejections.

Reads the polls of brokers (``pyhooks.lab.metrics``, op ``metric``), the metadata log
(``pyhooks.checkers.expected_gauges``), faults, and the events of producers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedFault
from pyhooks.checkers.expected_gauges import COUNTS, GAUGES, LEADER_GAUGES, REPLICA_GAUGE, Key, Truth
from pyhooks.checkers.record_view import PartitionName, Records
from pyhooks.checkers.rejections import KNOWS_RACKS
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import IntendDetails, MetricsDetails
from pyhooks.history.outcomes import ERRORS

# Maximum lateness of a gauge.
BEHIND_S = 2.0
# How long a broker may take to create the log of a new partition, whose gauges appear with it. The maximum observed was
# 3 s, on two cores with two labs, for a broker that was polled for the first time.
CREATED_S = 10.0
# One poll a second, and half a second if one is late: a longer silence leaves a second of the outage unobserved.
SILENT_S = 2.5
# A response shows values from any moment between poll and response, so this adds to the lateness of a gauge. A slower
# response is evidence only if nothing changed meanwhile.
QUICK_S = 0.5
METER = "RackCheckFailureRate.Count"
RACK_GAUGES = tuple(name for name in (*GAUGES, *COUNTS.values()) if "Rack" in name)
REJECTED = frozenset({f"{ERRORS}.NotEnoughRacksException", f"{ERRORS}.NotEnoughRacksAfterAppendException"})
SHOWN_MAX = 12


@dataclass(frozen=True)
class GaugeSample:
    """Response of one broker to a poll, with values from some moment of an interval."""

    broker: int
    from_ns: int  # when it was polled
    to_ns: int  # when the response arrived
    # value by topic and partition, or None for both, and the metric's name
    values: Mapping[tuple[str | None, int | None, str], float]

    @property
    def quick(self) -> bool:
        """Whether the response took no longer than ``QUICK_S``."""
        return self.to_ns - self.from_ns <= QUICK_S * NS


def samples(events: Sequence[Event]) -> dict[int, list[GaugeSample]]:
    """Return the polls with a response, by broker and in order of time."""
    samples_by_broker: defaultdict[int, list[GaugeSample]] = defaultdict(list)
    for event, response in MetricsDetails.each(events):
        to_ns = event.mono_ns + round(response.latency_ms * 1e6)
        values = dict(_values(response))
        samples_by_broker[response.broker].append(GaugeSample(response.broker, event.mono_ns, to_ns, values))
    return {broker: sorted(polled, key=lambda sample: sample.from_ns) for broker, polled in samples_by_broker.items()}


def _values(response: MetricsDetails) -> Iterator[tuple[tuple[str | None, int | None, str], float]]:
    for name, value in response.values.items():
        if value is not None:
            yield (None, None, name), float(value)
    for key, cells in response.partitions.items():
        for name, value in zip(response.columns, cells, strict=True):
            if value is not None:
                yield (*PartitionName.parse(key), name), float(value)


def check_metrics(events: Sequence[Event]) -> Verdict:
    """Check that each gauge of each responding broker was true at some moment since ``BEHIND_S`` before the poll.

    It is unknown when gauges were read between poll and response. So a response that took longer than ``QUICK_S`` is
    ignored, unless each gauge had a single true value from ``BEHIND_S`` before the poll to the response. A gauge that
    passes was thus late by no more than ``BEHIND_S`` and ``QUICK_S`` together. The maximum lateness of each gauge at
    the response is a note.

    Wrong:

    * another value;
    * a missing gauge that an unfenced broker should have had for ``CREATED_S``, or for ``BEHIND_S`` if it had the
      replica before;
    * a leader gauge on an unfenced broker that does not lead.

    Unknown:

    * a metadata log that is missing or incomplete;
    * a broker that is neither fenced nor under a fault and does not respond for more than ``SILENT_S`` of a fault;
    * no fault;
    * a rack gauge that was always 0 in all faults, since a gauge that does not work would be, too.
    """
    truth = Truth(events)
    faults = [fault for fault in cluster_view.faults(events) if fault.heal_ns is not None]
    polled = samples(events)
    conclusive = _conclusive(truth, polled)
    findings = Findings(missing=list(truth.missing))
    if not faults:
        findings.missing.append("no fault in the history that was healed")
    if truth.from_ns is None:
        return Verdict.of("metrics", missing=findings.missing or ["no expected value is known"])
    judged, wrong, latest = _compare(truth, conclusive)
    findings.wrong += wrong[:SHOWN_MAX]
    if len(wrong) > SHOWN_MAX:
        findings.wrong.append(f"and {len(wrong) - SHOWN_MAX} more")
    if not judged:
        findings.missing.append("no poll of a broker within the time of which the expected values are known")
    nonzero: set[str] = set()
    for sample in judged:
        if any(fault.inject_ns <= sample.from_ns <= (fault.heal_ns or 0) for fault in faults):
            nonzero.update(name for (_, _, name), value in sample.values.items() if value)
    for fault in faults:
        findings.missing += _silences(truth, fault, faults, conclusive)
    findings.missing += [f"{name} showed nothing but 0 in all faults" for name in RACK_GAUGES if name not in nonzero]
    slow = sum(not sample.quick for broker_samples in polled.values() for sample in broker_samples)
    ignored = sum(map(len, polled.values())) - sum(map(len, conclusive.values()))
    findings.notes.append(
        f"{len(judged)} polls judged, {slow} responses took longer than {QUICK_S:g} s, of which {ignored} are ignored,"
        " as gauges changed then"
    )
    findings.notes += [f"{name} was up to {late:.2f} s late" for name, late in sorted(latest.items()) if late]
    return findings.verdict("metrics")


def figures(events: Sequence[Event]) -> dict[str, Any]:
    """Return how late gauges were; no verdict.

    Returns:
        ``polls``: number of polls that could be compared with the truth; ``late_s``: by gauge, the longest time in
        seconds since its value had last been true when the response arrived. Values that were not true since
        ``BEHIND_S`` before the poll are excluded: the checker reports them.
    """
    truth = Truth(events)
    judged, _, latest = _compare(truth, _conclusive(truth, samples(events)))
    return {"polls": len(judged), "late_s": {name: round(late, 3) for name, late in sorted(latest.items())}}


def _conclusive(truth: Truth, polled: Mapping[int, Sequence[GaugeSample]]) -> dict[int, list[GaugeSample]]:
    """Return samples that were quick, or taken while nothing changed, so that the time of reading does not matter."""

    def unchanged(sample: GaugeSample) -> bool:
        window = round(sample.from_ns - BEHIND_S * NS), sample.to_ns + truth.error_ns
        return all(len(truth.within(key, *window)) == 1 for key in truth.keys if key[0] == sample.broker)

    return {
        broker: [sample for sample in broker_samples if sample.quick or unchanged(sample)]
        for broker, broker_samples in polled.items()
    }


def _compare(
    truth: Truth, polled: Mapping[int, Sequence[GaugeSample]]
) -> tuple[list[GaugeSample], list[str], dict[str, float]]:
    """Return the samples that can be judged, their errors, and the maximum lateness of gauges in seconds."""
    judged: list[GaugeSample] = []
    wrong: list[str] = []
    latest: dict[str, float] = {}
    keys: defaultdict[int, list[Key]] = defaultdict(list)
    for key in truth.keys:
        keys[key[0]].append(key)
    for broker, broker_samples in sorted(polled.items()):
        for sample in broker_samples:
            # The truth must be known from two seconds before the poll until the response.
            if truth.from_ns is None or sample.from_ns - BEHIND_S * NS < truth.from_ns or sample.to_ns > truth.to_ns:
                continue
            judged.append(sample)
            for key in keys[broker]:
                wrong += _gauge_problems(truth, sample, key, latest)
    return judged, wrong, latest


def _gauge_problems(truth: Truth, sample: GaugeSample, key: Key, latest: dict[str, float]) -> Iterator[str]:
    """Describe the error of a gauge in a sample; store its maximum lateness in ``latest``."""
    broker, topic, number, name = key
    from_ns = round(sample.from_ns - BEHIND_S * NS)
    # If the clock of the truth is behind, a value may be shown before it is recorded as true.
    to_ns = sample.to_ns + truth.error_ns
    true = truth.within(key, from_ns, to_ns)
    value = sample.values.get((topic, number, name))
    subject = f"broker {broker}: {name}{f' of {topic}-{number}' if topic else ''}"
    unfenced = truth.unfenced(broker, from_ns, to_ns)
    if value is None:
        # A gauge that appears or disappears just then may be absent. A starting broker responds before it has any.
        replica_key = (broker, topic, number, REPLICA_GAUGE) if name in LEADER_GAUGES else key
        lately = truth.within(replica_key, round(sample.from_ns - CREATED_S * NS), to_ns)
        if None not in true | lately and unfenced:
            yield f"{subject} is missing, {min(map(str, true))} is true"
    elif true == {None}:
        # A replica just removed, or about to be created, has no leader on this broker. Leader gauges are removed.
        if value or (name in LEADER_GAUGES and unfenced):
            yield f"{subject} is {value:g} on a broker that does not {'lead' if name in LEADER_GAUGES else 'have'} it"
    elif value not in true and not (None in true and value == 0):
        at_s = (sample.from_ns - (truth.from_ns or 0)) / NS
        values = ", ".join(sorted(map(str, true)))
        yield f"{subject} is {value:g} at {at_s:.1f} s, true within {BEHIND_S:g} s was {values}"
    else:
        late_s = truth.behind_ns(key, value, to_ns) / NS
        latest[name] = max(late_s, latest.get(name, 0.0))


def _silences(
    truth: Truth, fault: RecordedFault, faults: Sequence[RecordedFault], polled: Mapping[int, Sequence[GaugeSample]]
) -> Iterator[str]:
    """Describe silences of more than ``SILENT_S`` of unfenced brokers under no fault, during one fault."""
    from_ns, to_ns = fault.inject_ns, fault.heal_ns or fault.inject_ns
    concurrent = [each for each in faults if each.inject_ns < to_ns and (each.healed_ns or to_ns) > from_ns]
    for broker in truth.brokers:
        hit = any(each.hits(broker, truth.racks) for each in concurrent)
        if hit or not truth.unfenced(broker, from_ns, to_ns):
            continue
        inside = [sample.from_ns for sample in polled.get(broker, ()) if from_ns < sample.from_ns < to_ns]
        longest_s = max(later - earlier for earlier, later in pairwise([from_ns, *inside, to_ns])) / NS
        if longest_s > SILENT_S:
            yield f"broker {broker} did not respond for {longest_s:.1f} s of {fault.name}"


def check_meter(events: Sequence[Event]) -> Verdict:
    """Check that the meters of all brokers together count as many rejections as producers without retries received.

    The meter counts each partition of each request that is rejected due to too few racks (``ReplicaManager`` of the
    patch series). So every producer must send one record per request, once, and know the error.

    Unknown:

    * a producer that does not meet these conditions;
    * no rejected record;
    * a broker's first poll that is later than the first record, or its last one that is earlier than the last outcome;
    * counts that differ by no more than the lost responses, or by rejections that a broker counted
      before it ended.
    """
    attempts = Records(events).attempts
    runs = {str(intend.run) for _, intend in IntendDetails.each(events) if not _is_countable(intend)}
    findings = Findings(
        missing=[
            f"run {run} does not count rejections: not one record a request, once, by name" for run in sorted(runs)
        ]
    )
    rejected = sum(attempt.exception in REJECTED for attempt in attempts)
    lost = sum(attempt.outcome == "unknown" and attempt.exception not in REJECTED for attempt in attempts)
    if not rejected:
        findings.missing.append("no record was rejected due to too few racks")
    counted, resets = 0, 0
    begun_ns = min((attempt.sent_ns for attempt in attempts), default=0)
    ended_ns = max((attempt.done_ns for attempt in attempts), default=0)
    polled = samples(events)
    if not polled:
        findings.missing.append("no poll of a broker")
    for broker, broker_samples in sorted(polled.items()):
        # A starting broker responds before it has a meter.
        metered = [sample for sample in broker_samples if (None, None, METER) in sample.values]
        if not metered or metered[0].to_ns > begun_ns or metered[-1].from_ns < ended_ns:
            findings.missing.append(f"broker {broker} was not polled before the first record and after the last one")
        for before, count in pairwise(sample.values[None, None, METER] for sample in metered):
            # The meter of a restarted broker begins at 0.
            resets += count < before
            counted += round(count - before if count >= before else count)
    counts = f"the meters counted {counted} rejections, producers received {rejected}"
    details = f"{lost} results were lost", f"{resets} meters were reset"
    if not findings.missing and counted != rejected:
        if rejected < counted <= rejected + lost or (counted < rejected and resets):
            return Verdict.of("meter", missing=[f"{counts}: {', '.join(details)}"])
        findings.wrong.append(counts)
    findings.notes += [counts, *details]
    return findings.verdict("meter")


def _is_countable(intend: IntendDetails) -> bool:
    """Return whether each rejection of a run is one request with one record, with the error that the meter counts."""
    return intend.first_only and intend.mode == "probe" and intend.client in KNOWS_RACKS
