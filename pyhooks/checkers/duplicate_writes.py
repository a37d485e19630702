"""Records that librdkafka writes twice in an outage, although its producer is idempotent.

When it has to raise its epoch, it sends in-flight records again under the new one, while records that were written
before an error remain (librdkafka 4953; kip/found.md). So such a duplicate is no evidence for or against the brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.record_view import Attempt, Records
from pyhooks.history.event_log import Event
from pyhooks.history.events import CONFLUENT
from pyhooks.history.record_format import parts_of

WHY = "by an idempotent librdkafka in an outage, which may do that by itself (librdkafka 4953)"


class DuplicateWrites:
    """Detector of duplicates that a client may have written by itself, from a whole history and its records."""

    def __init__(self, events: Sequence[Event], records: Records) -> None:
        self._events, self._records = events, records

    @cached_property
    def _cluster(self) -> ClusterView:
        return ClusterView.of(self._events)

    @cached_property
    def _attempts(self) -> dict[tuple[str, str], Attempt]:
        return {(attempt.topic, attempt.key): attempt for attempt in self._records.attempts}

    def possible(self, topic: str, key: str) -> bool:
        """Return whether a record is from an idempotent librdkafka and was in flight in an outage.

        An outage is a fault, until its heal is proved, or an observation in which not all replicas are in sync. If the
        producer did not log the record, the time of its send is unknown, and any fault counts. In a transaction nothing
        is written twice: a transaction with an older epoch is aborted.
        """
        attempt, parts = self._attempts.get((topic, key)), parts_of(key)
        name = attempt.run if attempt else parts[0] if parts else None
        run = self._records.runs.get((name, topic)) if name else None
        if run is None or not run.idempotent or run.client != CONFLUENT:
            return False
        if attempt is None:
            return bool(self._cluster.faults)
        if attempt.txn is not None:
            return False
        in_fault = any(
            fault.inject_ns <= attempt.done_ns and (fault.healed_ns is None or fault.healed_ns >= attempt.sent_ns)
            for fault in self._cluster.faults
        )
        return in_fault or any(
            attempt.sent_ns <= observation.at_ns
            and observation.since_ns <= attempt.done_ns
            and set(observation.isr) != set(observation.replicas)
            for partition, observed in self._cluster.observations.items()
            if partition.topic == topic and attempt.partition in (None, partition.number)
            for observation in observed
        )
