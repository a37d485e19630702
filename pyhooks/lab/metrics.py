"""Metrics of a whole cluster, polled at a fixed rate into the history of a run.

The name of a metric consists of Kafka's own terms: the key property ``name`` of the bean, then its other properties (as
in ``ErrorsPerSec.Produce.NOT_ENOUGH_RACKS``), then the attribute unless it is the ``Value`` of a gauge.
``pyhooks.lab.mbeans`` defines which beans are read, and how.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.history.events import MetricsDetails, PollFailureDetails
from pyhooks.lab.mbeans import MetricsReading, MetricsSource

V = TypeVar("V")
# Maximum number of a JVM's read errors that a poll keeps.
ERRORS_KEPT = 3
_PROPERTY = re.compile(r'([^=,]+)=("(?:[^"\\]|\\.)*"|[^,]*)')


@dataclass(frozen=True)
class Metric:
    """Value of a metric of one broker or controller at one time."""

    broker: int
    topic: str | None  # topic, or None for a metric of the whole node
    partition: int | None  # partition, or None for a metric of a whole topic or node
    name: str
    value: float | None  # a finite number, or None if the JVM's value is not one
    mono_ns: int  # monotonic time of the request; the value may be up to ``Poll.latency_ms`` newer
    wall_ms: int


@lru_cache(maxsize=65536)
def _subject(bean: str) -> tuple[str | None, int | None, str]:
    """Return topic, partition and metric name of a bean."""
    keys = dict(_PROPERTY.findall(bean.partition(":")[2]))
    keys.pop("type", None)
    topic, partition = keys.pop("topic", None), keys.pop("partition", None)
    # agent and JMX port list a bean's properties in different orders
    rest = sorted(keys.items(), key=lambda pair: (pair[0] not in ("name", "request"), pair[0]))
    name = ".".join(value for _, value in rest)
    return topic, int(partition) if partition is not None and partition.isdigit() else None, name


def _number(text: str) -> float | None:
    """Parse a finite number, as int if possible; None for anything else."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value - value == 0 else None


def metrics_of(reading: MetricsReading, broker: int, mono_ns: int, wall_ms: int) -> tuple[Metric, ...]:
    """Return the metrics of a reading, with the time of its request."""
    metrics = []
    for bean, attribute, value in reading.rows:
        topic, partition, name = _subject(bean)
        full = name if attribute == "Value" else f"{name}.{attribute}"
        metrics.append(Metric(broker, topic, partition, full, _number(value), mono_ns, wall_ms))
    return tuple(metrics)


@dataclass(frozen=True)
class Poll:
    """One request for metrics to one node, whether it succeeded or not."""

    broker: int
    node: str
    rack: str | None
    due_ns: int  # scheduled monotonic time of the request
    mono_ns: int
    wall_ms: int
    latency_ms: float = 0.0
    size: int = 0
    metrics: tuple[Metric, ...] = ()
    errors: tuple[str, ...] = ()  # the first few read errors of the JVM
    problem: str = ""  # why there are no metrics, or empty
    asked: bool = True  # whether a request was sent

    def event(self) -> Event:
        """Return the poll as one compact event; ``rows`` is the inverse."""
        errors = self.errors or None
        late_ms, latency_ms = round((self.mono_ns - self.due_ns) / 1e6, 3), round(self.latency_ms, 3)
        if self.problem:
            failure = PollFailureDetails(
                broker=self.broker,
                node=self.node,
                late_ms=late_ms,
                latency_ms=latency_ms,
                problem=self.problem,
                errors=errors,
            )
            return failure.event_at(self.mono_ns, self.wall_ms, "unknown", rack=self.rack)
        values, topics, partitions = by_subject((metric, metric.value) for metric in self.metrics)
        columns = sorted({name for row in partitions.values() for name in row})
        response = MetricsDetails(
            broker=self.broker,
            node=self.node,
            late_ms=late_ms,
            latency_ms=latency_ms,
            errors=errors,
            size_bytes=self.size,
            values=values,
            topics=topics,
            columns=tuple(columns),
            partitions={
                f"{topic}-{number}": tuple(row.get(name) for name in columns)
                for (topic, number), row in partitions.items()
            },
        )
        return response.event_at(self.mono_ns, self.wall_ms, "ok", rack=self.rack)


