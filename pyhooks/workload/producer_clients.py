"""Producer clients of the workloads behind one protocol: patched Java, any Java release, librdkafka."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from pyhooks.core.errors import RackgateError
from pyhooks.history.events import CONFLUENT, PATCHED
from pyhooks.history.outcomes import Acked, Answer, Rejected

if TYPE_CHECKING:
    from pyhooks.jvm.gateway import Gateway
    from pyhooks.jvm.producer import Sent

POLL_S = 0.05


@dataclass(frozen=True)
class ProducerRecord:
    """A record to send."""

    token: int  # identifier that links the record to its report
    topic: str
    partition: int  # target partition, or -1 to leave the choice to the client
    key: bytes
    value: bytes


@dataclass(frozen=True)
class SendResult:
    """Result of a record."""

    token: int  # token of the record
    sent_ns: int  # when it was handed to the client, monotonic
    done_ns: int  # when the client had its result, monotonic
    answer: Answer


class TransactionError(Exception):
    """A step of a transaction that failed.

    Attributes:
        error: full name of the Java exception's class, or librdkafka's name of the error.
    """

    def __init__(self, error: str, text: str) -> None:
        super().__init__(f"{error}: {text}")
        self.error = error


@dataclass(frozen=True)
class ProducerSettings:
    """Producer settings, independent of the client; each client translates them to its own configuration."""

    bootstrap: str  # value of ``bootstrap.servers``
    retries: int | None  # number of retries; None leaves it to the client, which retries until ``timeout_ms``
    idempotent: bool  # whether to use producer ids and sequence numbers
    transactional_id: str | None  # transactional id, or None without transactions
    timeout_ms: int  # bound for one record, retries included, and for each step of a transaction
    linger_ms: int  # how long records wait to be batched
    one_per_request: bool  # whether each record is sent in its own request
    # whether to use default settings, as an application that sets only ``delivery.timeout.ms``
    defaults: bool
    # further settings by the client's own names; they take precedence
    overrides: Mapping[str, str] = field(default_factory=dict)
    acks: str = "all"  # ``all`` (acknowledged by the ISR) or ``1`` (by the leader)

    @property
    def close_timeout_s(self) -> float:
        """Bound for closing a client, in seconds."""
        return self.timeout_ms / 1000 + CLOSE_GRACE_S

    def java(self) -> Mapping[str, str]:
        """Return the configuration of a Java producer, except the serializers."""
        # The producer rejects a delivery timeout below the sum of linger and request timeout.
        linger_ms = max(self.linger_ms, DEFAULT_LINGER_MS)
        request_ms = min(DEFAULT_REQUEST_TIMEOUT_MS, self.timeout_ms - linger_ms)
        bounds = {
            "bootstrap.servers": self.bootstrap,
            "delivery.timeout.ms": str(self.timeout_ms),
            "request.timeout.ms": str(request_ms),
        }
        if self.defaults:
            return {**bounds, **self.overrides}
        config = {
            **bounds,
            "acks": self.acks,
            "enable.idempotence": str(self.idempotent).lower(),
            "linger.ms": str(self.linger_ms),
            "max.block.ms": str(self.timeout_ms),
        }
        if self.retries is not None:
            config["retries"] = str(self.retries)
        if self.one_per_request:
            config["batch.size"] = "0"
        if self.retries == 0:
            config["request.timeout.ms"] = str(self.timeout_ms - self.linger_ms)
        if self.transactional_id is not None:
            config |= {
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
            }
        return {**config, **self.overrides}

    def librdkafka(self) -> Mapping[str, str | int | bool]:
        """Return the configuration of librdkafka.

        Raises:
            RackgateError: ``defaults`` is set, which applies to the Java producer only.
        """
        if self.defaults:
            raise RackgateError("--defaults applies to Java producers only, not to confluent")
        config: dict[str, str | int | bool] = {
            "bootstrap.servers": self.bootstrap,
            "log_level": 2,
            "acks": self.acks,
            "enable.idempotence": self.idempotent,
            "linger.ms": self.linger_ms,
            "message.timeout.ms": self.timeout_ms,
            "request.timeout.ms": min(DEFAULT_REQUEST_TIMEOUT_MS, self.timeout_ms),
        }
        if self.retries is not None:
            config["message.send.max.retries"] = self.retries
        if self.one_per_request:
            config["batch.num.messages"] = 1
        if self.transactional_id is not None:
            config |= {
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": max(TRANSACTION_TIMEOUT_MS, self.timeout_ms),
            }
        return {**config, **self.overrides}


DEFAULT_LINGER_MS = 5
DEFAULT_REQUEST_TIMEOUT_MS = 30_000
TRANSACTION_TIMEOUT_MS = 60_000
CLOSE_GRACE_S = 2.0


class ProducerClient(Protocol):
    """A producer that reports a result for every record it was given."""

    def fetch_metadata(self, topics: Sequence[str]) -> str:
        """Fetch the topics' metadata, within the settings' timeout for each; return the error, or ``""``."""

    def send(self, records: Sequence[ProducerRecord]) -> None:
        """Hand records over; may block while a topic's leader is unknown, at most the settings' timeout."""

    def take(self, timeout_s: float) -> list[SendResult]:
        """Return the reports since the last call; wait at most ``timeout_s`` for the first one."""

    def init_transactions(self) -> None:
        """Complete open transactions of earlier producers with this transactional id; raises TransactionError."""

    def begin(self) -> None:
        """Begin a transaction; raises TransactionError."""

    def commit(self) -> None:
        """Wait for the transaction's records and commit it; raises TransactionError."""

    def abort(self) -> None:
        """Abort the transaction; raises TransactionError."""

    def flush(self) -> None:
        """Wait until all sent records have completed or timed out."""

    def close(self) -> None:
        """Close the producer; wait for open records, but not much longer than the settings' timeout.

        ``take`` returns the remaining reports afterwards.
        """

    def release(self) -> None:
        """End the client's JVM, if it has its own; call it after the last ``take``."""


