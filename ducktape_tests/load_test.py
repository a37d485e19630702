"""Outages of a rack with many partitions: the cost on stock and patched Kafka, and the effect on other topics.

These tests take long, and belong only to the selection ``load``. ``partitions`` (10,000 by default), ``cycles`` and
``rounds`` come from ducktape's ``--globals``.

At the end of each arm the topics that were produced to are read once. Partitions are not observed twice a second and
disks are not read, because they have 30,000 logs. So ``promise``, ``progress``, ``rejections`` and ``recovery`` have
nothing to judge.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from ducktape.tests.test_context import TestContext

from ducktape_tests.scenario import CRASHES, FAILED_RACK, START_S, STEADY_S, LoadSpec, RackScenario, require_true
from ducktape_tests.services.clients import Program, wait_events
from pyhooks.checkers import many_partitions, slowdown
from pyhooks.checkers.judgement import judge
from pyhooks.checkers.many_partitions import OVERLAY
from pyhooks.core import paths, process
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event, History
from pyhooks.history.events import (
    ArmDetails,
    BlockDetails,
    Edge,
    FaultDetails,
    ProduceDetails,
    ReachedDetails,
    StageDetails,
)
from pyhooks.history.outcomes import TOO_FEW_RACKS
from pyhooks.kafka import bulk_topics, gate, topics
from pyhooks.kafka.bulk_topics import BulkTopic
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.final_reader import read_all
from pyhooks.workload.known_errors import note_known_errors

REMAIN = frozenset({1, 2, 5})
# topics that the gate affects: two replicas in rack a, which leads, one in rack b
GATED = ((1, 2, 3), (2, 1, 4))
# topics that continue: racks a and c remain, and one of them leads
OTHERS = ((1, 3, 5), (5, 2, 4), (2, 4, 5))
GATED_TOPICS, OTHER_TOPICS, PROBED, DRIVEN = 20, 2, 5, 2
OTHER_PARTITIONS = 3
BLOCK_S = 10.0
# duration of a stage in which CPU time is measured
STAGE_S = 40.0
SETTLED_S = 900.0
# Client of all topics that are not probed, so that only the brokers differ. The probing client knows the gate's errors.
CLIENT = paths.kafka_version()
PATIENCE_MS = 600_000
# Records per second and topic: of all in the outage test; of others and of driven topics in the latency test, where
# they keep two cores from saturation.
BUSY_PER_S, EASY_PER_S, TRIED_PER_S = 20, 10, 2
# for the clients whose latency is measured: none of their requests ends early
FIRST_MS = "20000"
# For clients that detect when a topic rejects: a broker answers the requests of a connection in order. So a record sent
# before the ISR shrank delays the rejection of the next one until it times out.
PROBE_MS = "2000"
# Concurrent readers at the end: each partition with few records costs 0.1 s of waiting.
READERS = 8
# fields of /proc/PID/stat from the state letter on: CPU time in user mode and in the kernel
UTIME, STIME = 11, 12


class LoadTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b fails and returns."""

    TOPOLOGY = "az3-load"
    SECONDS = 7200.0

    def __init__(self, test_context: Any) -> None:
        super().__init__(test_context)
        given = test_context.globals
        self.partitions = int(given.get("partitions", 10_000))
        # partitions per topic
        self.topic_partitions = max(1, self.partitions // GATED_TOPICS)
        self.driven: list[str] = []
        self.cycles, self.rounds = int(given.get("cycles", 3)), int(given.get("rounds", 24))

    def setUp(self) -> None:
        """Start only the clients: each arm has its own cluster."""
        self.results = Path(TestContext.results_dir(self.test_context, self.test_context.test_index))
        self.history = self.kafka.process_history = History(self.results / "history.jsonl")
        note_known_errors(self.history, [CLIENT])
        self.clients.start()

    def test_outage_of_many_partitions(self) -> None:
        """An outage stops many partitions with the gate, and none without it; both recover.

        Stock and patched Kafka run one after the other in random order, each on new disks, with several outages each.
        Of the 20 topics of many partitions two are driven and five are probed, at one partition each; 13 are idle, and
        are not read. Times until rejection and recovery, and the CPU time of each node, are recorded.
        """
        for arm in self.rng.sample(many_partitions.ARMS, len(many_partitions.ARMS)):
            self._begin(arm)
            self.driven = self.gated[-DRIVEN:]
            with self._loaded(BUSY_PER_S, BUSY_PER_S) as (others, _):
                for cycle in range(self.cycles):
                    self._cycle(arm, cycle, others)
            self._read()
            self.kill_all()
        events = list(self.history.events())
        self.figures(partitions=self.partitions, cycles=self.cycles, **many_partitions.figures(events))
        self._judge(events, "stops")

    def test_others_beside_rejections(self) -> None:
        """Rejecting the records of many partitions slows other topics no more than accepting them does.

        In an outage of rack b, rounds of three blocks in random order: R=2, R=1, and R=1 once more.
        """
        self._begin(OVERLAY)
        self.driven = self.gated[PROBED:]
        with self._loaded(EASY_PER_S, TRIED_PER_S) as (others, probes):
            self.producers = [others, probes]
            with self.fault("kill", rack=FAILED_RACK):
                bulk_topics.wait_members(self.kafka.admin, self.bulk_topics, REMAIN, SETTLED_S)
                for number in range(self.rounds):
                    for arm in self.rng.sample(slowdown.ARMS, len(slowdown.ARMS)):
                        self._require(arm, probes)
                        self._block(arm, number)
            bulk_topics.wait_members(self.kafka.admin, self.bulk_topics, None, SETTLED_S)
        self._read()
        self.kill_all()
        events = list(self.history.events())
        self.figures(partitions=self.partitions, rounds=self.rounds, **slowdown.figures(events))
        self._judge(events, "slowdown")

    def _read(self) -> None:
        """Read the topics of the current cluster that were produced to, after all producers have ended."""
        names = [*self.others, *self.probed, *self.driven]
        read_all(self.kafka.topology.bootstrap, names, self.history, readers=READERS)

    def _judge(self, events: Sequence[Event], name: str) -> None:
        """Require that the checker ``name`` and those that apply to every history of these clients return true."""
        verdicts, _ = judge(events, ("faults", CRASHES, "delivery", "offsets", "realtime_order", "known", name))
        self.save(verdicts)
        require_true(verdicts)

    def _begin(self, arm: str) -> None:
        """Start a new cluster with all topics; topic names contain the arm, which keeps records of arms apart."""
        minima = {gate.MIN_INSYNC_REPLICAS: "2"} | ({gate.MIN_INSYNC_RACKS: "2"} if arm == OVERLAY else {})
        gated = [
            BulkTopic(f"{arm}-gated-{at}", bulk_topics.rotating(self.topic_partitions, GATED), minima)
            for at in range(GATED_TOPICS)
        ]
        others = [
            BulkTopic(f"{arm}-other-{at}", bulk_topics.rotating(OTHER_PARTITIONS, OTHERS), minima)
            for at in range(OTHER_TOPICS)
        ]
        self.bulk_topics = [*gated, *others]
        self.others = [topic.name for topic in others]
        self.gated = [topic.name for topic in gated]
        self.history.add(ArmDetails(arm=arm, probed=tuple(self.probed)))
        self.kafka.classpath = Distribution.load().classpath(overlay=arm == OVERLAY)
        # CPU time is measured here, so Kafka runs with the usual compilers.
        self.kafka.java = ()
        # The metadata of the previous cluster's client are of no use.
        self.kafka.forget_admin()
        self.kafka.start()
        self.started = True
        bulk_topics.create(self.kafka.admin, self.bulk_topics, SETTLED_S)
        self.kafka.wait_logs(self.bulk_topics, SETTLED_S)

    @contextmanager
    def _loaded(self, others_per_s: float, driven_per_s: float) -> Iterator[tuple[Program, Program]]:
        """Produce to others, probe some of the gated topics, and drive further ones with a long timeout.

        Yields:
            The producer of the others and the probing one, once each driven partition has acknowledged a record.
        """
        loads = [
            LoadSpec(",".join(self.others), "plain", CLIENT, others_per_s, ("--timeout-ms", FIRST_MS)),
            LoadSpec(",".join(self.probed), "probe", "patched", 2, ("--name", "producer", "--timeout-ms", PROBE_MS)),
            LoadSpec(",".join(self.driven), "idempotent", CLIENT, driven_per_s, patient_ms=PATIENCE_MS),
        ]
        programs = [load.arguments(self.kafka.topology.bootstrap, self.SECONDS) for load in loads]
        with (
            self.client("arrivals", ",".join(self.others)),
            self.clients.running("producer", programs, self.history) as (others, probes, driven),
        ):
            self.producers = [others, probes, driven]
            self.keep_producing(timeout_s=START_S)
            self._warm(driven, driven_per_s)
            yield others, probes
            self.producers = []

    def _warm(self, driven: Program, per_s: float) -> None:
        """Wait until each driven partition has acknowledged a record.

        A partition accepts any batch as the first one of an unknown producer. If that is not the first of the rejected
        batches, the first one fails as long as it is retried.
        """
        # The producer visits the partitions in turn. Events fetched earlier are not returned again, so allow two turns.
        wait_events(
            [driven],
            ProduceDetails,
            lambda _, event, produced: (produced.topic, produced.partition) if event.outcome == "ok" else None,
            product(self.driven, range(self.topic_partitions)),
            goal="a record in each driven partition",
            timeout_s=START_S + 2 * self.topic_partitions / per_s,
        )

    @property
    def probed(self) -> list[str]:
        """Topics to which single attempts are sent."""
        return self.gated[:PROBED]

    # -- cost of an outage ---------------------------------------------------------------------------------------------

    def _cycle(self, arm: str, cycle: int, others: Program) -> None:
        """Run a stage before an outage and one in it, and heal."""
        # Rejected topics have no results until the heal.
        self.producers = [others]
        with self._stage(arm, "before", cycle):
            self.keep_producing(STAGE_S)
        with self._healing(arm, cycle), self.fault("kill", rack=FAILED_RACK):
            with self._stage(arm, "lose", cycle):
                self._reach(arm, cycle, "lost", REMAIN)
            with self._stage(arm, "outage", cycle):
                self.keep_producing(STAGE_S)
            self._note_stage(arm, "heal", cycle, "begin")

    @contextmanager
    def _healing(self, arm: str, cycle: int) -> Iterator[None]:
        """Record the stage from the heal until all replicas are in sync again."""
        yield
        self._reach(arm, cycle, "back", None)
        self._note_stage(arm, "heal", cycle, "end")

    @contextmanager
    def _stage(self, arm: str, stage: str, cycle: int) -> Iterator[None]:
        self._note_stage(arm, stage, cycle, "begin")
        yield
        self._note_stage(arm, stage, cycle, "end")

    def _reach(self, arm: str, cycle: int, change: Literal["lost", "back"], brokers: frozenset[int] | None) -> None:
        """Wait until each ISR consists of the partition's replicas on ``brokers`` (None: all); record the time."""
        step = "heal" if brokers is None else "inject"
        since_ns = max(event.mono_ns for event, fault in FaultDetails.each(self.history.events()) if fault.step == step)
        bulk_topics.wait_members(self.kafka.admin, self.bulk_topics, brokers, SETTLED_S)
        self.history.add(ReachedDetails(arm=arm, cycle=cycle, change=change, since_ns=since_ns))

    def _note_stage(self, arm: str, stage: str, cycle: int, edge: Edge) -> None:
        """Record the begin or end of a stage, with the CPU time of each node's Kafka."""
        ticks: dict[str, tuple[int, int]] = {}
        for node in self.kafka.topology.nodes:
            pid = self.kafka.kafka_pid(node)
            if pid is not None:
                fields = process.parse_stat(self.kafka.run_on(node, f"cat /proc/{pid}/stat"))
                ticks[node.name] = (pid, int(fields[UTIME]) + int(fields[STIME]))
        hz = int(self.kafka.run_on(self.kafka.topology.nodes[0], "getconf CLK_TCK"))
        self.history.add(StageDetails(arm=arm, stage=stage, cycle=cycle, edge=edge, ticks=ticks, hz=hz))

    # -- effect on other topics ----------------------------------------------------------------------------------------

    def _require(self, arm: str, probes: Program) -> None:
        """Set R of all gated topics and wait until all probed topics reject, or accept, attempts."""
        enforced = arm == slowdown.GATE
        for topic in self.gated:
            topics.alter(self.kafka.admin, topic, {gate.MIN_INSYNC_RACKS: "2" if enforced else "1"})
        since_ns = time.monotonic_ns()
        last: dict[str, bool] = {}

        def complete() -> bool:
            for event, produced in ProduceDetails.each(probes.fetch()):
                if (produced.sent_ns or 0) >= since_ns:
                    last[produced.topic] = produced.exception in TOO_FEW_RACKS if enforced else event.outcome == "ok"
            return len(last) == PROBED and all(last.values())

        goal = f"all of {PROBED} topics to {'reject' if enforced else 'accept'} attempts"
        wait_for(complete, goal=goal, timeout_s=SETTLED_S, interval_s=0.5)
        # By then the records that were held back have been sent.
        self.keep_producing(STEADY_S)

    def _block(self, arm: str, number: int) -> None:
        begin = BlockDetails(
            arm=arm,
            round=number,
            topics=tuple(self.others),
            probed=tuple(self.probed),
            driven=tuple(self.driven),
            edge="begin",
        )
        self.history.add(begin)
        self.keep_producing(BLOCK_S)
        self.history.add(replace(begin, edge="end"))
