"""Producer process: records sent at paced, intended times, and one event for the result of each.

The events of the process named by ``--name`` (``probe`` or ``producer``) have ``IntendDetails``, ``NoMetadataDetails``,
``ProduceDetails``, ``TransactionDetails`` and ``EndDetails``. ``end`` is missing if the process was killed.

Keys are ``run/topic/partition/seq`` and unique across all runs. Each topic has its own lane (sending
thread), so that a topic without a leader does not delay the others; transactions span all topics, in a
single lane. In the mode ``probe`` each topic also has its own client. A broker answers the requests of a
connection in order, so with a shared client a rejection would wait behind another topic's record that
waits for a replica, and the topics' results would depend on each other.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History, Outcome
from pyhooks.history.events import EndDetails, IntendDetails, NoMetadataDetails, ProduceDetails, TransactionDetails
from pyhooks.history.outcomes import NOT_REPORTED, Acked, Answer, outcome_of
from pyhooks.history.record_format import key_of, value_of
from pyhooks.jvm.java_exception import JavaError
from pyhooks.workload import pacing, producer_clients, program
from pyhooks.workload.producer_clients import ProducerClient, ProducerRecord, SendResult, TransactionError
from pyhooks.workload.producer_plan import PROBE, TRANSACTIONAL, ProducerPlan, parse
from pyhooks.workload.program import StopEvent

# Minimum number of records announced at once per partition; one second's worth of records if that is more.
AHEAD = 100
# Maximum number of due records that are passed to the client with one call.
BURST = 500
# Interval between writes of events: short enough for live readers, long enough to be cheap.
WRITE_S = 0.2
METADATA_TRIES = 3


@dataclass(frozen=True)
class OpenRecord:
    """A record being sent."""

    topic: str
    partition: int  # target partition
    seq: int  # sequence number within the partition, from 0
    key: str  # key, unique across all runs
    intended_ns: int  # intended send time, monotonic
    txn: int | None = None  # number of its transaction, or None

    def event(self, plan: ProducerPlan, run: str, report: SendResult) -> Event:
        """Return the ``produce`` event for its result."""
        answer: Answer = report.answer
        acked, rejected = (answer, None) if isinstance(answer, Acked) else (None, answer)
        details = ProduceDetails(
            run=run,
            topic=self.topic,
            key=self.key,
            seq=self.seq,
            partition=acked.partition if acked else self.partition,
            intended_ns=self.intended_ns,
            sent_ns=report.sent_ns,
            latency_ms=round((report.done_ns - report.sent_ns) / 1e6, 3),
            mode=plan.mode,
            offset=acked.offset if acked else None,
            exception=rejected.error if rejected else None,
            message=rejected.message if rejected else None,
            retriable=rejected.retriable if rejected else None,
            defaults=True if plan.defaults else None,
            delivery_timeout_ms=plan.timeout_ms if plan.defaults else None,
            txn=self.txn,
        )
        wall_ms = (time.time_ns() - time.monotonic_ns() + report.done_ns) // 1_000_000
        outcome = outcome_of(answer, first_only=plan.first_only)
        return details.event_at(report.done_ns, wall_ms, outcome, process=plan.name)


@dataclass
class ProducerLane:
    """Topics that one thread sends to in turn, with their progress."""

    topics: tuple[str, ...]
    partitions: dict[str, int]  # number of partitions of each topic
    client: int = 0  # index of its client
    sent: dict[str, int] = field(default_factory=dict)  # number of records sent to each topic
    announced: dict[str, int] = field(default_factory=dict)  # number of records announced for each topic
    skipped: int = 0  # number of slots that passed while send() was blocked

    def __post_init__(self) -> None:
        self.sent = dict.fromkeys(self.topics, 0)
        self.announced = dict.fromkeys(self.topics, 0)

    def per_partition(self, topic: str, records: int) -> dict[int, int]:
        """Return how many of a topic's first ``records`` records each partition gets."""
        width = self.partitions[topic]
        return {number: (records + width - 1 - number) // width for number in range(width)}


class ProducerRun:
    """Execution of a plan, with the results of its records written to a history.

    Args:
        plan: plan to execute.
        history: history to append to.
        make: creates a client for a run name.
        partitions: number of partitions of each topic.
    """

    def __init__(
        self, plan: ProducerPlan, history: History, make: Callable[[str], ProducerClient], partitions: dict[str, int]
    ) -> None:
        self.plan = plan
        self.history = history
        self.stop = threading.Event()
        self.run_id = plan.run or f"{plan.name}-{uuid.uuid4().hex[:8]}"
        self._make = make
        groups = [plan.topics] if plan.mode == TRANSACTIONAL else [(topic,) for topic in plan.topics]
        self._lanes = [
            ProducerLane(
                group, {topic: partitions[topic] for topic in group}, client=number if plan.mode == PROBE else 0
            )
            for number, group in enumerate(groups)
        ]
        self._tokens = itertools.count()
        self._open_records: dict[int, OpenRecord] = {}
        self._errors: list[Exception] = []
        self._collected = threading.Event()
        self._clients: list[ProducerClient] = []
        try:
            for _ in {lane.client for lane in self._lanes}:
                self._clients.append(make(self.run_id))
        except BaseException:
            for client in self._clients:
                client.close()
                client.release()
            raise

    @property
    def _client(self) -> ProducerClient:
        """The only client, in modes other than ``probe``."""
        return self._clients[0]

    def run(self) -> None:
        """Send all records and wait until each of them has completed or timed out.

        Raises:
            JavaError: the client failed.
            RackgateError: the client failed.
        """
        target = self._transactions if self.plan.mode == TRANSACTIONAL else self._steady
        collector = threading.Thread(target=self._record_errors, args=(self._collect,))
        collector.start()
        self._record_errors(self._fetch_metadata)
        # A JVM ends with the thread that started it; these threads, which replace clients, outlive the last use.
        with ThreadPoolExecutor(max(len(self._lanes), len(self._clients))) as pool:
            try:
                list(pool.map(self._record_errors, [partial(target, lane) for lane in self._lanes]))
                list(pool.map(self._record_errors, [client.close for client in self._clients]))
            finally:
                # Even if a client failed to close, write the results of its records and end the collector.
                self._collected.set()
                collector.join()
                for client in self._clients:
                    client.release()
        if self._errors:
            raise self._errors[0]
        self.history.extend(self._end_events())

    def _record_errors(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised by run()
            self._errors.append(error)
            self.stop.set()

    def _fetch_metadata(self) -> None:
        """Fetch metadata in advance; otherwise the first records could time out where clients start slowly."""
        for number, client in enumerate(self._clients):
            topics = [topic for lane in self._lanes if lane.client == number for topic in lane.topics]
            for _ in range(METADATA_TRIES):
                error = client.fetch_metadata(topics)
                if not error or self.stop.is_set():
                    break
            else:
                self.history.add(NoMetadataDetails(run=self.run_id, exception=error), "unknown", process=self.plan.name)

    # -- sending --------------------------------------------------------------------------------------------------

    def _steady(self, lane: ProducerLane) -> None:
        start_ns, slot = time.monotonic_ns(), 0
        while (at_ns := self._due_ns(lane, start_ns, slot)) is not None:
            if pacing.wait_or_stop(at_ns, self.stop):
                return
            slot += self._burst(lane, start_ns, slot, BURST, None)
            if self.plan.mode == PROBE:
                # Skip slots that passed while send() was blocked: sending them later as a burst would not probe them.
                reached = int((time.monotonic_ns() - start_ns) * self.plan.rate_per_s / pacing.NS)
                lane.skipped += max(0, reached + 1 - slot)
                slot = max(slot, reached + 1)

    def _due_ns(self, lane: ProducerLane, start_ns: int, slot: int) -> int | None:
        """Return when the lane's next record is due, or None when all were sent."""
        due_ns = pacing.due_ns(slot, self.plan.rate_per_s * len(lane.topics))
        if self.plan.seconds is not None and due_ns >= self.plan.seconds * pacing.NS:
            return None
        if self.plan.count is not None and min(lane.sent.values()) >= self.plan.count:
            return None
        return start_ns + due_ns

    def _burst(self, lane: ProducerLane, start_ns: int, slot: int, most: int, txn: int | None) -> int:
        """Send the records due by now, at least one and at most ``most``; return their number."""
        now_ns = time.monotonic_ns()
        records: list[ProducerRecord] = []
        if self.plan.mode == PROBE:
            most = 1
        while len(records) < most:
            at_ns = self._due_ns(lane, start_ns, slot + len(records))
            if at_ns is None or (records and at_ns > now_ns):
                break
            records.append(self._record(lane, slot + len(records), at_ns, txn))
        self._clients[lane.client].send(records)
        return len(records)

    def _record(self, lane: ProducerLane, slot: int, intended_ns: int, txn: int | None) -> ProducerRecord:
        topic = lane.topics[slot % len(lane.topics)] if self.plan.mode != PROBE else lane.topics[0]
        number, width = lane.sent[topic], lane.partitions[topic]
        if number >= lane.announced[topic]:
            ahead = max(AHEAD * width, round(self.plan.rate_per_s))
            lane.announced[topic] = number + (
                ahead if self.plan.count is None else min(ahead, self.plan.count - number)
            )
            self.history.append(self._intend_event(lane, topic))
        lane.sent[topic] = number + 1
        partition, seq = number % width, number // width
        key = key_of(self.run_id, topic, partition, seq)
        token = next(self._tokens)
        self._open_records[token] = OpenRecord(topic, partition, seq, key, intended_ns, txn)
        return ProducerRecord(token, topic, partition, key.encode(), value_of(key, self.plan.record_bytes))

    def _intend_event(self, lane: ProducerLane, topic: str) -> Event:
        return IntendDetails(
            run=self.run_id,
            topic=topic,
            mode=self.plan.mode,
            client=self.plan.client,
            first_only=self.plan.first_only,
            idempotent=self.plan.idempotent,
            acks=self.plan.acks,
            record_bytes=self.plan.record_bytes,
            to=lane.per_partition(topic, lane.announced[topic]),
        ).event(process=self.plan.name)

    # -- transactions ---------------------------------------------------------------------------------------------

    def _transactions(self, lane: ProducerLane) -> None:
        choice = random.Random(self.plan.seed)  # noqa: S311 - a seeded plan, not a secret
        start_ns, slot, ready = time.monotonic_ns(), 0, False
        for txn in itertools.count():
            at_ns = self._due_ns(lane, start_ns, slot)
            if at_ns is None or pacing.wait_or_stop(at_ns, self.stop):
                return
            ready = ready or self._init_transactions(start_ns)
            if not ready:
                return
            asked = "abort" if choice.random() < self.plan.abort_share else "commit"
            begun_ns, first = time.monotonic_ns(), slot
            ready = self._begin_transaction()
            if not ready:
                continue
            until_ns = begun_ns + self.plan.txn_ms * 1_000_000
            while (at_ns := self._due_ns(lane, start_ns, slot)) is not None and slot - first < self.plan.txn_records:
                if slot > first and (at_ns > until_ns or pacing.wait_or_stop(at_ns, self.stop)):
                    break
                slot += self._burst(lane, start_ns, slot, self.plan.txn_records - (slot - first), txn)
            ready = self._close_transaction(txn, asked, slot - first, begun_ns) != "unknown"

    def _init_transactions(self, start_ns: int) -> bool:
        """Initialise transactions, with retries while the plan's time lasts; return False if stopped.

        Raises:
            RackgateError: it failed, and the plan's time has passed or the plan has no time limit.
        """
        while not self.stop.is_set():
            try:
                self._client.init_transactions()
            except TransactionError as error:
                if self.plan.seconds is None or time.monotonic_ns() >= start_ns + self.plan.seconds * pacing.NS:
                    raise RackgateError(f"transactions cannot be begun: {error}") from error
                self._replace()
            else:
                return True
        return False

    def _close_transaction(self, txn: int, asked: str, records: int, begun_ns: int) -> Outcome:
        """End a transaction as planned, note and return its outcome; if unknown, replace the client."""
        outcome: Outcome = "ok" if asked == "commit" else "fail"
        exception: str | None = None
        try:
            if asked == "commit":
                self._client.commit()
            else:
                # Without the flush most records would never be sent, and the abort would have no effect.
                self._client.flush()
                self._client.abort()
        except TransactionError as error:
            outcome = "fail" if self._try_abort(error) else "unknown"
            exception = error.error
        details = TransactionDetails(
            run=self.run_id, txn=txn, asked=asked, records=records, begun_ns=begun_ns, exception=exception
        )
        self.history.add(details, outcome, process=self.plan.name)
        if outcome == "unknown":
            self._replace()
        return outcome

    def _try_abort(self, error: TransactionError) -> bool:
        # A commit that timed out may still complete; a later successful abort does not disprove it.
        if any(name in error.error for name in ("Timeout", "TIMED_OUT")):
            return False
        try:
            self._client.abort()
        except TransactionError:
            return False
        return True

    def _begin_transaction(self) -> bool:
        """Begin a transaction. If the client can no longer work, replace it and return False."""
        try:
            self._client.begin()
        except TransactionError:
            self._replace()
            return False
        return True

    def _replace(self) -> None:
        """Replace a client that can no longer work; the results of its records are still written."""
        old, self._clients[0] = self._client, self._make(self.run_id)
        try:
            old.close()
        finally:
            self.history.extend(self._result_events(old, 0.0))
            old.release()

    # -- reports --------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        waiting: list[Event] = []
        written_ns = time.monotonic_ns()
        while True:
            over = self._collected.is_set()
            for client in tuple(self._clients):
                waiting += self._result_events(client, 0.0 if over else producer_clients.POLL_S / len(self._clients))
            now_ns = time.monotonic_ns()
            if waiting and (over or now_ns - written_ns >= WRITE_S * pacing.NS):
                self.history.extend(waiting)
                waiting, written_ns = [], now_ns
            if over and not waiting:
                break
        lost = [SendResult(token, now_ns, now_ns, NOT_REPORTED) for token in list(self._open_records)]
        self.history.extend(
            [self._open_records.pop(report.token).event(self.plan, self.run_id, report) for report in lost]
        )

    def _result_events(self, client: ProducerClient, timeout_s: float) -> list[Event]:
        return [
            self._open_records.pop(report.token).event(self.plan, self.run_id, report)
            for report in client.take(timeout_s)
            if report.token in self._open_records
        ]

    def _end_events(self) -> list[Event]:
        return [
            EndDetails(
                run=self.run_id,
                topic=topic,
                attempts=lane.sent[topic],
                skipped=lane.skipped,
                to=lane.per_partition(topic, lane.sent[topic]),
            ).event(process=self.plan.name)
            for lane in self._lanes
            for topic in lane.topics
        ]


def partition_counts(plan: ProducerPlan, timeout_s: float = 20.0) -> dict[str, int]:
    """Return the number of partitions of each topic in the plan.

    Raises:
        RackgateError: a topic does not exist, or no broker responds.
    """
    if plan.partitions is not None:
        return dict.fromkeys(plan.topics, plan.partitions)
    from confluent_kafka import KafkaException

    from pyhooks.kafka import topics

    try:
        listed = topics.admin(plan.bootstrap).list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise RackgateError(f"--bootstrap {plan.bootstrap}: no broker responds: {error.args[0].str()}") from error
    absent = [topic for topic in plan.topics if topic not in listed or listed[topic].error is not None]
    if absent:
        raise RackgateError(f"--topics: the cluster has no {', '.join(absent)}")
    return {topic: len(listed[topic].partitions) for topic in plan.topics}


def open_run(plan: ProducerPlan, history: History) -> ProducerRun:
    """Return a run of a plan with connected clients.

    Args:
        plan: plan to execute.
        history: history to append to.

    Raises:
        JavaError: the client rejects its configuration.
        RackgateError: a topic does not exist, no broker responds, or the client can't be created.
    """

    def make(run_id: str) -> ProducerClient:
        return producer_clients.create_client(plan.client, plan.settings(run_id))

    return ProducerRun(plan, history, make, partition_counts(plan))


def produce(plan: ProducerPlan, history: History) -> None:
    """Send all records of a plan and write the outcome of each to a history.

    Args:
        plan: plan to execute.
        history: history to append to.

    Raises:
        JavaError: the client failed. Errors of records are outcomes.
        RackgateError: a topic does not exist, no broker responds, or the client failed.
    """
    open_run(plan, history).run()


def run_plan(arguments: Sequence[str], ended: StopEvent) -> None:
    """Execute the plan described by the arguments of this program.

    Args:
        arguments: command-line arguments.
        ended: ends the plan early; every attempt made still gets its event.

    Raises:
        JavaError: the client failed.
        RackgateError: the client failed, or an option is invalid.
        SystemExit: for --help and unknown options.
    """
    plan, path = parse(arguments)
    run = open_run(plan, History(path))
    with ended.linked(run.stop):
        run.run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a producer until its plan ends, or until SIGTERM or SIGINT."""
    argv = sys.argv[1:] if arguments is None else arguments
    return program.run_reporting_errors(lambda: run_plan(argv, program.stop_on_signals()), JavaError)


if __name__ == "__main__":
    sys.exit(main())