class JavaProducer:
    """Kafka's Java producer, in this process or in a separate JVM.

    Args:
        settings: settings of the producer.
        home: JVM in which to run; None for this process, with the client of the built distribution.

    Raises:
        JavaError: the configuration is rejected.
        RackgateError: no distribution, or no Java.
    """

    def __init__(self, settings: ProducerSettings, home: Gateway | None = None) -> None:
        from pyhooks.jvm.producer import Producer

        self._home = home
        self._reports: SimpleQueue[list[SendResult]] = SimpleQueue()
        self._producer = Producer(
            settings.bootstrap, settings.java(), home=home, close_timeout_s=settings.close_timeout_s
        )

    def fetch_metadata(self, topics: Sequence[str]) -> str:
        """See ``ProducerClient``."""
        from pyhooks.jvm.java_exception import JavaError

        try:
            for topic in topics:
                self._producer.fetch_metadata(topic)
        except JavaError as error:
            return error.java_class
        return ""

    def send(self, records: Sequence[ProducerRecord]) -> None:
        """See ``ProducerClient``."""
        for topic, group in groupby(records, key=lambda record: record.topic):
            own = list(group)
            future = self._producer.send_batch(
                topic,
                [record.value for record in own],
                keys=[record.key for record in own],
                partitions=[record.partition for record in own],
            )
            future.add_done_callback(partial(self._ended, [record.token for record in own]))

    def _ended(self, tokens: Sequence[int], future: Future[Sent]) -> None:
        # The caller notes records without a result when it ends.
        if future.exception() is not None:
            return
        sent = future.result()
        rejected = [Rejected(error.java_class, error.text, error.retriable) for error in sent.errors]
        columns = zip(
            tokens,
            sent.sent_ns.tolist(),
            sent.done_ns.tolist(),
            sent.partition.tolist(),
            sent.offset.tolist(),
            sent.error.tolist(),
            strict=True,
        )
        self._reports.put(
            [
                SendResult(token, sent_ns, done_ns, Acked(partition, offset) if error < 0 else rejected[error])
                for token, sent_ns, done_ns, partition, offset, error in columns
            ]
        )

    def take(self, timeout_s: float) -> list[SendResult]:
        """See ``ProducerClient``."""
        taken: list[SendResult] = []
        with suppress(Empty):
            taken += self._reports.get(timeout=timeout_s) if timeout_s > 0 else self._reports.get_nowait()
            while True:
                taken += self._reports.get_nowait()
        return taken

    def _step(self, step: Callable[[], None]) -> None:
        from pyhooks.jvm.java_exception import JavaError

        try:
            step()
        except JavaError as error:
            raise TransactionError(error.java_class, error.text) from error

    def init_transactions(self) -> None:
        """See ``ProducerClient``."""
        self._step(self._producer.init_transactions)

    def begin(self) -> None:
        """See ``ProducerClient``."""
        self._step(self._producer.begin)

    def commit(self) -> None:
        """See ``ProducerClient``."""
        self._step(self._producer.commit)

    def abort(self) -> None:
        """See ``ProducerClient``."""
        self._step(self._producer.abort)

    def flush(self) -> None:
        """See ``ProducerClient``."""
        self._producer.flush()

    def close(self) -> None:
        """See ``ProducerClient``."""
        self._producer.close()

    def release(self) -> None:
        """See ``ProducerClient``."""
        if self._home is not None:
            self._home.close()


