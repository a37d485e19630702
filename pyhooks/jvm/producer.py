"""Kafka's Java producer, in this process or in a gateway's JVM, typed and bounded in time."""

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

# How long the thread that hears of ends waits in Java at a time; a bound for how long it outlives the main thread.
TAKE_MS = 200


@dataclass(frozen=True)
class Acknowledged:
    """Where an acknowledged record is.

    Attributes:
        topic: its topic.
        partition: its partition.
        offset: its offset, or -1 with acks=0.
    """

    topic: str
    partition: int
    offset: int


Done = Callable[[Acknowledged | JavaError], None]


@dataclass(frozen=True, eq=False)
class Sent:
    """What became of the records of a batch; the arrays have one entry a record, in the order in which they were given.

    Attributes:
        topic: where to.
        partition: the partition, or -1 if none was found.
        offset: the offset, or -1 if the record was not acknowledged, or with acks=0.
        sent_ns: when the record was handed to the Java producer, monotonic.
        done_ns: when the producer told of its end, monotonic; Java and ``time.monotonic_ns`` read the same clock.
        error: index into ``errors``, or -1 if it was acknowledged.
        errors: what Java threw, each class and message once.
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
        """Which records were acknowledged."""
        return self.error < 0

    def answer(self, index: int) -> Acknowledged | JavaError:
        """What became of one record."""
        error = int(self.error[index])
        if error >= 0:
            return self.errors[error]
        return Acknowledged(self.topic, int(self.partition[index]), int(self.offset[index]))


class Producer(Client):
    """org.apache.kafka.clients.producer.KafkaProducer.

    Java's own threads only note how records end; a thread of Python's, which this object has, fetches that and tells of
    it. So nothing that Python does holds the producer up. That thread ends with close(), or soon after the main thread.

    Args:
        bootstrap: brokers.
        config: the producer's configuration beside bootstrap.servers and the serializers.
        home: the JVM that it lives in; by default this process's, with the client of the built distribution.
        close_timeout_s: how long records may still be on their way at the end; the others fail.

    Raises:
        JavaError: the configuration is refused.
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
        # nothing enters _open once the listener has begun to fail what is left in it
        self._entry = threading.Lock()
        self._listener = threading.Thread(target=self._listen, name="producer-ends")
        self._listener.start()

    def __enter__(self) -> Producer:
        return self

    def send(self, topic: str, key: str, value: str, done: Done) -> None:
        """Sends one record; ``done`` hears of its end exactly once.

        It waits for at most ``max.block.ms`` if the topic's leader is not known yet. For more than a few hundred
        records a second use ``send_batch``.

        Args:
            topic: where to.
            key: of the record.
            value: of the record.
            done: called in this producer's own thread, one call at a time; what it raises is raised by close().

        Raises:
            RackgateError: the producer is closed, or its JVM has ended.
        """

        def completed(future: Future[Sent]) -> None:
            try:
                done(future.result().answer(0))
            except Exception as error:  # noqa: BLE001 - the future would only log it; close() raises it
                self._errors.append(error)

        self.send_batch(topic, [value.encode()], keys=[key.encode()]).add_done_callback(completed)

    def send_batch(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partitions: int | Sequence[int] | Ints = -1,
        timestamps_ms: int | Sequence[int] | Longs = -1,
    ) -> Future[Sent]:
        """Sends records with one call into Java, and returns when the producer has taken them.

        It waits while the producer's buffer is full or the topic's leader not known. When a record was not taken within
        ``max.block.ms``, the rest of the batch is not tried and ends with the same TimeoutException, surely not sent.

        Args:
            topic: where to.
            values: one a record.
            keys: one a record, or no keys.
            partitions: one a record, or one for all; -1 leaves the choice to the producer.
            timestamps_ms: one a record, or one for all; -1 stands for now.

        Returns:
            The ends of all records, once the last of them has ended. Errors of records are in it; waiting for it raises
            RackgateError only if the producer was closed, or its JVM ended, before it told of them.

        Raises:
            JavaError: an error of the JVM itself, such as too little memory; what became of the records is not known.
            RackgateError: the producer is closed, or its JVM has ended.
            ValueError: the numbers of keys, partitions or timestamps are not that of values.
        """
        size = len(values)
        if keys is not None and len(keys) != size:
            raise ValueError(f"{len(keys)} keys for {size} records")
        key_lengths = np.full(size, -1) if keys is None else lengths_of(keys)
        packed = b"".join(
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
        future: Future[Sent] = Future()
        future.set_running_or_notify_cancel()  # what was sent cannot be taken back
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
        return future

    def learn(self, topic: str) -> None:
        """Waits until the producer knows the topic's partitions, for at most ``max.block.ms``.

        Raises:
            JavaError: nobody told in time.
        """
        with java_errors():
            self._java.learn(topic)

    def init_transactions(self) -> None:
        """Makes the producer ready for transactions; once, before the first.

        Raises:
            JavaError: refused, or not done within ``max.block.ms``.
        """
        with java_errors():
            self._java.initTransactions()

    def begin(self) -> None:
        """Begins a transaction.

        Raises:
            JavaError: one is open, or the producer was fenced.
        """
        with java_errors():
            self._java.beginTransaction()

    def commit(self) -> None:
        """Commits the open transaction, after all of its records were acknowledged.

        Raises:
            JavaError: it was not committed, or, if it is a TimeoutException or InterruptException, it is not known.
        """
        with java_errors():
            self._java.commitTransaction()

    def abort(self) -> None:
        """Aborts the open transaction.

        Raises:
            JavaError: it could not be aborted; it will be at its timeout.
        """
        with java_errors():
            self._java.abortTransaction()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction as a block: committed at its end, aborted if it raises.

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
        """Waits until all records that were sent have ended, for at most ``delivery.timeout.ms``.

        Raises:
            JavaError: interrupted.
        """
        with java_errors():
            self._java.flush()

    def close(self) -> None:
        """Closes the producer; afterwards every record has ended and ``done`` was called. Twice is the same as once.

        Raises:
            Exception: the first that a ``done`` raised.
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
            # Once it is closed everything has ended, and what is still to be told lies ready.
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
        except Exception as error:  # noqa: BLE001 - told to everyone who waits, and by close()
            self._errors.append(error)
        with self._entry:
            self._closed.set()
            left = list(self._open.values())
            self._open.clear()
        # without the lock: who hears of it may call us
        for topic, future in left:
            future.set_exception(RackgateError(f"the producer ended before it told what became of records to {topic}"))

    def _end(self, ends: Unpacker) -> None:
        ticket, size, errors = ends.number(8), ends.number(), ends.number()
        open_ = self._open.pop(ticket, None)
        partition, offset, sent_ns, done_ns, error = (
            ends.ints(size), ends.longs(size), ends.longs(size), ends.longs(size), ends.ints(size)
        )  # fmt: skip
        told = tuple(JavaError.told(ends.text().split("\n"), ends.text()) for _ in range(errors))
        if open_ is None:
            return  # send_batch raised, so nobody waits
        topic, future = open_
        future.set_result(Sent(topic, partition, offset, sent_ns, done_ns, error, told))
