"""Matrix of outages: each kind of fault on the racks of leader, follower and active controller; see ``matrix``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ducktape_tests import matrix
from ducktape_tests.matrix import CONTROLLER, LEADER, MatrixOutage, MatrixTopic
from ducktape_tests.scenario import FAST_METADATA, SPREAD, LoadSpec, RackScenario, spec
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka import topics
from pyhooks.lab import quorum_changes
from pyhooks.lab.topology import Node

RATE_PER_S = 3.0
# The ISR shrinks when sessions of 9 s end, after an election of a controller if the rack had the active one.
ISR_S = 90.0
LEADER_S = 60.0
CHECKED = ("delivery", "offsets", "promise", SPREAD, "progress", "phases", "faults", "recovery", "rejections")


class _Matrix(RackScenario):
    """All outages of the matrix for a topology, one after the other, with a topic of each kind."""

    SECONDS = 1500.0

    def outages(self) -> Sequence[MatrixOutage]:
        """Return the outages to run."""
        return [run for run in matrix.listed() if run.topology == self.TOPOLOGY]

    def test_matrix(self) -> None:
        """Attempts have the results that M, R and the placement require of the remaining replicas.

        setup: a topic for each placement that fits the topology and each of five pairs of M and R.
        drive: the outages that the matrix has for this topology, each healed before the next; load on all topics.
        validate: single attempts under each fault and after it have the results computed from the ISR; all checkers.
        """
        by_name = {topic.name: topic for topic in matrix.topics_of(self.kafka.topology)}
        specs = [spec(topic.name, topic.replicas, *topic.need) for topic in by_name.values()]
        full_isrs = {topic.name: frozenset(topic.replicas) for topic in by_name.values()}
        seconds: dict[str, float] = {}
        groups = [",".join(topic.name for topic in group) for group in matrix.together(self.kafka.topology)]
        loads = [LoadSpec(names, rate_per_s=RATE_PER_S, options=FAST_METADATA) for names in groups]
        with self.under_load(specs, loads):
            self.phases_by_isr("before", full_isrs)
            for run in self.outages():
                if not self.supports(run.fault, f"{run.fault} rack of the {run.target}"):
                    continue
                since = time.monotonic()
                rack = self._rack(run, by_name)
                name = f"{run.fault} rack {rack} of the {run.target}"
                shrunk_isrs = {
                    topic.name: matrix.surviving(topic.replicas, self.racks, run.fault, rack)
                    for topic in by_name.values()
                }
                with self.fault(run.fault, rack=rack, **self._settings(run, rack)):
                    topics.wait_isrs(self.kafka.admin, shrunk_isrs, ISR_S)
                    self.phases_by_isr(name, shrunk_isrs)
                topics.wait_isrs(self.kafka.admin, full_isrs)
                topics.elect_preferred(self.kafka.admin)
                topics.wait_settled(self.kafka.admin, specs)
                self.phases_by_isr(f"after {name}", full_isrs)
                seconds[name] = round(time.monotonic() - since, 1)
        self.figures(topics=len(by_name), seconds=seconds)
        self.judge(CHECKED)

    def _settings(self, run: MatrixOutage, rack: str) -> dict[str, Any]:
        if run.fault == "slow":
            return {"rtt_ms": matrix.SLOW_RTT_MS}
        # Controllers in the rack lose their disks, too.
        return {"controllers": True} if run.fault == "wipe" and self._has_controller(rack) else {}

    # -- target racks -------------------------------------------------------------------------------------------------

    def _rack(self, run: MatrixOutage, by_name: Mapping[str, MatrixTopic]) -> str:
        """Return the rack of a target, as the cluster currently reports it."""
        if run.target == CONTROLLER:
            return self._rack_of_controller()
        leading = {self.racks[leader] for leader in topics.leaders(self.kafka.admin, list(by_name)).values()}
        assert len(leading) == 1, f"leaders are in {sorted(leading)}"
        if run.target == LEADER:
            return leading.pop()
        common = set.intersection(*({self.racks[broker] for broker in topic.replicas} for topic in by_name.values()))
        return min(common - leading)

    def _rack_of_controller(self) -> str:
        """Return the rack of the active controller; outside all racks, kill it until one in a rack takes over."""
        active = self._active()
        while not self.kafka.topology.site(active.site).is_rack:
            self.kafka.kill_kafka(active)
            previous = active

            def successor(previous: Node = previous) -> Node | None:
                # The query fails while there is no active controller.
                try:
                    rack = self._active()
                except RackgateError as error:
                    self.logger.info("no active controller yet: %s", error)
                    return None
                return rack if rack is not previous else None

            active = wait_for(
                successor, goal=f"a successor of controller {previous.name}", timeout_s=LEADER_S, interval_s=0.5
            )
            self.kafka.start_kafka(previous)
            quorum_changes.wait_caught_up(self.kafka, previous, self.kafka.brokers())
        return active.site

    def _active(self) -> Node:
        leader = self.kafka.quorum(self.kafka.brokers()).leader
        return next(node for node in self.kafka.topology.controllers if node.node_id == leader)

    def _has_controller(self, rack: str) -> bool:
        return any(node.is_controller for node in self.kafka.topology.site(rack).nodes)


class Az3OutsideTest(_Matrix):
    """Five brokers in racks a, a, b, b, c and three controllers outside."""

    TOPOLOGY = "az3-outside"


class Az3Test(_Matrix):
    """Five brokers in racks a, a, b, b, c with a controller, possibly the active one, in each rack."""

    TOPOLOGY = "az3"


class Az3x2Test(_Matrix):
    """Six brokers, two in each of three racks, with a controller in each rack."""

    TOPOLOGY = "az3x2"


class Stretch2Test(_Matrix):
    """Two distant data centres with two brokers and a controller each, and a third controller elsewhere.

    Every outage leaves one rack, so that R=2 rejects.
    """

    TOPOLOGY = "stretch2"


class CombinedTest(_Matrix):
    """Five brokers in racks a, a, b, b, c, of which one in each rack is a controller, too, in the same process.

    An outage of the rack of the active controller takes a leader's log and the metadata quorum's leader at once.
    """

    TOPOLOGY = "az3-combined"

    def outages(self) -> Sequence[MatrixOutage]:
        """Return outages of the rack of the active controller: killed, cut off and destroyed."""
        return [MatrixOutage(self.TOPOLOGY, fault, CONTROLLER) for fault in ("kill", "cut", "wipe")]