class ConfluentProducer:
    """librdkafka producer.

    Args:
        settings: settings of the producer.

    Raises:
        RackgateError: the configuration is rejected.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        import confluent_kafka

        self._kafka = confluent_kafka
        try:
            self._producer = confluent_kafka.Producer(dict(settings.librdkafka()))
        except confluent_kafka.KafkaException as error:
            raise RackgateError(f"librdkafka rejects its configuration: {error.args[0].str()}") from error
        self._reports: deque[SendResult] = deque()
        self._broken = threading.Event()
        self._timeout_s = settings.timeout_ms / 1000
        self._close_timeout_s = settings.close_timeout_s

    def fetch_metadata(self, topics: Sequence[str]) -> str:
        """See ``ProducerClient``."""
        try:
            for topic in topics:
                self._producer.list_topics(topic, self._timeout_s)
        except self._kafka.KafkaException as error:
            return str(error.args[0].name())
        return ""

    def send(self, records: Sequence[ProducerRecord]) -> None:
        """See ``ProducerClient``."""
        for record in records:
            sent_ns = time.monotonic_ns()
            place = {"partition": record.partition} if record.partition >= 0 else {}
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    on_delivery=partial(self._report, record.token, sent_ns),
                    **place,
                )
            except BufferError:
                self._rejected(record.token, sent_ns, Rejected("_QUEUE_FULL", "the client's queue is full", True, True))
            except self._kafka.KafkaException as error:
                self._rejected(record.token, sent_ns, replace(self._rejection(error.args[0]), local=True))

    def _rejection(self, error: Any) -> Rejected:
        return Rejected(str(error.name()), str(error.str()), bool(error.retriable()))

    def _rejected(self, token: int, sent_ns: int, answer: Rejected) -> None:
        self._reports.append(SendResult(token, sent_ns, time.monotonic_ns(), answer))

    def _report(self, token: int, sent_ns: int, error: Any, message: Any) -> None:
        if error is not None:
            self._rejected(token, sent_ns, self._rejection(error))
            return
        acked = Acked(message.partition(), message.offset())
        self._reports.append(SendResult(token, sent_ns, time.monotonic_ns(), acked))

    def take(self, timeout_s: float) -> list[SendResult]:
        """See ``ProducerClient``."""
        try:
            self._producer.poll(0 if self._reports else timeout_s)
            self._producer.poll(0)
        except self._kafka.KafkaException:
            # After a fatal error poll() raises it immediately at every call. The results of records come from their
            # reports, those of transactions from their steps.
            self._broken.wait(timeout_s)
        taken: list[SendResult] = []
        with suppress(IndexError):
            while True:
                taken.append(self._reports.popleft())
        return taken

    def _step(self, step: Callable[..., Any], *arguments: Any) -> None:
        try:
            step(*arguments)
        except self._kafka.KafkaException as error:
            raise TransactionError(str(error.args[0].name()), str(error.args[0].str())) from error

    def init_transactions(self) -> None:
        """See ``ProducerClient``."""
        self._step(self._producer.init_transactions, self._timeout_s)

    def begin(self) -> None:
        """See ``ProducerClient``."""
        self._step(self._producer.begin_transaction)

    def commit(self) -> None:
        """See ``ProducerClient``."""
        self._step(self._producer.commit_transaction, self._timeout_s)

    def abort(self) -> None:
        """See ``ProducerClient``."""
        self._step(self._producer.abort_transaction, self._timeout_s)

    def send_offsets(self, offsets: Sequence[Any], group: Any) -> None:
        """Add the commit of a group's offsets to the transaction.

        Args:
            offsets: ``TopicPartition``s of the transaction's input, each with the offset of the next record.
            group: ``consumer_group_metadata()`` of the consumer that read the input.

        Raises:
            TransactionError: rejected, or no response in time.
        """
        self._step(self._producer.send_offsets_to_transaction, list(offsets), group, self._timeout_s)

    def flush(self) -> None:
        """See ``ProducerClient``."""
        self._producer.flush(self._close_timeout_s)

    def close(self) -> None:
        """See ``ProducerClient``."""
        if self._producer.flush(self._close_timeout_s):
            self._producer.purge()
            self._producer.flush(1.0)

    def release(self) -> None:
        """Do nothing: there is no separate process to end. See ``ProducerClient``."""


def create_client(kind: str, settings: ProducerSettings) -> ProducerClient:
    """Create the client with this name.

    Args:
        kind: ``patched``, ``confluent``, or the release of a stock Java client such as ``3.9``.
        settings: settings of the producer.

    Raises:
        RackgateError: no such client, or it cannot be created.
        JavaError: Java rejects the configuration.
    """
    if kind == CONFLUENT:
        return ConfluentProducer(settings)
    if kind == PATCHED:
        return JavaProducer(settings)
    from pyhooks.jvm.gateway import Gateway
    from pyhooks.patchset.client_classpaths import client_classpath

    home = Gateway(client_classpath(kind))
    try:
        return JavaProducer(settings, home)
    except BaseException:
        home.close()
        raise
