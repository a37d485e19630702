"""The producers that workloads drive, behind one small protocol: patched Java, Java of any release, librdkafka."""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from pyhooks.errors import RackgateError
from pyhooks.workload.certainty import Acked, Answer, Refused

SERIALIZERS = {
    f"{part}.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer" for part in ("key", "value")
}
PATCHED, CONFLUENT, JAVA = "patched", "confluent", "java"
_HEAD = struct.Struct(">iii")
_LENGTH = struct.Struct(">i")
# as rackgate.hooks.Sending packs its answers
_ANSWER = struct.Struct(">iqqiqi")
POLL_S = 0.05


@dataclass(frozen=True)
class Record:
    """A record to be sent.

    Attributes:
        token: by which its report is known again.
        topic: where to.
        partition: number, or -1 to leave it to the client.
        key: of the record.
        value: of the record.
    """

    token: int
    topic: str
    partition: int
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Report:
    """What became of a record.

    Attributes:
        token: of the record.
        sent_ns: when it was handed to the client, monotonic.
        done_ns: when the client had its answer, monotonic.
        answer: the answer.
    """

    token: int
    sent_ns: int
    done_ns: int
    answer: Answer


class TransactionError(Exception):
    """A transaction's step that did not succeed.

    Attributes:
        error: full name of the Java exception's class, or librdkafka's name of the error.
    """

    def __init__(self, error: str, text: str) -> None:
        super().__init__(f"{error}: {text}")
        self.error = error


@dataclass(frozen=True)
class Settings:
    """What a producer is to be like; each client says it in its own words.

    Attributes:
        bootstrap: brokers.
        retries: how often a record is tried again; None leaves it to the client, which tries until ``timeout_ms``.
        idempotent: with producer ids and sequence numbers.
        transactional_id: for transactions, else None.
        timeout_ms: bound for one record, retries included, and for each step of a transaction.
        linger_ms: how long records wait for others to go with them.
        alone: each record in a request of its own.
        defaults: as an application has it that sets nothing but ``delivery.timeout.ms``.
    """

    bootstrap: str
    retries: int | None
    idempotent: bool
    transactional_id: str | None
    timeout_ms: int
    linger_ms: int
    alone: bool
    defaults: bool

    def java(self) -> Mapping[str, str]:
        """The configuration of a Java producer, beside the serializers."""
        # The producer refuses a delivery timeout below linger and request timeout together.
        linger_ms = max(self.linger_ms, DEFAULT_LINGER_MS)
        request_ms = min(DEFAULT_REQUEST_TIMEOUT_MS, self.timeout_ms - linger_ms)
        bounds = {
            "bootstrap.servers": self.bootstrap,
            "delivery.timeout.ms": str(self.timeout_ms),
            "request.timeout.ms": str(request_ms),
        }
        if self.defaults:
            return bounds
        config = {
            **bounds,
            "acks": "all",
            "enable.idempotence": str(self.idempotent).lower(),
            "linger.ms": str(self.linger_ms),
            "max.block.ms": str(self.timeout_ms),
        }
        if self.retries is not None:
            config["retries"] = str(self.retries)
        if self.alone:
            config["batch.size"] = "0"
        if self.retries == 0:
            config["request.timeout.ms"] = str(self.timeout_ms - self.linger_ms)
        if self.transactional_id is not None:
            config |= {
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
            }
        return config

    def librdkafka(self) -> Mapping[str, str | int | bool]:
        """The configuration of librdkafka.

        Raises:
            RackgateError: ``defaults``, which are those of the Java producer.
        """
        if self.defaults:
            raise RackgateError("--defaults tells of the Java producer's settings: it has no meaning for confluent")
        config: dict[str, str | int | bool] = {
            "bootstrap.servers": self.bootstrap,
            "log_level": 2,
            "acks": "all",
            "enable.idempotence": self.idempotent,
            "linger.ms": self.linger_ms,
            "message.timeout.ms": self.timeout_ms,
            "request.timeout.ms": min(DEFAULT_REQUEST_TIMEOUT_MS, self.timeout_ms),
        }
        if self.retries is not None:
            config["message.send.max.retries"] = self.retries
        if self.alone:
            config["batch.num.messages"] = 1
        if self.transactional_id is not None:
            config |= {
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": max(TRANSACTION_TIMEOUT_MS, self.timeout_ms),
            }
        return config


