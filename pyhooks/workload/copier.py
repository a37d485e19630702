"""Copier of a topic into another one, with the group's offsets in the same transactions.

This is how stream processors get exactly-once semantics (``sendOffsetsToTransaction``), here with
librdkafka. It writes one record per record read. Events are those of a transactional producer
(``pyhooks.workload.producer``), of process ``copier``, and ``CopyDetails`` for each transaction before it ends,
and ``CopiedDetails`` at the end, or ``CopyEndDetails`` if the coordinator does not respond.

After a transaction that was not certainly committed, the consumer returns to the group's committed
offsets. Run it as a process: ``python -m pyhooks.workload.copier``; SIGTERM ends it cleanly.
"""

from __future__ import annotations

import itertools
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from pyhooks.history.event_log import History
from pyhooks.history.events import CONFLUENT, CopiedDetails, CopyDetails, CopyEndDetails
from pyhooks.workload import program
from pyhooks.workload.final_reader import COMMITTED, open_consumer
from pyhooks.workload.producer import ProducerLane, ProducerRun, partition_counts
from pyhooks.workload.producer_clients import ConfluentProducer, ProducerRecord, TransactionError
from pyhooks.workload.producer_plan import ProducerPlan

PROCESS = "copier"
# size of a value, key included
RECORD_BYTES = 100
REQUEST_S = 10.0


class CopyRun(ProducerRun):
    """Copying of a topic until it is stopped.

    Args:
        plan: plan of the producer; its topic is the target.
        history: history to append to.
        partitions: number of partitions of the target topic.
        source: topic to read.
        consumer: consumer in a group, without automatic commits.
        group: group id.
    """

    def __init__(
        self,
        plan: ProducerPlan,
        history: History,
        partitions: dict[str, int],
        source: str,
        consumer: Consumer,
        group: str,
    ) -> None:
        super().__init__(plan, history, self._create_client, partitions)
        self._source, self._consumer, self._group = source, consumer, group

    def _create_client(self, run: str) -> ConfluentProducer:
        # remembers the latest client, because failed ones are replaced
        self._newest = ConfluentProducer(self.plan.settings(run))
        return self._newest

    def note_committed(self) -> None:
        """Note the offsets that the group has committed."""
        run, group, source = self.run_id, self._group, self._source
        try:
            positions = self._consumer.committed(self._consumer.assignment(), timeout=REQUEST_S)
        except KafkaException as error:
            end = CopyEndDetails(run=run, group=group, source=source, error=str(error.args[0].str()))
            self.history.add(end, "unknown", process=self.plan.name)
        else:
            committed = {f"{position.topic}-{position.partition}": position.offset for position in positions}
            copied = CopiedDetails(run=run, group=group, source=source, committed=committed)
            self.history.add(copied, "ok" if committed else "unknown", process=self.plan.name)

    def _transactions(self, lane: ProducerLane) -> None:
        self._consumer.subscribe([self._source])
        (topic,) = lane.topics
        ready, back, start_ns = False, False, time.monotonic_ns()
        numbers = itertools.count()
        while not self.stop.is_set():
            ready = ready or self._init_transactions(start_ns)
            back = back and not self._seek_committed()
            if not ready or back:
                continue
            consumed = self._consumer.consume(self.plan.txn_records, self.plan.txn_ms / 1000)
            messages = [message for message in consumed if message.error() is None]
            if not messages:
                continue
            txn, begun_ns, back = next(numbers), time.monotonic_ns(), True
            ready = self._begin_transaction()
            if not ready:
                continue
            records: list[ProducerRecord] = [
                self._record(lane, lane.sent[topic], time.monotonic_ns(), txn) for _ in range(len(messages))
            ]
            self._client.send(records)
            asked = self._add_offsets(txn, messages)
            outcome = self._close_transaction(txn, asked, len(records), begun_ns)
            ready, back = outcome != "unknown", outcome != "ok"

    def _add_offsets(self, txn: int, messages: Sequence[Any]) -> str:
        """Add the offsets to a transaction; return ``commit``, or ``abort`` if they were rejected."""
        taken: dict[int, tuple[int, int]] = {}
        for message in messages:
            number, offset = int(message.partition()), int(message.offset())
            taken[number] = taken.get(number, (offset, 0))[0], offset + 1
        copy = CopyDetails(
            run=self.run_id,
            txn=txn,
            group=self._group,
            source=self._source,
            taken={f"{self._source}-{number}": span for number, span in sorted(taken.items())},
        )
        self.history.add(copy, process=self.plan.name)
        offsets = [TopicPartition(self._source, number, after) for number, (_, after) in taken.items()]
        try:
            self._newest.send_offsets(offsets, self._consumer.consumer_group_metadata())
        except TransactionError:
            return "abort"
        return "commit"

    def _seek_committed(self) -> bool:
        """Seek to the group's committed offsets; return whether the coordinator responded."""
        try:
            for partition in self._consumer.committed(self._consumer.assignment(), timeout=REQUEST_S):
                # a partition without a committed offset restarts where the group began
                self._consumer.seek(TopicPartition(partition.topic, partition.partition, max(partition.offset, 0)))
        except KafkaException:
            return False
        return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Copy a topic as a process until SIGTERM or SIGINT."""
    parser = program.topics_parser(
        "copier",
        "Copy a topic into another one, with the group's offsets in the same transactions.",
        "--to copies --group copiers --run copier-1",
    )
    parser.add_argument("--to", required=True, help="the topic that is written to")
    parser.add_argument("--group", required=True, help="of the consumer")
    parser.add_argument("--timeout-ms", type=int, default=120_000, help="of a record and of each step (default 120000)")
    parser.add_argument("--seconds", type=float, default=3600, help="how long at most (default 3600)")
    parser.add_argument("--run", required=True, help="run name in its events")

    def work(options: Namespace, ended: program.StopEvent) -> None:
        plan = ProducerPlan(
            bootstrap=options.bootstrap,
            topics=(options.to,),
            # the source topic sets the pace
            rate_per_s=1000,
            seconds=options.seconds,
            mode="transactional",
            client=CONFLUENT,
            record_bytes=RECORD_BYTES,
            timeout_ms=options.timeout_ms,
            name=PROCESS,
            run=options.run,
        )
        settings = {"group_id": options.group, "auto_offset_reset": "earliest", "enable_partition_eof": "false"}
        with open_consumer(options.bootstrap, COMMITTED, **settings) as consumer:
            copier = CopyRun(
                plan, History(options.history), partition_counts(plan), options.topics, consumer, options.group
            )
            with ended.linked(copier.stop):
                copier.run()
            copier.note_committed()

    return program.run(parser, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
