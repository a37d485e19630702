"""A distributed Connect worker in an outage of a rack, with two racks required and with one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ClassVar

from ducktape_tests.scenario import (
    AAB,
    FAILED_RACK,
    NEEDS,
    OFFSETS,
    SINGLE_PARTITIONS,
    SPREAD,
    STEADY_S,
    TRANSACTIONS,
    LoadSpec,
    RackScenario,
    offsets_topic,
    require_true,
    sleep,
    spec,
    transactions_topic,
)
from ducktape_tests.services.clients import Program, wait_events
from pyhooks.checkers.connect_counts import connect_outputs
from pyhooks.history.events import SunkDetails
from pyhooks.kafka import gate, topics
from pyhooks.kafka.topics import TopicSpec
from pyhooks.workload.connect_worker import internal_topics

OUTAGE_S = 30.0
REQUIRED = (2, 1)
GATED, FREE = "gated", "free"
# A transaction that the outage interrupted ends after a minute at most; then tasks are restarted.
SUNK_S = 180.0


class ConnectTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b fails and returns."""

    PROPERTIES: ClassVar[Mapping[str, str]] = SINGLE_PARTITIONS

    def test_a_source_and_a_sink_count(self) -> None:
        """A source writes each number once and a sink receives each, though all of Connect's topics reject records.

        The topics for offsets, configs and states of connectors, for groups and transactions and the one with the
        numbers are in racks a, a, b. In an outage of rack b both connectors stand still with R=2, and go on with R=1,
        the control.
        """
        topics.create(self.kafka.admin, [transactions_topic(AAB, 2), offsets_topic(AAB)])
        self.kafka.wait_log(TRANSACTIONS, AAB)
        self.kafka.wait_log(OFFSETS, AAB)
        specs = [spec(GATED, AAB, 2, 2), spec(FREE, AAB, 2, 1)]
        outputs = {racks: f"numbers-{racks}" for racks in REQUIRED}
        specs += [spec(name, AAB, 2, racks) for racks, name in outputs.items()]
        with self.under_load(specs, [LoadSpec(GATED), LoadSpec(FREE)], also=[OFFSETS, TRANSACTIONS]):
            for racks, target in outputs.items():
                self._outage(racks, target)
        self.read_final_state(outputs=outputs.values())
        pauses = {one.name: one.longest_pause_s for one in connect_outputs(list(self.history.events()))}
        self.figures(seed=self.seed, longest_pause_of_the_sink_s=pauses)
        require_true(self.verdicts((*NEEDS, SPREAD, "connected", "faults", "recovery")))

    def _outage(self, racks: int, target: str) -> None:
        """Run a worker through an outage of rack b; all topics that it writes require ``racks`` racks."""
        group = f"connect-{racks}"
        need = {gate.MIN_INSYNC_REPLICAS: "2", gate.MIN_INSYNC_RACKS: str(racks)}
        internal = [
            TopicSpec(name, AAB, {"cleanup.policy": "compact", **need}) for name in internal_topics(group).values()
        ]
        names = [target, *(topic.name for topic in internal)]
        self.require_racks(racks)
        topics.create(self.kafka.admin, internal)
        folder = f"{self.clients.host.scratch}/{group}"
        with self.client("connect_worker", target, "--group", group, "--folder", folder) as (worker,):
            self._sunk(worker)
            sleep(STEADY_S, "counting before the outage")
            with self.fault("kill", rack=FAILED_RACK):
                topics.wait_isrs(self.kafka.admin, {name: frozenset({1, 2}) for name in names})
                sleep(OUTAGE_S, f"{OUTAGE_S:g} s of outage")
            topics.wait_isrs(self.kafka.admin, {name: frozenset(AAB) for name in names})
            sleep(STEADY_S, "a settled ISR")
            self._sunk(worker)
            self.wait_recovered(self.specs)

    def _sunk(self, worker: Program) -> None:
        """Wait until the sink has received a record from now on."""
        now_ns = time.monotonic_ns()
        wait_events(
            [worker],
            SunkDetails,
            lambda _, __, sunk: sunk.begun_ns > now_ns,
            [True],
            goal="a record at the sink",
            timeout_s=SUNK_S,
        )
