"""A producer that tells what each single produce attempt gets: the patched Java producer, by default without retries.

Each attempt becomes one event (process ``probe``, op ``produce``) at the moment when its outcome is known, with
``data`` ``{topic, key, seq, partition, offset, exception, message, retriable, latency_ms, defaults}``:

* ``ok``: acknowledged; the record is at ``offset``.
* ``fail``: surely refused, the record is in no log. Only a refusal that a broker or the client makes before it
  appends counts, of a first and only attempt, without idempotence.
* ``unknown``: everything else. After a timeout or a lost connection the record may be in the log, and a producer that
  retries may have had a timeout before the refusal that it reports.

With ``--defaults`` the producer is as an application has it that sets nothing but ``delivery.timeout.ms``: it retries
without end and is idempotent, so a long refusal comes out as a TimeoutException, and nothing is ever a sure ``fail``.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pyhooks.errors import RackgateError
from pyhooks.history import Event, History, Outcome
from pyhooks.jvm.failure import JavaError
from pyhooks.jvm.producer import Acknowledged, Producer

ERRORS = "org.apache.kafka.common.errors"
# Answers that exclude that the record was appended. NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION and
# KAFKA_STORAGE_ERROR are not among them: a leader that steps down, or whose disk fails, gives them to appended records.
REFUSALS = frozenset(
    f"{ERRORS}.{name}"
    for name in (
        "NotEnoughRacksException",
        "NotEnoughReplicasException",
        "InvalidTopicException",
        "RecordTooLargeException",
        "TopicAuthorizationException",
    )
)
DEFAULT_LINGER_MS = 5
DEFAULT_REQUEST_TIMEOUT_MS = 30_000


@dataclass(frozen=True)
class Plan:
    """What the probe shall do.

    Attributes:
        bootstrap: brokers.
        topics: each gets attempts at the same rate.
        rate_per_s: attempts per second and topic.
        seconds: how long attempts are made, or None for no bound.
        count: attempts per topic, or None for no bound; one of the two must bound the probe.
        timeout_ms: how long one attempt may take.
        defaults: with the producer's default settings and ``timeout_ms`` as its delivery.timeout.ms.
    """

    bootstrap: str
    topics: tuple[str, ...]
    rate_per_s: float
    seconds: float | None
    count: int | None
    timeout_ms: int
    defaults: bool

    def __post_init__(self) -> None:
        """Refuses what cannot be done.

        Raises:
            RackgateError: naming the option.
        """
        if not self.topics or not all(self.topics):
            raise RackgateError("--topics: at least one name, separated by commas")
        if self.rate_per_s <= 0:
            raise RackgateError(f"--rate {self.rate_per_s:g}: must be above 0")
        if self.seconds is None and self.count is None:
            raise RackgateError("one of --seconds and --count is needed: the probe must end")
        if (self.seconds is not None and self.seconds <= 0) or (self.count is not None and self.count <= 0):
            raise RackgateError("--seconds and --count must be above 0")
        if self.timeout_ms <= DEFAULT_LINGER_MS:
            raise RackgateError(f"--timeout-ms and --delivery-timeout-ms must be above {DEFAULT_LINGER_MS}")

    def producer_config(self) -> Mapping[str, str]:
        """The producer's configuration, beside bootstrap.servers and the serializers."""
        if self.defaults:
            # The producer refuses a delivery timeout below linger and request timeout together.
            request_ms = min(DEFAULT_REQUEST_TIMEOUT_MS, self.timeout_ms - DEFAULT_LINGER_MS)
            return {"delivery.timeout.ms": str(self.timeout_ms), "request.timeout.ms": str(request_ms)}
        return {
            "acks": "all",
            "retries": "0",
            "enable.idempotence": "false",
            "linger.ms": "0",
            # One attempt a request: a batch of several would be refused or taken as one.
            "batch.size": "0",
            "request.timeout.ms": str(self.timeout_ms),
            "delivery.timeout.ms": str(self.timeout_ms),
            "max.block.ms": str(self.timeout_ms),
        }


def outcome_of(answer: Acknowledged | JavaError, *, defaults: bool) -> Outcome:
    """How certain an answer is.

    Args:
        answer: what the producer said of the attempt.
        defaults: the producer retries and is idempotent, so its answer may not be about its first attempt.
    """
    if isinstance(answer, Acknowledged):
        return "ok"
    return "fail" if answer.java_class in REFUSALS and not defaults else "unknown"


@dataclass(frozen=True)
class Attempt:
    """One record on its way.

    Attributes:
        topic: where to.
        seq: its number within the topic, from 0.
        key: unique over all probes.
        begun_ns: monotonic.
    """

    topic: str
    seq: int
    key: str
    begun_ns: int

    def event(self, answer: Acknowledged | JavaError, *, defaults: bool) -> Event:
        """The event that ends this attempt now."""
        acked = answer if isinstance(answer, Acknowledged) else None
        failed = answer if isinstance(answer, JavaError) else None
        return Event.now(
            "probe",
            "produce",
            outcome_of(answer, defaults=defaults),
            topic=self.topic,
            key=self.key,
            seq=self.seq,
            partition=acked and acked.partition,
            offset=acked and acked.offset,
            exception=failed and failed.java_class,
            message=failed and failed.text,
            retriable=failed and failed.retriable,
            latency_ms=round((time.monotonic_ns() - self.begun_ns) / 1e6, 3),
            defaults=defaults,
        )


