"""Check that a Kafka Streams application with exactly-once semantics counts each record exactly once.

Reads the events of ``pyhooks.workload.streams_app``, arrivals at its target (see ``pyhooks.workload.arrivals``), the
last read_committed ``read`` of its topics, with values, observations, settings and faults (see
``pyhooks.checkers.cluster_view``). Every record of the source has a key of its own, so each count must be 1 and be
written once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from pyhooks.checkers.application_output import Arrival, Output, check_outputs
from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.record_view import COMMITTED, Records
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import ArrivalsDetails, StreamsDetails, StreamsFailureDetails

# A long of value 1, as Kafka Streams serializes it and histories store it.
ONE = "\0" * 7 + "\1"


def streams_outputs(events: Sequence[Event]) -> list[Output]:
    """Return when the counts of each application arrived at a consumer of its target."""
    arrived_ns: defaultdict[str, list[int]] = defaultdict(list)
    for event, one in ArrivalsDetails.each(events):
        arrived_ns[one.topic] += [event.mono_ns - round(ago_ms * 1e6) for ago_ms in one.ago_ms]
    outputs = []
    for application, _, target in _applications(events):
        times_ns = sorted(arrived_ns[target])
        arrivals = tuple(Arrival(at_ns, at_ns) for at_ns in times_ns)
        outputs.append(Output(application, target, arrivals, max(times_ns, default=0)))
    return outputs


def _applications(events: Sequence[Event]) -> list[tuple[str, str, str]]:
    """Return id, source and target of each application."""
    return sorted({(one.application, one.source, one.target) for _, one in StreamsDetails.each(events)})


def check_streams_output(events: Sequence[Event]) -> Verdict:
    """Check the committed output of each application against its committed input.

    Wrong:

    * a record of the input without a count, or with several;
    * a count other than 1: the record was processed twice, or the state lost what it knew;
    * a count of a key that is not in the input;
    * a time at which counts arrived, or did not, against ``check_outputs``.

    Unknown without an application or input, if a topic was not read to its end, or by ``check_outputs``. Exceptions
    that ended threads are notes: the threads were replaced, and the output counts.
    """
    records, found = Records(events), Findings()
    applications = _applications(events)
    check_outputs(streams_outputs(events), ClusterView.of(events), found)
    if not applications:
        found.missing.append("no application in the history")
    for application, source, target in applications:
        given, gaps = records.final(source, COMMITTED)
        counted, more_gaps = records.final(target, COMMITTED)
        missing = [*gaps, *more_gaps]
        found.missing += [f"{application}: {gap}" for gap in missing]
        keys = {key for read in given.values() for key in read.keys.values()}
        written = Counter(key for read in counted.values() for key in read.keys.values())
        values = {
            (key, read.values.get(offset)) for read in counted.values() for offset, key in read.keys.items()
        }  # fmt: skip
        if not keys:
            found.missing.append(f"{application}: no record in {source}")
        absent = sorted(map(str, keys - written.keys()))
        if absent:
            found.add(f"{application}: {len(absent)} records have no count, such as {absent[0]}", certain=not missing)
        for name, wrong in (
            ("were counted more than once", [key for key, count in written.items() if count > 1]),
            ("have another count than 1", [key for key, value in values if value != ONE]),
            (f"are not in {source}", [] if gaps else list(written.keys() - keys)),
        ):
            if wrong:
                found.wrong.append(f"{application}: {len(wrong)} records {name}, such as {min(map(str, wrong))}")
        failures = Counter(
            failure.exception.rpartition(".")[2]
            for _, failure in StreamsFailureDetails.each(events)
            if failure.application == application
        )
        errors = ", ".join(f"{count} with {error}" for error, count in sorted(failures.items())) or "none"
        found.notes.append(f"{application}: {len(keys)} records, {len(written)} counted; failed threads: {errors}")
    return found.verdict("processed")
