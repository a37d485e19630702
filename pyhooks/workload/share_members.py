"""Members of share groups as a process: each polls, accepts what it was delivered, and waits for the confirmation.

The events have subclasses of ``ShareMemberDetails``; a run has one member in each group. SIGTERM makes all of them
leave and ends the process.
"""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyhooks.history.event_log import History
from pyhooks.history.events import AcknowledgementDetails, DeliveryDetails, SharePollFailureDetails
from pyhooks.jvm.consumer import TopicPartition
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.share_member import DeliveredRecord, ShareMember
from pyhooks.workload import program

POLL_S = 0.5
# Above the time that the share coordinator waits for replicas (share.coordinator.write.timeout.ms, 5 s).
COMMIT_S = 8.0
# pause after a failed poll
PAUSE_S = 0.5


class ShareMemberRun:
    """One member of a share group, run by its own thread.

    Args:
        group: group id.
        bootstrap: value of ``bootstrap.servers``.
        topics: topics to read.
        history: history to append to.
        run: name of the run.
    """

    def __init__(self, group: str, bootstrap: str, topics: Sequence[str], history: History, run: str) -> None:
        self.stop = threading.Event()
        self._group, self._topics, self._history, self._run = group, topics, history, run
        self._java = ShareMember(bootstrap, group)

    def run(self) -> None:
        """Poll and acknowledge until ``stop`` is set, then leave the group."""
        with self._java:
            self._java.subscribe(self._topics)
            while not self.stop.is_set():
                begun_ns = time.monotonic_ns()
                try:
                    records = self._java.poll(POLL_S)
                except JavaError as error:
                    failure = SharePollFailureDetails(
                        run=self._run, group=self._group, exception=error.java_class, message=error.text
                    )
                    self._history.add(failure, "unknown")
                    self.stop.wait(PAUSE_S)
                    continue
                if records:
                    self._note_delivered(records, begun_ns)
                    self._acknowledge(records)

    def _note_delivered(self, records: Sequence[DeliveredRecord], begun_ns: int) -> None:
        details = DeliveryDetails(
            run=self._run,
            group=self._group,
            begun_ns=begun_ns,
            offsets={_name(partition): runs for partition, runs in _by_partition(records).items()},
            again=sum(record.count > 1 for record in records),
        )
        self._history.add(details)

    def _acknowledge(self, records: Sequence[DeliveredRecord]) -> None:
        begun_ns = time.monotonic_ns()
        delivered = _by_partition(records)
        results: dict[TopicPartition, JavaError | None]
        try:
            results = self._java.commit(COMMIT_S)
        except JavaError as failure:
            results = dict.fromkeys(delivered, failure)
        for partition, offsets in delivered.items():
            error = results.get(partition, JavaError(["not-reported"], "the client returned no result"))
            details = AcknowledgementDetails(
                run=self._run,
                group=self._group,
                begun_ns=begun_ns,
                latency_ms=round((time.monotonic_ns() - begun_ns) / 1e6, 3),
                partition=_name(partition),
                offsets=offsets,
                exception=error.java_class if error else None,
                message=error.text if error else None,
            )
            self._history.add(details, "unknown" if error else "ok")


def _by_partition(records: Iterable[DeliveredRecord]) -> dict[TopicPartition, tuple[tuple[int, int], ...]]:
    """Return the offsets of each partition as pairs of first offset and count."""
    offsets: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    for record in records:
        offsets[record.partition].add(record.offset)
    return {partition: tuple(_runs(sorted(own))) for partition, own in offsets.items()}


def _runs(offsets: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and offset == sum(found[-1]):
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((offset, 1))
    return found


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.number}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run members as a process; SIGTERM or SIGINT makes them leave."""
    parser = program.topics_parser(
        "share_members", "Run one member in each of several share groups and write what it was delivered.",
        "--groups g,h --run member-1",
    )  # fmt: skip
    parser.add_argument("--groups", required=True, help="names, separated by commas")
    parser.add_argument("--run", required=True, help="run name in its events")

    def work(options: Namespace, ended: program.StopEvent) -> None:
        history, topics = History(options.history), options.topics.split(",")
        members = [
            ShareMemberRun(group, options.bootstrap, topics, history, options.run)
            for group in options.groups.split(",")
        ]
        with ended.linked(*(member.stop for member in members)), ThreadPoolExecutor(len(members)) as pool:
            for run in [pool.submit(member.run) for member in members]:
                run.result()

    return program.run(parser, work, arguments, JavaError)


if __name__ == "__main__":
    sys.exit(main())