class Probe:
    """Makes the attempts of a plan and writes their ends into a history.

    Args:
        plan: what to do.
        history: where the events go.
    """

    def __init__(self, plan: Plan, history: History) -> None:
        self.plan = plan
        self.history = history
        self.stop = threading.Event()
        self._run = f"probe-{uuid.uuid4().hex[:8]}"
        self._errors: list[Exception] = []

    def run(self) -> None:
        """Makes all attempts and waits until each of them has ended, or its time is over.

        Raises:
            RackgateError: no distribution, or no Java.
            JavaError: the producer cannot be made.
        """
        close_s = self.plan.timeout_ms / 1000 + 2
        with Producer(self.plan.bootstrap, self.plan.producer_config(), close_timeout_s=close_s) as producer:
            # A topic without a known leader makes send() wait, which must not hold up the other topics.
            threads = [threading.Thread(target=self._topic, args=(producer, topic)) for topic in self.plan.topics]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]

    def _topic(self, producer: Producer, topic: str) -> None:
        try:
            self._attempts(producer, topic)
        except Exception as error:  # noqa: BLE001 - raised by run()
            self._errors.append(error)
            self.stop.set()

    def _attempts(self, producer: Producer, topic: str) -> None:
        begin = time.monotonic()
        slot = made = skipped = 0
        while self.plan.count is None or made < self.plan.count:
            at_s = slot / self.plan.rate_per_s
            if self.plan.seconds is not None and at_s >= self.plan.seconds:
                break
            if self.stop.wait(max(0.0, begin + at_s - time.monotonic())):
                break
            self._attempt(producer, topic, made)
            made += 1
            # Slots that went by while send() waited are left out: a burst later would say nothing about them.
            reached = int((time.monotonic() - begin) * self.plan.rate_per_s)
            skipped += max(0, reached - slot)
            slot = max(slot, reached) + 1
        self.history.note("probe", "end", "info", topic=topic, attempts=made, skipped=skipped)

    def _attempt(self, producer: Producer, topic: str, seq: int) -> None:
        attempt = Attempt(topic, seq, f"{self._run}/{topic}/{seq}", time.monotonic_ns())

        def ended(answer: Acknowledged | JavaError) -> None:
            self.history.append(attempt.event(answer, defaults=self.plan.defaults))

        try:
            producer.send(topic, attempt.key, attempt.key, ended)
        except JavaError as error:
            ended(error)


def parse(arguments: Sequence[str]) -> tuple[Plan, Path]:
    """The plan and the history's path from the command line.

    Raises:
        RackgateError: an option cannot be met.
        SystemExit: for --help and unknown options.
    """
    parser = argparse.ArgumentParser(
        prog="python -m pyhooks.workload.probe",
        description="Tells what each single produce attempt with acks=all gets, with the patched Java producer.",
        epilog="Example: python -m pyhooks.workload.probe --bootstrap $RACKGATE_BOOTSTRAP --topics aab --rate 2"
        " --seconds 60 --history history.jsonl",
    )
    parser.add_argument("--bootstrap", required=True, help="brokers, host:port,…")
    parser.add_argument("--topics", required=True, help="names, separated by commas")
    parser.add_argument("--rate", type=float, default=2.0, help="attempts per second and topic (default 2)")
    parser.add_argument("--seconds", type=float, help="how long attempts are made")
    parser.add_argument("--count", type=int, help="attempts per topic")
    parser.add_argument("--history", required=True, type=Path, help="the file to which events are appended")
    parser.add_argument("--timeout-ms", type=int, default=5000, help="bound for one attempt (default 5000)")
    parser.add_argument(
        "--defaults", action="store_true", help="a producer's default settings: retries without end, idempotence"
    )
    parser.add_argument(
        "--delivery-timeout-ms", type=int, default=120_000, help="delivery.timeout.ms of --defaults (default 120000)"
    )
    found = parser.parse_args(arguments)
    plan = Plan(
        bootstrap=found.bootstrap,
        topics=tuple(found.topics.split(",")),
        rate_per_s=found.rate,
        seconds=found.seconds,
        count=found.count,
        timeout_ms=found.delivery_timeout_ms if found.defaults else found.timeout_ms,
        defaults=found.defaults,
    )
    return plan, found.history


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the probe; a SIGTERM or SIGINT ends it early, with an event for every attempt that was made."""
    try:
        plan, path = parse(sys.argv[1:] if arguments is None else arguments)
        probe = Probe(plan, History(path))

        def end(_signal: int, _frame: FrameType | None) -> None:
            probe.stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        probe.run()
    except (RackgateError, JavaError) as error:
        sys.stderr.write(f"error: {error}\n")
        return getattr(error, "exit_status", 2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
