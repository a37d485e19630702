"""Reads a topic and writes as many records into another one, with the group's offsets in the same transaction.

What stream processors do to have each record exactly once (``sendOffsetsToTransaction``), by librdkafka. Events are
those of a transactional producer (``pyhooks.workload.producer``), of process ``copier``, and

* ``copy``, ``info``, of each transaction before it ends: ``data`` ``{run, txn, group, source, taken}`` with ``taken``
  partition to ``[first, next]``, the offsets that it stands for;
* ``copied``, at the end: ``data`` ``{run, group, source, committed}`` with the group's offset of each partition, as its
  coordinator tells; ``unknown``, with ``error``, if that does not.

After a transaction that was not committed for sure the consumer goes back to what its group has committed. Run it as a
process: ``python -m pyhooks.workload.copier``; a SIGTERM ends it in good order.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from pyhooks.history.event_log import History
from pyhooks.history.events import CONFLUENT
from pyhooks.workload import program
from pyhooks.workload.final_reader import COMMITTED, consumer_of
from pyhooks.workload.producer import Lane, Producing, partitions_of
from pyhooks.workload.producer_clients import Confluent, Record, TransactionError
from pyhooks.workload.producer_plan import Plan

PROCESS = "copier"
# of a record, key included
RECORD_BYTES = 100
ASK_S = 10.0


class Copying(Producing):
    """Copies a topic until it is told to stop.

    Args:
        plan: of the producer; its topic is where to.
        history: where the events go.
        partitions: of that topic.
        source: the topic that is read.
        consumer: of a group, which commits nothing by itself.
        group: its name.
    """

    def __init__(
        self, plan: Plan, history: History, partitions: dict[str, int], source: str, consumer: Consumer, group: str
    ) -> None:
        super().__init__(plan, history, self._made, partitions)
        self._source, self._consumer, self._group = source, consumer, group

    def _made(self, run: str) -> Confluent:
        # a client that can do nothing more is replaced
        self._newest = Confluent(self.plan.settings(run))
        return self._newest

    def copied(self) -> None:
        """Tells what the group has committed."""
        told: dict[str, Any] = {"run": self.run_id, "group": self._group, "source": self._source}
        try:
            found = self._consumer.committed(self._consumer.assignment(), timeout=ASK_S)
        except KafkaException as error:
            self.history.note(self.plan.name, "copied", "unknown", **told, error=str(error.args[0].str()))
        else:
            committed = {f"{one.topic}-{one.partition}": one.offset for one in found}
            self.history.note(self.plan.name, "copied", "ok" if committed else "unknown", **told, committed=committed)

    def _transactions(self, lane: Lane) -> None:
        self._consumer.subscribe([self._source])
        (topic,) = lane.topics
        ready, back, start_ns = False, False, time.monotonic_ns()
        numbers = itertools.count()
        while not self.stop.is_set():
            ready = ready or self._initialised(start_ns)
            back = back and not self._went_back()
            if not ready or back:
                continue
            got = self._consumer.consume(self.plan.txn_records, self.plan.txn_ms / 1000)
            messages = [one for one in got if one.error() is None]
            if not messages:
                continue
            txn, begun_ns, back = next(numbers), time.monotonic_ns(), True
            try:
                self._client.begin()
            except TransactionError:
                self._replace()
                ready = False
                continue
            records: list[Record] = [
                self._record(lane, lane.sent[topic], time.monotonic_ns(), txn) for _ in range(len(messages))
            ]
            self._client.send(records)
            asked = self._with_offsets(txn, messages)
            outcome = self._close_transaction(txn, asked, len(records), begun_ns)
            ready, back = outcome != "unknown", outcome != "ok"

    def _with_offsets(self, txn: int, messages: Sequence[Any]) -> str:
        """Makes the offsets part of a transaction, and returns how that is to end."""
        taken: dict[int, list[int]] = {}
        for one in messages:
            span = taken.setdefault(int(one.partition()), [int(one.offset()), 0])
            span[1] = int(one.offset()) + 1
        told = {f"{self._source}-{number}": span for number, span in sorted(taken.items())}
        about: dict[str, Any] = {"run": self.run_id, "txn": txn, "group": self._group, "source": self._source}
        self.history.note(self.plan.name, "copy", "info", **about, taken=told)
        offsets = [TopicPartition(self._source, number, after) for number, (_, after) in taken.items()]
        try:
            self._newest.send_offsets(offsets, self._consumer.consumer_group_metadata())
        except TransactionError:
            return "abort"
        return "commit"

    def _went_back(self) -> bool:
        """Goes on from what the group has committed; returns whether its coordinator has told that."""
        try:
            for one in self._consumer.committed(self._consumer.assignment(), timeout=ASK_S):
                # what has none begins where the group began
                self._consumer.seek(TopicPartition(one.topic, one.partition, max(one.offset, 0)))
        except KafkaException:
            return False
        return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Copies a topic as a process; a SIGTERM or SIGINT ends it."""
    what = "Copies a topic into another one, with its group's offsets in the same transactions."
    parser = program.on_topics("copying", what, "--to copies --group copiers --run copier-1")
    parser.add_argument("--to", required=True, help="the topic that is written to")
    parser.add_argument("--group", required=True, help="of the consumer")
    parser.add_argument("--timeout-ms", type=int, default=120_000, help="of a record and of each step (default 120000)")
    parser.add_argument("--seconds", type=float, default=3600, help="how long at most (default 3600)")
    parser.add_argument("--run", required=True, help="by which its events are known")
    found = parser.parse_args(arguments)
    ended = program.told_to_end()

    def work() -> None:
        plan = Plan(
            bootstrap=found.bootstrap,
            topics=(found.to,),
            # what there is to be read sets the pace
            rate_per_s=1000,
            seconds=found.seconds,
            mode="transactional",
            client=CONFLUENT,
            record_bytes=RECORD_BYTES,
            timeout_ms=found.timeout_ms,
            name=PROCESS,
            run=found.run,
        )
        reading = partial(consumer_of, found.bootstrap, COMMITTED)
        with reading(group_id=found.group, auto_offset_reset="earliest", enable_partition_eof="false") as consumer:
            copying = Copying(plan, History(found.history), partitions_of(plan), found.topics, consumer, found.group)
            with ended.sets(copying.stop):
                copying.run()
            copying.copied()

    return program.status_of(work)


if __name__ == "__main__":
    sys.exit(main())
