"""Pacer of one arm: sends each record at its intended time, whatever happens, and notes its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bench.load.schedule import Slot
from pyhooks.core.repeated_calls import calling_every
from pyhooks.workload.pacing import wait_until

# Outcomes in the stored observations: ok, fail and unknown of ``pyhooks.history``.
ACKED, FAILED, UNKNOWN = "acked", "failed", "unknown"
POLL_S = 0.1


@dataclass(frozen=True)
class TimedAck:
    """Acknowledgement by a client that records the time of arrival itself."""

    partition: int  # partition of the record
    offset: int  # offset of the record
    done_ns: int  # when the client received it, monotonic clock
    own_ns: int  # nanoseconds from the client's acceptance of the record until then


@dataclass(frozen=True)
class ProduceFailure:
    """Reason why a record was not acknowledged, in the form of ``confluent_kafka.KafkaError``."""

    text: str

    def name(self) -> str:
        """Return the name of the error."""
        return self.text


class PacedClient(Protocol):
    """Interface of ``confluent_kafka.Producer`` that the pacer needs."""

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, *, on_delivery: Callable[..., None]
    ) -> None:
        """Queue a record; raise BufferError if the queue is full."""

    def flush(self, timeout: float) -> int:
        """Wait at most ``timeout`` seconds for all reports; return how many are open."""

    def purge(self) -> None:
        """Abandon all open records."""


class Observations:
    """Outcomes of the records of one slot that one task sent; each array, as ``index``, has one element per record."""

    def __init__(self, slot: Slot, index: npt.NDArray[np.int64]) -> None:
        size = len(index)
        self.slot = slot
        self.index = index
        # monotonic times of produce() and of the delivery report, 0 without one
        self.sent_ns = np.zeros(size, dtype=np.int64)
        self.done_ns = np.zeros(size, dtype=np.int64)
        # the client's own time from produce() to the acknowledgement; -1 without one, as partition and offset
        self.client_us = np.full(size, -1, dtype=np.int64)
        self.partition = np.full(size, -1, dtype=np.int32)
        self.offset = np.full(size, -1, dtype=np.int64)
        self.outcome = [UNKNOWN] * size
        self.error: list[str | None] = ["not-reported"] * size

    def report(self, clock: Callable[[], int], at: int, error: Any, message: Any) -> None:
        """Take the delivery report of the record at position ``at``."""
        if isinstance(message, TimedAck):
            self.outcome[at], self.error[at] = ACKED, None
            self.done_ns[at], self.client_us[at] = message.done_ns, round(message.own_ns / 1000)
            self.partition[at], self.offset[at] = message.partition, message.offset
            return
        self.done_ns[at] = clock()
        if error is None:
            self.outcome[at], self.error[at] = ACKED, None
            self.partition[at] = message.partition()
            # librdkafka has no offset for a batch of which it learns only that an earlier attempt was appended
            if (offset := message.offset()) is not None:
                self.offset[at] = offset
            if (latency_s := message.latency()) is not None:
                self.client_us[at] = round(latency_s * 1e6)
        else:
            # The client has retried, so an earlier attempt may have been appended before the rejection.
            self.outcome[at], self.error[at] = UNKNOWN, str(error.name())

    def record_not_queued(self, clock: Callable[[], int], at: int) -> None:
        """Note that the record at position ``at`` never left this process."""
        self.done_ns[at] = clock()
        self.outcome[at], self.error[at] = FAILED, "_QUEUE_FULL"


def record_key(run_id: str, load: str, arm: str, seq: int) -> bytes:
    """Return the key that identifies a record when the topic is read back."""
    return f"{run_id}/{load}/{arm}/{seq}".encode()


@dataclass(frozen=True)
class ArmPacer:
    """All slots of one arm in a load, driven with a client of its own.

    Another thread serves delivery reports (``serving_reports``), so a report is recorded when it arrives and not when
    the next record is due. The attributes without a description are those of ``bench.load.spark_load.SparkLoad``.
    """

    run_id: str
    load: str
    slots: Sequence[Slot]  # slots in the order of time
    start_ns: int
    value: bytes  # value of every record
    task: int  # number of this task, of ``tasks`` that share the schedule
    tasks: int
    flush_s: float
    partitions: int = 1  # number of partitions of each topic; records go to them in turn, by their sequence number
    clock: Callable[[], int] = time.monotonic_ns  # returns monotonic nanoseconds
    sleep: Callable[[float], None] = time.sleep  # sleeps for a number of seconds

    def drive(self, client: PacedClient) -> list[Observations]:
        """Send every record of the slots, then wait for open records for a limited time."""
        done = [self._drive_slot(client, slot) for slot in self.slots]
        if client.flush(self.flush_s) > 0:
            # Open records are unknown; after a purge the client reports them instead of waiting longer.
            client.purge()
            client.flush(1.0)
        return done

    def _drive_slot(self, client: PacedClient, slot: Slot) -> Observations:
        share = slot.share(self.task, self.tasks)
        observations = Observations(slot, np.arange(share.start, share.stop, share.step, dtype=np.int64))
        due = (self.start_ns + slot.intended[observations.index]).tolist()
        for at, index in enumerate(share):
            wait_until(due[at], clock=self.clock, sleep=self.sleep)
            seq = slot.first_seq + index
            key, partition = record_key(self.run_id, self.load, slot.arm, seq), seq % self.partitions
            report = partial(observations.report, self.clock, at)
            observations.sent_ns[at] = self.clock()
            try:
                client.produce(slot.topic, self.value, key, partition, on_delivery=report)
            except BufferError:
                observations.record_not_queued(self.clock, at)
        return observations


def serving_reports(poll: Callable[[float], int]) -> AbstractContextManager[None]:
    """Serve delivery reports in a thread of its own; ``poll`` serves them for some seconds, or only the first one."""
    return calling_every(0.0, partial(poll, POLL_S), "delivery-reports")


def columns(observations: Observations, start_ns: int, labels: Mapping[str, str | None], task: int) -> dict[str, Any]:
    """Return the columns of the raw observations of one slot by name; see ``bench.load.spark_load.SCHEMA``.

    ``start_ns`` is the start of the load on the monotonic clock. ``labels`` are columns with one value for all rows.
    """
    size, slot = len(observations.index), observations.slot
    return {
        **{name: [value] * size for name, value in labels.items()},
        "phase": [slot.phase] * size,
        "block": np.full(size, slot.block, dtype=np.int32),
        "arm": [slot.arm] * size,
        "topic": [slot.topic] * size,
        "task": np.full(size, task, dtype=np.int32),
        "seq": slot.first_seq + observations.index,
        "measured": slot.counts[observations.index],
        "intended_ns": start_ns + slot.intended[observations.index],
        "sent_ns": observations.sent_ns,
        "done_ns": observations.done_ns,
        "client_us": observations.client_us,
        "outcome": observations.outcome,
        "error": observations.error,
        "partition": observations.partition,
        "offset": observations.offset,
    }
