"""Measure throughput and CPU time of records passed between Python and the in-process Java client.

``taskset -c 1 python tests/support/jvm_crossing_cost.py BOOTSTRAP TOPIC [RECORDS]`` prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from pyhooks.jvm.consumer import Consumer, TopicPartition
from pyhooks.jvm.producer import Producer, Sent

BATCH = 2_000
IN_FLIGHT = 8
VALUE = b"x" * 100


def send(producer: Producer, topic: str, count: int) -> None:
    """Send records in batches, with at most ``IN_FLIGHT`` batches in flight, and check that each was acknowledged."""
    waiting: deque[Future[Sent]] = deque()
    for _ in range(count // BATCH):
        waiting.append(producer.send_batch(topic, [VALUE] * BATCH, partitions=0))
        if len(waiting) == IN_FLIGHT:
            assert waiting.popleft().result(30).acked.all()
    while waiting:
        assert waiting.popleft().result(30).acked.all()


def poll(consumer: Consumer, count: int) -> None:
    """Read ``count`` records and check each value."""
    read = 0
    deadline = time.monotonic() + 60
    while read < count:
        assert time.monotonic() < deadline, f"{read} of {count} records"
        records = consumer.poll(1.0)
        assert all(value == VALUE for value in records.values)
        read += len(records)


def measured(count: int, work: Callable[[int], None]) -> dict[str, float]:
    """Measure ``work`` on ``count`` records, after a warm-up with as many."""
    work(count)
    wall, cpu = time.monotonic(), time.process_time()
    work(count)
    wall_s, cpu_s = time.monotonic() - wall, time.process_time() - cpu
    return {"records_per_s": round(count / wall_s), "cpu_s_per_50000": round(cpu_s / count * 50_000, 3)}


def main() -> None:
    bootstrap, topic, *more = sys.argv[1:]
    count = int(more[0]) if more else 200_000
    with Producer(bootstrap, {"acks": "all", "linger.ms": "5", "batch.size": "131072"}) as producer:
        sent = measured(count, lambda number: send(producer, topic, number))
        send(producer, topic, 4 * BATCH)  # spare records: in either round a poll may return more than are counted
    with Consumer(bootstrap, {"max.poll.records": str(BATCH)}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        polled = measured(count, lambda number: poll(consumer, number))
    sys.stdout.write(json.dumps({"records": count, "send": sent, "poll": polled}) + "\n")


if __name__ == "__main__":
    main()
