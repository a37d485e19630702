"""Check that a Connect worker's source writes each number once, and that its sink receives each record.

Reads the events of ``pyhooks.workload.connect_worker``, the last read_committed ``read`` of its topics, observations,
settings and faults (see ``pyhooks.checkers.cluster_view``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from pyhooks.checkers.application_output import Arrival, Output, check_outputs
from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.record_view import COMMITTED, Records, offsets_of
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import ConnectDetails, ConnectorStateDetails, SunkDetails


def connect_outputs(events: Sequence[Event]) -> list[Output]:
    """Return when the sink of each worker received records that it had not received before."""
    arrivals: defaultdict[tuple[str, str], list[Arrival]] = defaultdict(list)
    until_ns: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str], int] = {}
    for event, one in ConnectDetails.each(events):
        worker = one.group, one.topic
        until_ns[worker] = max(event.mono_ns, until_ns.get(worker, 0))
        sunk = SunkDetails.of(event)
        highest = max(offsets_of(sunk.offsets), default=-1) if sunk is not None else -1
        if sunk is not None and highest > last.get(worker, -1):
            last[worker] = highest
            arrivals[worker].append(Arrival(sunk.begun_ns, event.mono_ns))
    return [
        Output(group, topic, tuple(arrivals[group, topic]), end_ns)
        for (group, topic), end_ns in sorted(until_ns.items())
    ]


def check_connect_counts(events: Sequence[Event]) -> Verdict:
    """Check the topic of each worker's source, and what its sink received.

    The source commits its offsets in the transactions of its records (exactly-once support); the sink commits offsets
    after records, so that it may receive a record again.

    Wrong:

    * a number that is missing in the topic, though a higher one is there, or that is there twice;
    * numbers that are not in order;
    * a record that the sink did not receive, though it received one after it;
    * a time at which the sink received records, or did not, against ``check_outputs``.

    Unknown without a worker or a number; if the topic was not read to its end; or by ``check_outputs``. Repeated
    deliveries to the sink and failed tasks, which are restarted, are notes.
    """
    records, found, outputs = Records(events), Findings(), connect_outputs(events)
    check_outputs(outputs, ClusterView.of(events), found)
    for output in outputs:
        group, topic = output.name, output.topic
        reads, gaps = records.final(topic, COMMITTED)
        found.missing += [f"{group}: {gap}" for gap in gaps]
        written = [(offset, int(key)) for read in reads.values() for offset, key in sorted(read.keys.items()) if key]
        numbers = [number for _, number in written]
        counts = Counter(numbers)
        if not numbers:
            found.missing.append(f"{group}: no number in {topic}")
        if lost := sorted(set(range(max(numbers, default=-1) + 1)) - set(numbers)):
            found.add(f"{group}: {len(lost)} numbers are missing, the first is {lost[0]}", certain=not gaps)
        if twice := sorted(number for number, count in counts.items() if count > 1):
            found.wrong.append(f"{group}: {len(twice)} numbers were written more than once, the first is {twice[0]}")
        elif numbers != sorted(numbers):
            found.wrong.append(f"{group}: numbers are not in order")
        received = Counter(
            offset for _, sunk in SunkDetails.each(events) if sunk.group == group for offset in offsets_of(sunk.offsets)
        )
        skipped = [offset for offset, _ in written if offset < max(received, default=0) and offset not in received]
        if skipped:
            found.wrong.append(f"{group}: the sink skipped {len(skipped)} records, the first at offset {skipped[0]}")
        failed = Counter(
            state.connector
            for _, state in ConnectorStateDetails.each(events)
            if state.group == group and state.state == "FAILED"
        )
        again = sum(count - 1 for count in received.values())
        failures = ", ".join(f"{count} of the {name}" for name, count in sorted(failed.items())) or "none"
        found.notes.append(
            f"{group}: {len(numbers)} numbers; the sink received {len(received)} records, {again} of them again, with"
            f" a pause of {output.longest_pause_s:g} s; failed tasks: {failures}"
        )
    return found.verdict("connected")
