"""Reader of committed records that continuously notes its progress, as a process beside a test.

The events have ``LeaderOffsetsDetails``, or ``FollowDetails`` if the leader did not respond.
Run it as a process: ``python -m pyhooks.workload.committed_reader``; SIGTERM ends it cleanly.
"""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pyhooks.history.event_log import Event, History
from pyhooks.history.events import FollowDetails, LeaderOffsetsDetails
from pyhooks.workload import program
from pyhooks.workload.final_reader import COMMITTED, UNCOMMITTED, open_consumer, partition_count

INTERVAL_S = 0.5
POLL_S = 0.1
BATCH = 500
OWN = {"group_id": "rackgate-follower", "auto_offset_reset": "earliest"}
# An unavailable leader must not prevent requests to the others.
REQUEST_S = 2.0


class CommittedReader:
    """Reader of growing partitions that notes its progress.

    Args:
        committed: consumer with ``read_committed``.
        uncommitted: consumer with ``read_uncommitted``, used only to request the high watermark.
        history: history to append to.
        run: name of the run.
    """

    def __init__(self, committed: Consumer, uncommitted: Consumer, history: History, run: str) -> None:
        self.stop = threading.Event()
        self._committed, self._uncommitted = committed, uncommitted
        self._history, self._run = history, run
        self._position: dict[tuple[str, int], int] = {}
        self._records: dict[tuple[str, int], int] = {}

    def follow(self, topics: Sequence[str]) -> None:
        """Read all partitions of topics until ``stop`` is set.

        Raises:
            RackgateError: a topic does not exist, or no broker responds.
        """
        partitions = [
            (topic, number) for topic in topics for number in range(partition_count(self._committed, topic, "follow"))
        ]
        self._position = dict.fromkeys(partitions, 0)
        self._records = dict.fromkeys(partitions, 0)
        self._committed.assign([TopicPartition(topic, number, 0) for topic, number in partitions])
        due = time.monotonic()
        while not self.stop.is_set():
            self._consume()
            if time.monotonic() >= due:
                due = time.monotonic() + INTERVAL_S
                self._note_progress()
        self._note_progress()

    def _consume(self) -> None:
        for message in self._committed.consume(BATCH, POLL_S):
            error, partition = message.error(), (message.topic(), message.partition())
            if error is None:
                self._position[partition] = max(self._position[partition], int(message.offset()) + 1)
                self._records[partition] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._position[partition] = max(self._position[partition], int(message.offset()))

    def _note_progress(self) -> None:
        self._history.extend([self._event(topic, number) for topic, number in self._position])

    def _event(self, topic: str, number: int) -> Event:
        progress = FollowDetails(
            run=self._run,
            topic=topic,
            partition=number,
            isolation=COMMITTED,
            position=self._position[topic, number],
            records=self._records[topic, number],
            asked_ns=time.monotonic_ns(),
        )
        partition = TopicPartition(topic, number)
        try:
            _, stable = self._committed.get_watermark_offsets(partition, timeout=REQUEST_S)
            _, end = self._uncommitted.get_watermark_offsets(partition, timeout=REQUEST_S)
        except KafkaException as error:
            return replace(progress, error=str(error.args[0].name())).event("unknown")
        return LeaderOffsetsDetails(**vars(progress), stable=int(stable), end=int(end)).event("ok")


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow topics as a process until SIGTERM or SIGINT."""
    parser = program.topics_parser(
        "committed_reader", "Read the committed records of growing topics and write the progress.", "--run follower-1"
    )
    parser.add_argument("--run", required=True, help="run name in its events")

    def work(options: Namespace, ended: program.StopEvent) -> None:
        with (
            open_consumer(options.bootstrap, COMMITTED, **OWN) as committed,
            open_consumer(options.bootstrap, UNCOMMITTED, **OWN) as uncommitted,
        ):
            reader = CommittedReader(committed, uncommitted, History(options.history), options.run)
            with ended.linked(reader.stop):
                reader.follow(options.topics.split(","))

    return program.run(parser, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