DEFAULT_LINGER_MS = 5
DEFAULT_REQUEST_TIMEOUT_MS = 30_000
TRANSACTION_TIMEOUT_MS = 60_000


class Client(Protocol):
    """A producer that answers for every record that it was given."""

    def send(self, records: Sequence[Record]) -> None:
        """Hands records over; it may wait for the topic's leader to be known, at most the settings' timeout."""

    def take(self, timeout_s: float) -> list[Report]:
        """Reports since the last call; waits at most ``timeout_s`` for the first."""

    def init_transactions(self) -> None:
        """Ends what earlier producers of the same transactional id left open; raises TransactionError."""

    def begin(self) -> None:
        """Begins a transaction; raises TransactionError."""

    def commit(self) -> None:
        """Waits for the transaction's records and commits it; raises TransactionError."""

    def abort(self) -> None:
        """Aborts the transaction; raises TransactionError."""

    def close(self, timeout_s: float) -> None:
        """Ends the producer, waiting at most ``timeout_s`` for what is open; ``take`` gives the rest afterwards."""

    def release(self) -> None:
        """Ends what the client runs in; to be called when everything was taken."""


def pack(records: Sequence[Record]) -> bytes:
    """Records as ``rackgate.hooks.Sending`` reads them."""
    parts: list[bytes] = []
    for record in records:
        topic = record.topic.encode()
        parts += (_HEAD.pack(record.token, record.partition, len(topic)), topic)
        parts += (_LENGTH.pack(len(record.key)), record.key, _LENGTH.pack(len(record.value)), record.value)
    return b"".join(parts)


def unpack(packed: bytes, errors: Callable[[int], Refused]) -> list[Report]:
    """The reports in what ``rackgate.hooks.Sending`` gives.

    Args:
        packed: its bytes.
        errors: what an index of its errors stands for.
    """
    return [
        Report(token, sent_ns, done_ns, Acked(partition, offset) if error < 0 else errors(error))
        for token, sent_ns, done_ns, partition, offset, error in _ANSWER.iter_unpack(packed)
    ]


def refusal(line: str) -> Refused:
    """The error that a line of ``rackgate.hooks.Sending`` tells of."""
    name, kind, message = line.split("\t", 2)
    return Refused(name, message, kind == "retriable")


class _Java:
    """``rackgate.hooks.Sending`` in a JVM.

    Args:
        sending: the Java object.
        to_java: bytes as the JVM takes them.
        call: calls, and turns Java's exceptions into JavaError.
        stack: what is to be closed at the end.
    """

    def __init__(self, sending: Any, to_java: Callable[[bytes], Any], call: Callable[..., Any], stack: ExitStack) -> None:
        self._sending = sending
        self._to_java = to_java
        self._call = call
        self._stack = stack
        self._errors: list[Refused] = []

    def send(self, records: Sequence[Record]) -> None:
        self._call(self._sending.send, self._to_java(pack(records)))

    def take(self, timeout_s: float) -> list[Report]:
        return unpack(bytes(self._call(self._sending.take, round(timeout_s * 1000))), self._error)

    def _error(self, index: int) -> Refused:
        if index >= len(self._errors):
            self._errors = [refusal(str(line)) for line in self._call(self._sending.errors)]
        return self._errors[index]

    def _step(self, step: Any) -> None:
        from pyhooks.jvm.failure import JavaError

        try:
            self._call(step)
        except JavaError as error:
            raise TransactionError(error.java_class, error.text) from error

    def init_transactions(self) -> None:
        self._step(self._sending.initTransactions)

    def begin(self) -> None:
        self._step(self._sending.begin)

    def commit(self) -> None:
        self._step(self._sending.commit)

    def abort(self) -> None:
        self._step(self._sending.abort)

    def close(self, timeout_s: float) -> None:
        self._call(self._sending.close, round(timeout_s * 1000))

    def release(self) -> None:
        self._stack.close()


