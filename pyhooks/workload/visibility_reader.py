"""A reader beside a test: up to where consumers can read each partition, again and again, as events of a history.

Events of process ``viewer`` and op ``visible``, one for each round, with ``data``

* ``{run}``: which reader;
* ``{next}``: of each partition (``topic-number``) the offset behind the last record that was read by then; it begins
  with the log's first one;
* ``{high}``: of each partition the high watermark as its leader told it at some moment after ``asked_ns``; one whose
  leader did not tell it is left out;
* ``{errors}``, if there were any: of a partition, or ``""`` where nothing tells of which, what a question or a fetch
  got instead.

The outcome is ``ok`` if every leader told its high watermark, else ``unknown``: nothing is known then of what could be
read there. A SIGTERM ends it after its round.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.workload import program

PROCESS, OP = "viewer", "visible"
BATCH = 2000
POLL_S = 0.1
# A leader that is away must not hold up what others tell for longer than checkers grant to a look.
ASK_S = 1.0
REQUEST_S = 20.0
INTERVAL_S = 0.5


class Viewer:
    """Reads partitions as far as they may be read, round after round.

    Args:
        consumer: which reads nothing else.
        places: topics and numbers of the partitions.
        history: where the events go.
        run: which reader this is.
    """

    def __init__(self, consumer: Consumer, places: Sequence[tuple[str, int]], history: History, run: str) -> None:
        self._consumer, self._history, self._run = consumer, history, run
        self._places = tuple(places)
        self._next = {f"{topic}-{number}": 0 for topic, number in places}
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in places])

    def once(self, seconds: float) -> None:
        """Reads for so long, then asks the leaders, and notes both."""
        errors: dict[str, str] = {}
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            self._read(min(POLL_S, left_s), errors)
        asked_ns = time.monotonic_ns()
        high: dict[str, int] = {}
        for topic, number in self._places:
            name = f"{topic}-{number}"
            try:
                _, high[name] = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ASK_S)
            except KafkaException as error:
                errors[name] = str(error.args[0].name())
        told: dict[str, Any] = {"run": self._run, "asked_ns": asked_ns, "next": dict(self._next), "high": high}
        told |= {"errors": errors} if errors else {}
        whole = len(high) == len(self._places)
        self._history.note(PROCESS, OP, "ok" if whole else "unknown", **told)

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


def view(consumer: Consumer, topics: Sequence[str], history: History, run: str, stop: threading.Event) -> None:
    """Notes rounds until somebody ends it, at least one.

    Raises:
        RackgateError: a topic is not there.
    """
    viewer = Viewer(consumer, [place for topic in topics for place in _partitions(consumer, topic)], history, run)
    over = False
    while not over:
        # what can be read at the end is looked at once more
        over = stop.is_set()
        viewer.once(INTERVAL_S)


def _partitions(consumer: Consumer, topic: str) -> list[tuple[str, int]]:
    try:
        found = consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
    except KafkaException as error:
        raise RackgateError(f"read {topic}: nobody answers: {error.args[0].str()}") from error
    if found.error is not None or not found.partitions:
        raise RackgateError(f"read {topic}: {found.error.str() if found.error else 'it has no partitions'}")
    return [(topic, int(number)) for number in sorted(found.partitions)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads topics as a process."""
    what = "Reads topics as far as consumers may, again and again, and writes down how far that is."
    parser = program.on_topics("visible", what)
    parser.add_argument("--run", help="the reader's name in the history (default: drawn)")
    found = parser.parse_args(arguments)
    stop = program.told_to_end()
    run = found.run or f"{PROCESS}-{uuid.uuid4().hex[:8]}"
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": found.bootstrap,
        "group.id": "rackgate-viewer",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        "log_level": 2,
    }
    consumer = Consumer(settings)
    try:
        return program.status_of(lambda: view(consumer, found.topics.split(","), History(found.history), run, stop))
    finally:
        consumer.close()


if __name__ == "__main__":
    sys.exit(main())
