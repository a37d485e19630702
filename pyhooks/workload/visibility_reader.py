"""Reader that repeatedly notes up to where consumers can read each partition, as history events.

The events have ``VisibleDetails``, one for each round. The outcome is ``unknown`` unless every leader returned its high
watermark, because the readable end of some partitions is not known. SIGTERM ends the reader after its current round.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from argparse import Namespace
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from pyhooks.history.event_log import History
from pyhooks.history.events import VisibleDetails
from pyhooks.workload import program
from pyhooks.workload.final_reader import open_consumer, partition_count

PROCESS = "viewer"
BATCH = 2000
POLL_S = 0.1
# An unavailable leader must not delay the others' responses longer than checkers allow for an observation.
REQUEST_S = 1.0
INTERVAL_S = 0.5


class VisibilityReader:
    """Reader of partitions up to their readable ends, in rounds.

    Args:
        consumer: consumer for exclusive use.
        partitions: topics and numbers of the partitions.
        history: history to append to.
        run: name of the reader.
    """

    def __init__(self, consumer: Consumer, partitions: Sequence[tuple[str, int]], history: History, run: str) -> None:
        self._consumer, self._history, self._run = consumer, history, run
        self._partitions = tuple(partitions)
        self._next = {f"{topic}-{number}": 0 for topic, number in partitions}
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in partitions])

    def read_round(self, seconds: float) -> None:
        """Read for ``seconds``, then query the leaders, and note both."""
        errors: dict[str, str] = {}
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            self._read(min(POLL_S, left_s), errors)
        asked_ns = time.monotonic_ns()
        high: dict[str, int] = {}
        for topic, number in self._partitions:
            name = f"{topic}-{number}"
            try:
                _, high[name] = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=REQUEST_S)
            except KafkaException as error:
                errors[name] = str(error.args[0].name())
        visible = VisibleDetails(
            run=self._run, asked_ns=asked_ns, next=dict(self._next), high=high, errors=errors or None
        )
        complete = len(high) == len(self._partitions)
        self._history.add(visible, "ok" if complete else "unknown", process=PROCESS)

    def _read(self, seconds: float, errors: dict[str, str]) -> None:
        try:
            messages = self._consumer.consume(BATCH, seconds)
        except KafkaException as error:
            errors[""] = str(error.args[0].name())
            return
        for message in messages:
            name = f"{message.topic()}-{message.partition()}"
            problem = message.error()
            if problem is None:
                self._next[name] = int(message.offset()) + 1
            elif problem.code() != KafkaError._PARTITION_EOF:
                errors[name if name in self._next else ""] = str(problem.name())


def read_rounds(consumer: Consumer, topics: Sequence[str], history: History, run: str, stop: threading.Event) -> None:
    """Note rounds until ``stop`` is set, at least one.

    Raises:
        RackgateError: a topic does not exist, or no broker responds.
    """
    partitions = [(topic, number) for topic in topics for number in range(partition_count(consumer, topic, "read"))]
    reader = VisibilityReader(consumer, partitions, history, run)
    stopped = False
    while not stopped:
        # one more round after the stop, for the records readable at the end
        stopped = stop.is_set()
        reader.read_round(INTERVAL_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read topics as a process."""
    parser = program.topics_parser(
        "visibility_reader", "Repeatedly read topics up to their readable ends and write these offsets."
    )
    parser.add_argument("--run", help="the reader's name in the history (default: random)")
    parser.add_argument("--client-rack", default="", help="rack whose replicas it prefers (default: leaders only)")

    def work(options: Namespace, ended: program.StopEvent) -> None:
        run = options.run or f"{PROCESS}-{uuid.uuid4().hex[:8]}"
        settings = {"group_id": "rackgate-viewer", "auto_offset_reset": "earliest"}
        settings |= {"client_rack": options.client_rack} if options.client_rack else {}
        with open_consumer(options.bootstrap, **settings) as consumer:
            read_rounds(consumer, options.topics.split(","), History(options.history), run, ended)

    return program.run(parser, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