def patched(settings: Settings) -> Client:
    """The Java producer of the built distribution, in this process.

    Raises:
        JavaError: the configuration is refused.
        RackgateError: no distribution, or no Java.
    """
    import jpype

    from pyhooks.build.distribution import Distribution
    from pyhooks.jvm.failure import JavaError
    from pyhooks.jvm.machine import ensure_started

    distribution = Distribution.load()
    ensure_started(f"{distribution.hooks}:{distribution.classpath()}")

    def call(function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except jpype.JException as error:
            raise JavaError.of(error) from error

    config = jpype.java.util.HashMap()
    for key, value in {**SERIALIZERS, **settings.java()}.items():
        config.put(key, value)
    sending = call(jpype.JClass("rackgate.hooks.Sending"), config)
    return _Java(sending, jpype.JArray(jpype.JByte), call, ExitStack())


def java(settings: Settings, classpath: str) -> Client:
    """The Java producer of a class path, in a JVM of its own that ends with this process.

    Args:
        settings: of the producer.
        classpath: of a Kafka client of any release.

    Raises:
        JavaError: the configuration is refused.
        RackgateError: the JVM does not start.
    """
    from py4j.protocol import Py4JJavaError

    from pyhooks.build.distribution import Distribution
    from pyhooks.jvm.failure import JavaError
    from pyhooks.jvm.gateway import Gateway

    def call(function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Py4JJavaError as error:
            raise JavaError.of(error.java_exception) from error

    with ExitStack() as stack:
        gateway = stack.enter_context(Gateway(f"{Distribution.load().hooks}:{classpath}"))
        sending = call(gateway.jvm.rackgate.hooks.Sending, {**SERIALIZERS, **settings.java()})
        return _Java(sending, bytes, call, stack.pop_all())
    raise AssertionError("unreachable")


class Confluent:
    """librdkafka.

    Args:
        settings: of the producer.
    """

    def __init__(self, settings: Settings) -> None:
        import confluent_kafka

        self._kafka = confluent_kafka
        try:
            self._producer = confluent_kafka.Producer(dict(settings.librdkafka()))
        except confluent_kafka.KafkaException as error:
            raise RackgateError(f"librdkafka refuses its configuration: {error.args[0].str()}") from error
        self._reports: deque[Report] = deque()
        self._timeout_s = settings.timeout_ms / 1000

    def send(self, records: Sequence[Record]) -> None:
        """See ``Client``."""
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
                self._refused(record.token, sent_ns, Refused("_QUEUE_FULL", "the client's queue is full", True))
            except self._kafka.KafkaException as error:
                self._refused(record.token, sent_ns, self._refusal(error.args[0]))

    def _refusal(self, error: Any) -> Refused:
        return Refused(str(error.name()), str(error.str()), bool(error.retriable()))

    def _refused(self, token: int, sent_ns: int, answer: Refused) -> None:
        self._reports.append(Report(token, sent_ns, time.monotonic_ns(), answer))

    def _report(self, token: int, sent_ns: int, error: Any, message: Any) -> None:
        if error is not None:
            self._refused(token, sent_ns, self._refusal(error))
            return
        acked = Acked(message.partition(), message.offset())
        self._reports.append(Report(token, sent_ns, time.monotonic_ns(), acked))

    def take(self, timeout_s: float) -> list[Report]:
        """See ``Client``."""
        if not self._reports:
            self._producer.poll(timeout_s)
        self._producer.poll(0)
        taken: list[Report] = []
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
        """See ``Client``."""
        self._step(self._producer.init_transactions, self._timeout_s)

    def begin(self) -> None:
        """See ``Client``."""
        self._step(self._producer.begin_transaction)

    def commit(self) -> None:
        """See ``Client``."""
        self._step(self._producer.commit_transaction, self._timeout_s)

    def abort(self) -> None:
        """See ``Client``."""
        self._step(self._producer.abort_transaction, self._timeout_s)

    def close(self, timeout_s: float) -> None:
        """See ``Client``."""
        if self._producer.flush(timeout_s):
            self._producer.purge()
            self._producer.flush(1.0)

    def release(self) -> None:
        """See ``Client``; nothing runs beside this process."""


def make(kind: str, settings: Settings, classpath: str | None = None) -> Client:
    """The client that a name stands for.

    Args:
        kind: ``patched``, ``confluent``, or ``java`` with a class path.
        settings: of the producer.
        classpath: of ``java``.

    Raises:
        RackgateError: no such client, or it cannot be made.
        JavaError: Java refuses the configuration.
    """
    if kind == PATCHED:
        return patched(settings)
    if kind == CONFLUENT:
        return Confluent(settings)
    if kind == JAVA and classpath:
        return java(settings, classpath)
    raise RackgateError(f"--client {kind}: one of {PATCHED}, {CONFLUENT}, and {JAVA} with --classpath")