def by_subject(
    metrics: Iterable[tuple[Metric, V]],
) -> tuple[dict[str, V], dict[str, dict[str, V]], dict[tuple[str, int], dict[str, V]]]:
    """Group values of metrics by name: of the node, by topic, and by topic and partition."""
    values: dict[str, V] = {}
    topics: dict[str, dict[str, V]] = {}
    partitions: dict[tuple[str, int], dict[str, V]] = {}
    for metric, value in metrics:
        if metric.topic is None:
            values[metric.name] = value
        elif metric.partition is None:
            topics.setdefault(metric.topic, {})[metric.name] = value
        else:
            partitions.setdefault((metric.topic, metric.partition), {})[metric.name] = value
    return values, topics, partitions


def rows(event: Event) -> Iterator[Metric]:
    """Yield the metrics in the event of a poll; none if its outcome is unknown.

    Missing values (of a gauge that some partitions have and this one has not) are left out.
    """
    details = MetricsDetails.of(event)
    if details is None:
        return
    broker = details.broker

    def row(topic: str | None, partition: int | None, name: str, value: float | None) -> Metric:
        return Metric(broker, topic, partition, name, value, event.mono_ns, event.wall_ms)

    for name, value in details.values.items():
        yield row(None, None, name, value)
    for topic, named in details.topics.items():
        for name, value in named.items():
            yield row(topic, None, name, value)
    for key, cells in details.partitions.items():
        topic, _, number = key.rpartition("-")
        for name, value in zip(details.columns, cells, strict=True):
            if value is not None:
                yield row(topic, int(number), name, value)


def poll_once(source: MetricsSource, timeout_s: float, due_ns: int | None = None) -> Poll:
    """Poll a source once; a failure becomes a poll with a problem."""
    begun_ns, wall_ms = time.monotonic_ns(), time.time_ns() // 1_000_000
    head = (source.broker, source.name, source.rack, begun_ns if due_ns is None else due_ns, begun_ns, wall_ms)
    try:
        reading = source.read(timeout_s)
    except RackgateError as error:
        return Poll(*head, latency_ms=(time.monotonic_ns() - begun_ns) / 1e6, problem=str(error))
    latency_ms = (time.monotonic_ns() - begun_ns) / 1e6
    values = metrics_of(reading, source.broker, begun_ns, wall_ms)
    return Poll(*head, latency_ms, reading.size, values, reading.errors[:ERRORS_KEPT])


@dataclass
class Poller:
    """Context manager that polls all sources at a fixed rate, each in its own thread.

    The schedule is fixed at the start, so a slow broker delays no other source and causes no drift. Each scheduled time
    of each source yields one poll. It is recorded as unknown if the previous poll was still running then.
    """

    sources: Sequence[MetricsSource]
    sink: Callable[[Poll], object]  # called with each poll, from several threads
    interval_s: float = 1.0
    timeout_s: float = 1.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Reject invalid values.

        Raises:
            RackgateError: interval or timeout is not above 0.
        """
        if self.interval_s <= 0 or self.timeout_s <= 0:
            raise RackgateError(
                f"metrics: interval {self.interval_s:g} s, timeout {self.timeout_s:g} s: must be above 0"
            )

    def __enter__(self) -> Poller:
        begin_ns = time.monotonic_ns()
        for source in self.sources:
            thread = threading.Thread(target=self._keep_asking, args=(source, begin_ns), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop polling and wait for the threads.

        Raises:
            RackgateError: the sink failed, so polls are missing.
        """
        self.stop()
        deadline = time.monotonic() + self.timeout_s + 5
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._errors:
            raise RackgateError(f"metrics: polls failed: {self._errors[0]!r}") from self._errors[0]

    def stop(self) -> None:
        """Start no further polls."""
        self._stop.set()

    def _keep_asking(self, source: MetricsSource, begin_ns: int) -> None:
        interval_ns = int(self.interval_s * 1e9)
        slot = 0
        try:
            while not self._stop.wait(max(0.0, (begin_ns + slot * interval_ns - time.monotonic_ns()) / 1e9)):
                due_ns = begin_ns + slot * interval_ns
                slot += 1
                now_ns = time.monotonic_ns()
                if now_ns - due_ns >= interval_ns:
                    late = f"{source.name}: missed: the previous poll was still running"
                    wall_ms = time.time_ns() // 1_000_000
                    head = (source.broker, source.name, source.rack, due_ns, now_ns, wall_ms)
                    self.sink(Poll(*head, problem=late, asked=False))
                    continue
                self.sink(poll_once(source, self.timeout_s, due_ns))
        except Exception as error:  # noqa: BLE001 - raised at the context's end
            self._errors.append(error)


def record_polls(sources: Sequence[MetricsSource], history: History, interval_s: float = 1.0) -> Poller:
    """Return a poller that appends each poll to a history as one event."""
    return Poller(sources, lambda poll: history.append(poll.event()), interval_s, timeout_s=max(1.0, interval_s))
