"""Kafka Streams with exactly-once semantics in an outage of a rack, with two racks required and with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

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
from pyhooks.checkers.streams_output import streams_outputs
from pyhooks.history.events import ArrivalsDetails, StreamsStateDetails
from pyhooks.kafka import gate, topics
from pyhooks.kafka.topics import TopicSpec
from pyhooks.workload.final_reader import high_watermark
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
        waits with R=2 and continues with R=1, the control. In the end its output has each record of the input
        once, with count 1.
        """
        topics.create(self.kafka.admin, [transactions_topic(AAB, 2), offsets_topic(AAB)])
        self.kafka.wait_log(TRANSACTIONS, AAB)
        self.kafka.wait_log(OFFSETS, AAB)
        for racks in REQUIRED:
            self._run(racks)
        self.read_final_state(outputs=[f"out-{racks}" for racks in REQUIRED])
        pauses = {one.name: one.longest_pause_s for one in streams_outputs(list(self.history.events()))}
        self.figures(seed=self.seed, longest_pause_of_the_output_s=pauses)
        require_true(self.verdicts((*NEEDS, "processed")))

    def _run(self, racks: int) -> None:
        """Run the application through an outage; all topics that it writes require ``racks`` racks."""
        application, source, target = f"app-{racks}", f"in-{racks}", f"out-{racks}"
        repartition, changelog = internal_topics(application)
        need = {gate.MIN_INSYNC_REPLICAS: "2", gate.MIN_INSYNC_RACKS: str(racks)}
        internal = [
            TopicSpec(repartition, AAB, {"cleanup.policy": "delete", "retention.ms": "-1", **need}),
            TopicSpec(changelog, AAB, {"cleanup.policy": "compact", **need}),
        ]
        state = f"{self.clients.host.scratch}/state-{racks}"
        arguments = ("--to", target, "--application", application, "--state", state)
        load = [LoadSpec(source, "idempotent", rate_per_s=RATE_PER_S)]
        self.require_racks(racks)
        topics.create(self.kafka.admin, internal)
        # An application without its source ends.
        self.create_topics([spec(source, INPUT_PLACED, 2, 2), spec(target, AAB, 2, racks)])
        names = [target, *(topic.name for topic in internal)]
        with (
            self.client("arrivals", target) as (consumer,),
            self.client("streams_app", source, *arguments) as (app,),
        ):
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
                    topics.wait_isrs(self.kafka.admin, {name: frozenset({1, 2}) for name in names})
                    sleep(OUTAGE_S, f"{OUTAGE_S:g} s of outage")
                topics.wait_isrs(self.kafka.admin, {name: frozenset(AAB) for name in names})
                sleep(STEADY_S, "processing after the outage")
            wanted, counts = high_watermark(self.kafka.topology.bootstrap, source), Counter[str]()
            wait_events(
                [consumer],
                ArrivalsDetails,
                # The consumer follows the target from its end, which is empty until the application runs.
                lambda _, __, arrivals: counts.update({target: len(arrivals.keys)}) or counts[target] >= wanted,
                [True],
                goal=f"{wanted} counts",
                timeout_s=PROCESSED_S,
            )
