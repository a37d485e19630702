"""Records that librdkafka writes twice in an outage, although its producer is idempotent.

When it has to raise its epoch, it sends in-flight records again under the new one, while records that were written
before an error remain (librdkafka 4953; kip/found.md). So such a duplicate is no evidence for or against the brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedFault, RecordedPartition
from pyhooks.checkers.record_view import Attempt, Place, RecordedRun, Records
from pyhooks.history.event_log import Event
from pyhooks.history.events import CONFLUENT
from pyhooks.history.record_format import parts_of

WHY = "by an idempotent librdkafka in an outage, which may do that by itself (librdkafka 4953)"


class Doubled:
    """Detector of duplicates that may be the client's own.

    Args:
        events: a whole history.
        records: its records.
    """

    def __init__(self, events: Sequence[Event], records: Records) -> None:
        self._events, self._records = events, records

    @cached_property
    def _faults(self) -> Sequence[RecordedFault]:
        return cluster_view.faults(self._events)

    @cached_property
    def _looks(self) -> dict[Place, list[RecordedPartition]]:
        return cluster_view.observations(self._events)

    @cached_property
    def _attempts(self) -> dict[tuple[str, str], Attempt]:
        return {(one.topic, one.key): one for one in self._records.attempts}

    def own(self, topic: str, key: str) -> bool:
        """Return whether a record is from an idempotent librdkafka and was in flight in an outage.

        An outage is a fault, until its heal is proved, or an observation in which not all replicas are in sync. If the
        producer did not log the record, the time of its send is unknown, and any fault counts. In a transaction nothing
        is written twice: a transaction with an older epoch is aborted.
        """
        attempt, parts = self._attempts.get((topic, key)), parts_of(key)
        name = attempt.run if attempt else parts[0] if parts else None
        run: RecordedRun | None = self._records.runs.get((name, topic)) if name else None
        if run is None or not run.idempotent or run.client != CONFLUENT:
            return False
        if attempt is None:
            return bool(self._faults)
        if attempt.txn is not None:
            return False
        under = any(
            one.inject_ns <= attempt.done_ns and (one.healed_ns is None or one.healed_ns >= attempt.sent_ns)
            for one in self._faults
        )
        return under or any(
            attempt.sent_ns <= observation.at_ns
            and observation.since_ns <= attempt.done_ns
            and set(observation.isr) != set(observation.replicas)
            for place, seen in self._looks.items()
            if place[0] == topic and attempt.partition in (None, place[1])
            for observation in seen
        )
