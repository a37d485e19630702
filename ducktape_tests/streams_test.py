"""Kafka Streams with exactly-once semantics in an outage of a rack, with two racks required and with one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from ducktape_tests.scenario import (
    AAB,
    FAILED_RACK,
    NEEDS,
    OFFSETS,
    SINGLE_PARTITIONS,
    TRANSACTIONS,
    LoadSpec,
    RackScenario,
    offsets_topic,
    require_true,
    sleep,
    spec,
    transactions_topic,
)
from ducktape_tests.services.clients import wait_events
from pyhooks.core.errors import RackgateError
from pyhooks.history.events import StreamsStateDetails
from pyhooks.kafka import gate, topics
from pyhooks.kafka.topics import TopicSpec
from pyhooks.workload.final_reader import COMMITTED, high_watermark, open_consumer, read_all
from pyhooks.workload.streams_app import internal_topics

# In racks a, a, c: always in two racks, so that there is always something to process.
INPUT_PLACED = (1, 2, 5)
RATE_PER_S = 20
STEADY_S = 8.0
OUTAGE_S = 30.0
REQUIRED = (2, 1)
# A transaction that the outage interrupted ends after a minute at most; then threads have to rejoin.
PROCESSED_S = 180.0


class StreamsTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b fails and returns."""

    PROPERTIES: ClassVar[Mapping[str, str]] = SINGLE_PARTITIONS

    def test_each_record_is_processed_once(self) -> None:
        """Each record is counted once, though repartition, changelog, output, offsets and transactions are rejected.

        All topics that the application writes are in racks a, a, b; its input stays writable. In an outage of rack b it
        stands still with R=2, and goes on with R=1, the control. In the end its output has each record of the input
        once, with count 1.
        """
        topics.create(self.kafka.admin, [transactions_topic(AAB, 2), offsets_topic(AAB)])
        self.kafka.wait_log(TRANSACTIONS, AAB)
        self.kafka.wait_log(OFFSETS, AAB)
        pauses = {}
        for racks in REQUIRED:
            pauses[f"R={racks}"] = self._run(racks)
        for racks in REQUIRED:
            read_all(
                self.kafka.topology.bootstrap, [f"in-{racks}", f"out-{racks}"], self.history,
                isolations=(COMMITTED,), values=True,
            )  # fmt: skip
        self.read_final_state()
        found = self.verdicts((*NEEDS, "processed"))
        self.figures(seed=self.seed, longest_pause_of_the_output_s=pauses)
        require_true(found)
        if not pauses["R=2"] > OUTAGE_S > pauses["R=1"]:
            raise RackgateError(f"the output must pause for the outage with R=2, and not with R=1: {pauses} s")

    def _run(self, racks: int) -> float:
        """Run the application through an outage; return the longest pause of its output, in seconds."""
        application, source, target = f"app-{racks}", f"in-{racks}", f"out-{racks}"
        repartition, changelog = internal_topics(application)
        need = {gate.MIN_INSYNC_REPLICAS: "2", gate.MIN_INSYNC_RACKS: str(racks)}
        own = [
            TopicSpec(repartition, AAB, {"cleanup.policy": "delete", "retention.ms": "-1", **need}),
            TopicSpec(changelog, AAB, {"cleanup.policy": "compact", **need}),
            TopicSpec(target, AAB, {"message.timestamp.type": "LogAppendTime", **need}),
        ]
        state = f"{self.clients.host.scratch}/state-{racks}"
        arguments = ("--to", target, "--application", application, "--state", state)
        load = [LoadSpec(source, "idempotent", rate_per_s=RATE_PER_S)]
        self.require_racks(racks)
        topics.create(self.kafka.admin, own)
        # An application without its source ends.
        given = [spec(source, INPUT_PLACED, 2, 2)]
        self.create_topics(given)
        with self.client("streams_app", source, *arguments) as (app,):
            # The input of the previous run, too: its recovery from this outage is judged.
            with self.under_load(self.specs, load):
                wait_events(
                    [app],
                    StreamsStateDetails,
                    lambda _, __, found: found.state == "RUNNING",
                    [True],
                    goal="a running application",
                    timeout_s=PROCESSED_S,
                )
                sleep(STEADY_S, "processing before the outage")
                with self.fault("kill", rack=FAILED_RACK):
                    topics.wait_isrs(self.kafka.admin, {topic.name: frozenset({1, 2}) for topic in own})
                    sleep(OUTAGE_S, f"{OUTAGE_S:g} s of outage")
                topics.wait_isrs(self.kafka.admin, {topic.name: frozenset(AAB) for topic in own})
                sleep(STEADY_S, "processing after the outage")
            bootstrap = self.kafka.topology.bootstrap
            wanted = high_watermark(bootstrap, source)
            times = _append_times_ms(bootstrap, target, wanted, PROCESSED_S)
            self.logger.info("%d records of %s, %d of %s", wanted, source, len(times), target)
            return _longest_pause_s(times)


def _append_times_ms(bootstrap: str, topic: str, count: int, timeout_s: float) -> list[int]:
    """Return when committed records of partition 0 were appended: ``count``, or fewer after the time limit."""
    times: list[int] = []
    until = time.monotonic() + timeout_s
    with open_consumer(bootstrap, COMMITTED, enable_partition_eof="false") as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while len(times) < count and time.monotonic() < until:
            times += [int(message.timestamp()[1]) for message in consumer.consume(500, 0.5) if message.error() is None]
    return times


def _longest_pause_s(times_ms: Sequence[int]) -> float:
    return round(max((later - earlier for earlier, later in pairwise(times_ms)), default=0) / 1000, 1)
