"""Adapter of the patched Java producer to the pacer's ``Client``; times are those that the producer records itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial

from bench.load.pacer import ProduceFailure, TimedAck
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.producer import Producer, Sent

# Time limit for records that are still open after the wait for the last acknowledgements.
CLOSE_S = 0.5


class JavaClient:
    """Java producer in this process's JVM; used from one thread. It fetches the metadata of ``topics`` at once."""

    def __init__(self, producer: Producer, topics: Sequence[str]) -> None:
        self._producer = producer
        self._open: set[Future[Sent]] = set()
        for topic in topics:
            self._producer.fetch_metadata(topic)

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, *, on_delivery: Callable[..., None]
    ) -> None:
        """Send a record; ``on_delivery`` is called with its outcome in the producer's own thread."""
        future = self._producer.send_batch(topic, [value], keys=[key], partitions=partition)
        self._open.add(future)
        future.add_done_callback(partial(self._ended, on_delivery))

    def _ended(self, on_delivery: Callable[..., None], future: Future[Sent]) -> None:
        self._open.discard(future)
        if (error := future.exception()) is not None:
            on_delivery(ProduceFailure(type(error).__name__), None)
            return
        sent = future.result()
        response = sent.result(0)
        if isinstance(response, JavaError):
            on_delivery(ProduceFailure(response.java_class.rsplit(".", 1)[-1]), None)
            return
        done_ns = int(sent.done_ns[0])
        on_delivery(None, TimedAck(response.partition, response.offset, done_ns, done_ns - int(sent.sent_ns[0])))

    def flush(self, timeout: float) -> int:
        """Wait at most ``timeout`` seconds for the outcomes of all records; return how many are open."""
        return len(wait(self._open.copy(), timeout).not_done)

    def purge(self) -> None:
        """Close the producer, which ends all open records; idempotent."""
        self._producer.close()
