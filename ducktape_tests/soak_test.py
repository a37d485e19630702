"""Soak: random faults, changed settings, reassignments and rolling restarts for a given time, under every checker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from ducktape_tests import soak_plan
from ducktape_tests.scenario import (
    FAST_METADATA,
    FLOOD,
    NEEDS,
    SPREAD,
    LoadSpec,
    RackScenario,
    require_true,
    sleep,
    spec,
)
from ducktape_tests.soak_plan import SoakStep
from pyhooks.core import resource_usage
from pyhooks.history.events import TEST, ResourcesDetails, RoundDetails
from pyhooks.kafka import reassignments
from pyhooks.workload.requirement_changes import change_topic

MINUTES = 10.0
RATE_PER_S = 5.0
SLOW_RTT_MS = 60.0
# The first two keep their settings: with R=2, and as the control with R=1.
GATED, FREE, CHANGING = "gated", "free", ("one", "two")
# A run of ten minutes may draw no other outage that is long enough for rejections to be judged.
FIRST = SoakStep("fault", "kill", rack="b", seconds=soak_plan.LONG_S[1])


class SoakTest(RackScenario):
    """Six brokers, two in each of three racks, with a controller in each rack."""

    TOPOLOGY = "az3x2"

    def __init__(self, test_context: Any) -> None:
        super().__init__(test_context)
        self.minutes = float(test_context.globals.get("minutes", MINUTES))
        # The last step may begin at the end of the time.
        self.SECONDS = 60 * self.minutes + 900

    def test_soak(self) -> None:
        """No checker finds anything wrong in a long random run, and no process grows.

        After an outage of rack b, ducktape's globals ``seed`` and ``minutes`` determine steps and duration.
        """
        racks = {
            site.name: [node.node_id for node in self.kafka.brokers(site.name)] for site in self.kafka.topology.racks
        }
        specs = [spec(GATED, (1, 2, 3), 2, 2), spec(FREE, (1, 2, 3), 2, 1)]
        specs += [spec(CHANGING[0], (1, 3, 5), 2, 2), spec(CHANGING[1], (3, 4, 5), 2, 2)]
        self.create_topics(specs)
        # A topic that stops would delay others of its producer.
        loads = [
            LoadSpec(topic.name, mode, rate_per_s=RATE_PER_S, options=FAST_METADATA)
            for topic, mode in zip(specs, ("idempotent", "plain", "plain", "idempotent"), strict=True)
        ]
        done = 0
        # The list of the test's topics has their current replicas.
        with self.under_load(self.specs, loads):
            until = time.monotonic() + 60 * self.minutes
            placed = {topic.name: topic.replicas for topic in self.specs}
            for step in chain([FIRST], soak_plan.steps(self.seed, racks, placed, CHANGING)):
                if time.monotonic() >= until:
                    break
                done += 1
                self.logger.info("step %d of seed %d: %s", done, self.seed, step.text)
                self.history.add(RoundDetails(seed=self.seed, text=step.text))
                self._run(step)
                self.wait_recovered(self.specs)
                # A reassignment to a broker that is not back yet would be rejected, and not every broker has a replica.
                self.kafka.wait_unfenced(self.kafka.brokers())
                self._note_resources()
        self.read_final_state(logs=True)
        self.figures(seed=self.seed, minutes=self.minutes, steps=done)
        require_true(self.verdicts((*NEEDS, SPREAD, "faults", "recovery", "flat", FLOOD)))

    def _run(self, step: SoakStep) -> None:
        if step.kind == "fault":
            settings: Mapping[str, Any] = {"rtt_ms": SLOW_RTT_MS} if step.fault == "slow" else {}
            with self.fault(step.fault, rack=step.rack, broker=step.broker, **settings):
                sleep(step.seconds, step.text)
        elif step.kind == "requirement":
            replicas, racks = step.need
            change_topic(self.kafka.admin, step.topic, self.history, min_replicas=replicas, min_racks=racks)
            config = spec(step.topic, (), replicas, racks).config
            self._update(step.topic, config=config)
        elif step.kind == "reassignment":
            moves = {step.topic: step.replicas}
            self.kafka.reassign(moves)
            reassignments.wait_placed(self.kafka.topology.bootstrap, moves)
            self._update(step.topic, replicas=step.replicas)
        else:
            for node in self.kafka.brokers():
                self.restart_broker(node.node_id, node.site)

    def _update(self, name: str, **changed: Any) -> None:
        """Change what is known of a topic, in place: waits under load use the same list."""
        self.specs[:] = [replace(topic, **changed) if topic.name == name else topic for topic in self.specs]

    def _note_resources(self) -> None:
        """Record resident memory and open files of each node's Kafka, and of this process with its descendants."""
        for node in self.kafka.topology.nodes:
            pid = self.kafka.kafka_pid(node)
            found = self.kafka.run_on(node, f"ls /proc/{pid}/fd | wc -l; grep VmRSS /proc/{pid}/status").split()
            details = ResourcesDetails(name=node.name, files=int(found[0]), memory_kib=int(found[2]))
            self.history.add(details, process=TEST)
        memory_gib, _ = resource_usage.tree()
        lab = ResourcesDetails(name="lab", files=resource_usage.open_files(), memory_kib=round(memory_gib * 2**20))
        self.history.add(lab, process=TEST)
