"""Kafka's Java producer, in this process or in a gateway's JVM, with typed results and bounded waits."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyhooks.core.errors import RackgateError
from pyhooks.jvm.client import Client, Home, InProcess, java_errors
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.packed_columns import Ints, Longs, Unpacker, column, joined, lengths_of

# Longest wait in Java of the thread that collects results; also bounds how long it outlives the main thread.
TAKE_MS = 200


@dataclass(frozen=True)
class Acknowledged:
    """Position of an acknowledged record; the offset is -1 with acks=0."""

    topic: str
    partition: int
    offset: int


Done = Callable[[Acknowledged | JavaError], None]


@dataclass(frozen=True, eq=False)
class Sent:
    """Results of a batch to a topic; the arrays have one entry per record, in the order of the batch.

    Attributes:
        partition: partition, or -1 if none was determined.
        offset: offset, or -1 if the record was not acknowledged, or with acks=0.
        sent_ns: when the record was handed to the Java producer, monotonic.
        done_ns: when the producer completed the record, monotonic; Java and ``time.monotonic_ns`` read the same clock.
        error: index into ``errors``, or -1 if the record was acknowledged.
        errors: exceptions that Java threw, each class and message once.
    """

    topic: str
    partition: Ints
    offset: Longs
    sent_ns: Longs
    done_ns: Longs
    error: Ints
    errors: tuple[JavaError, ...]

    @property
    def acked(self) -> NDArray[np.bool_]:
        """Mask of the acknowledged records."""
        return self.error < 0

    def result(self, index: int) -> Acknowledged | JavaError:
        """Return the result of one record."""
        error = int(self.error[index])
        if error >= 0:
            return self.errors[error]
        return Acknowledged(self.topic, int(self.partition[index]), int(self.offset[index]))


def _pack(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    partitions: int | Sequence[int] | Ints,
    timestamps_ms: int | Sequence[int] | Longs,
) -> bytes:
    """Return the batch in the format of ``Sender.send``."""
    size = len(values)
    if keys is not None and len(keys) != size:
        raise ValueError(f"{len(keys)} keys for {size} records")
    key_lengths = np.full(size, -1) if keys is None else lengths_of(keys)
    return b"".join(
        (
            size.to_bytes(4),
            column(partitions, size, ">i4"),
            column(timestamps_ms, size, ">i8"),
            column(key_lengths, size, ">i4"),
            column(lengths_of(values), size, ">i4"),
            b"" if keys is None else joined(keys),
            joined(values),
        )
    )


class Producer(Client):
    """org.apache.kafka.clients.producer.KafkaProducer.

    Java's threads only store results; a Python thread of this object fetches them and calls back. So slow
    Python code does not delay the producer. The thread ends with close(), or soon after the main thread.

    Args:
        bootstrap: value of ``bootstrap.servers``.
        config: further configuration of the producer; the serializers are set.
        home: JVM in which to run; by default this process's, with the client of the built distribution.
        close_timeout_s: how long close() waits for open records, in seconds; the remaining ones fail.

    Raises:
        JavaError: the configuration is rejected.
        RackgateError: no distribution, or no Java.
    """

    def __init__(
        self, bootstrap: str, config: Mapping[str, str], *, home: Home | None = None, close_timeout_s: float = 10.0
    ) -> None:
        made = (home or InProcess()).make("rackgate.hooks.Sender", {"bootstrap.servers": bootstrap, **config})
        super().__init__(made, close_timeout_s)
        self._errors: list[Exception] = []
        self._tickets = itertools.count()
        self._open: dict[int, tuple[str, Future[Sent]]] = {}
        self._closed = threading.Event()
        # nothing is added to _open once the listener has started to fail the remaining batches
        self._entry = threading.Lock()
        self._listener = threading.Thread(target=self._listen, name="producer-ends")
        self._listener.start()

    def send(self, topic: str, key: str, value: str, done: Done) -> None:
        """Send one record; ``done`` is called with its result exactly once, in this producer's thread, one by one.

        Blocks for at most ``max.block.ms`` while the topic's leader is unknown. close() re-raises exceptions of
        ``done``. For more than a few hundred records per second use ``send_batch``.

        Raises:
            RackgateError: the producer is closed, or its JVM has ended.
        """

        def completed(future: Future[Sent]) -> None:
            try:
                done(future.result().result(0))
            except Exception as error:  # noqa: BLE001 - the future would only log it; close() raises it
                self._errors.append(error)

        # before the record is sent: a future that is done already would call back in the sending thread
        future: Future[Sent] = Future()
        future.add_done_callback(completed)
        self._send(future, topic, _pack([value.encode()], [key.encode()], -1, -1))

    def send_batch(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partitions: int | Sequence[int] | Ints = -1,
        timestamps_ms: int | Sequence[int] | Longs = -1,
    ) -> Future[Sent]:
        """Send records with one call into Java, and return once the producer has accepted them.

        Blocks while the producer's buffer is full or the topic's leader is unknown. If a record is not accepted within
        ``max.block.ms``, the rest of the batch is not tried. It ends with the same TimeoutException and was certainly
        not sent.

        Args:
            topic: topic name.
            values: one value per record.
            keys: one key per record, or None for records without keys.
            partitions: one number per record, or one for all; -1 leaves the choice to the producer.
            timestamps_ms: one timestamp per record, or one for all; -1 stands for the current time.

        Returns:
            Results of all records, including their errors, available once the last record has completed. The future
            raises RackgateError only if the producer was closed, or its JVM ended, before all results were available.

        Raises:
            JavaError: an error of the JVM itself, such as too little memory; the outcome of the records is unknown.
            RackgateError: the producer is closed, or its JVM has ended.
            ValueError: the number of keys, partitions or timestamps differs from the number of values.
        """
        future: Future[Sent] = Future()
        self._send(future, topic, _pack(values, keys, partitions, timestamps_ms))
        return future

    def _send(self, future: Future[Sent], topic: str, packed: bytes) -> None:
        future.set_running_or_notify_cancel()  # sent records cannot be cancelled
        with self._entry:
            if self._closed.is_set():
                raise RackgateError(f"send to {topic}: the producer is closed")
            ticket = next(self._tickets)
            self._open[ticket] = (topic, future)
        try:
            with java_errors():
                self._java.send(ticket, topic, packed)
        except BaseException:
            self._open.pop(ticket, None)
            raise

    def fetch_metadata(self, topic: str) -> None:
        """Wait until the producer has the topic's metadata, for at most ``max.block.ms``.

        Raises:
            JavaError: no metadata in time.
        """
        with java_errors():
            self._java.fetchMetadata(topic)

    def init_transactions(self) -> None:
        """Prepare the producer for transactions; call it once, before the first transaction.

        Raises:
            JavaError: rejected, or not completed within ``max.block.ms``.
        """
        with java_errors():
            self._java.initTransactions()

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            JavaError: a transaction is open, or the producer was fenced.
        """
        with java_errors():
            self._java.beginTransaction()

    def commit(self) -> None:
        """Commit the open transaction, after all of its records were acknowledged.

        Raises:
            JavaError: not committed. After a TimeoutException or InterruptException the outcome is unknown.
        """
        with java_errors():
            self._java.commitTransaction()

    def abort(self) -> None:
        """Abort the open transaction.

        Raises:
            JavaError: it could not be aborted; the coordinator aborts it at its timeout.
        """
        with java_errors():
            self._java.abortTransaction()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a block as a transaction: commit at its end, abort if it raises.

        Raises:
            JavaError: see ``begin``, ``commit`` and ``abort``.
        """
        self.begin()
        try:
            yield
        except BaseException:
            self.abort()
            raise
        self.commit()

    def flush(self) -> None:
        """Wait until all sent records have completed, for at most ``delivery.timeout.ms``.

        Raises:
            JavaError: interrupted.
        """
        with java_errors():
            self._java.flush()

    def close(self) -> None:
        """Close the producer. Afterwards every record has completed and every ``done`` was called. Idempotent.

        Raises:
            Exception: the first exception raised by a ``done``.
        """
        try:
            with java_errors():
                self._java.close(round(self._close_timeout_s * 1000))
        finally:
            self._closed.set()
            self._listener.join()
        if self._errors:
            raise self._errors[0]

    def _listen(self) -> None:
        try:
            # After close() every record has completed, and the remaining results are available at once.
            while not (closed := self._closed.is_set()) or self._open:
                with java_errors():
                    packed = self._java.take(0 if closed else TAKE_MS)
                ends = Unpacker(memoryview(packed))
                if closed and not ends.more:
                    break
                while ends.more:
                    self._end(ends)
                if not threading.main_thread().is_alive():
                    break
        except Exception as error:  # noqa: BLE001 - close() raises it
            self._errors.append(error)
        with self._entry:
            self._closed.set()
            left = list(self._open.values())
            self._open.clear()
        # without the lock: callbacks may call this producer
        for topic, future in left:
            future.set_exception(RackgateError(f"the producer ended before it reported results of {topic}"))

    def _end(self, ends: Unpacker) -> None:
        ticket, size, errors = ends.number(8), ends.number(), ends.number()
        open_ = self._open.pop(ticket, None)
        partition, offset, sent_ns, done_ns, error = (
            ends.ints(size), ends.longs(size), ends.longs(size), ends.longs(size), ends.ints(size)
        )  # fmt: skip
        exceptions = tuple(JavaError(ends.text().split("\n"), ends.text()) for _ in range(errors))
        if open_ is None:
            return  # send_batch raised: no future is waiting
        topic, future = open_
        future.set_result(Sent(topic, partition, offset, sent_ns, done_ns, error, exceptions))
