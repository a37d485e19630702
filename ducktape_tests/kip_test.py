"""The system tests that the KIP names."""

from __future__ import annotations

import re
import shlex

from ducktape_tests import feature_level
from ducktape_tests.scenario import (
    AAB,
    FAILED_RACK,
    FLOOD,
    NEEDS,
    NOT_ENOUGH_RACKS,
    NOT_ENOUGH_REPLICAS,
    SPREAD,
    LoadSpec,
    RackScenario,
    spec,
)
from pyhooks.checkers.phases import OK
from pyhooks.history.events import TEST, IdleDetails, VersionsDetails
from pyhooks.kafka import tools, topics
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.requirement_changes import change_topic

USABLE = re.compile(r"^\s*(\w+)\((\d+)\):.*\[usable: (\d+)\]", re.MULTILINE)


class KipTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b or one broker fails and returns."""

    def test_spans_enough_racks(self) -> None:
        """While the ISR spans enough racks, all records are acknowledged, even by two brokers."""
        with self.under_load([spec("plain", AAB, 2, 2), spec("idem", AAB, 2, 2)], _plain_and_idempotent()):
            self.phase("three replicas in two racks", "plain")
            with self.fault("kill", broker=2):
                self.wait_isr({1, 3}, "plain")
                self.phase("two replicas in two racks", "plain")
                self.keep_producing()
        self.judge()

    def test_a_whole_rack_shut_down(self) -> None:
        """A single rack rejects with NotEnoughRacksException, and resumes when the other rack is back."""
        with self.under_load([spec("plain", AAB, 2, 2), spec("idem", AAB, 2, 2)], _plain_and_idempotent()):
            self.phase("all racks", "plain")
            with self.rack_outage("plain"):
                self.phase("one rack left", "plain", NOT_ENOUGH_RACKS)
            self.phase("rack back", "plain")
        self.judge((*NEEDS, SPREAD, FLOOD))

    def test_lowered_during_the_outage(self) -> None:
        """With R lowered to 1 a single rack acknowledges without a restart, and hidden records of an idle topic appear.

        The last write to the idle topic has acks=1. It is accepted and hidden, and must be visible within a second
        after all brokers report the lower value.
        """
        with (
            self.under_load([spec("plain", AAB, 2, 2), spec("idle", AAB, 2, 2)], [LoadSpec("plain")]),
            self.client("visibility_reader", "idle"),
        ):
            before = self._processes()
            with self.rack_outage("idle"):
                for name in ("plain", "idle"):
                    self.phase(f"one rack left of {name}", name, NOT_ENOUGH_RACKS)
                self.keep_producing()
                self.probe("idle", "--acks", "1")
                self.keep_producing()
                self.history.add(IdleDetails(topic="idle"))
                for name in ("plain", "idle"):
                    change_topic(self.kafka.admin, name, self.history, min_racks=1)
                self.keep_producing()
                self.phase("lowered", "plain")
                self.phase("lowered, idle until now", "idle")
                assert self._processes() == before, "a node was restarted"
            self.phase("rack back", "idle")
        self.judge((*NEEDS, SPREAD, FLOOD, "visibility", "idle"))

    def test_rack_restored_and_value_restored(self) -> None:
        """With the rack back, R=2 is restored without disruption, and rejects in the next outage."""
        with self.under_load([spec("plain", AAB, 2, 2)], [LoadSpec("plain")]):
            with self.rack_outage("plain"):
                change_topic(self.kafka.admin, "plain", self.history, min_racks=1)
            change_topic(self.kafka.admin, "plain", self.history, min_racks=2)
            self.phase("all restored", "plain")
            with self.rack_outage("plain"):
                self.phase("second outage", "plain", NOT_ENOUGH_RACKS)
        self.judge((*NEEDS, SPREAD, FLOOD))

    def test_both_thresholds_are_independent(self) -> None:
        """M and R reject independently, each with its own error; M is checked first."""
        wanted = {
            "m3r1": (3, 1, NOT_ENOUGH_REPLICAS),
            "m1r2": (1, 2, NOT_ENOUGH_RACKS),
            "m3r2": (3, 2, NOT_ENOUGH_REPLICAS),
            "m2r1": (2, 1, OK),
        }
        specs = [spec(name, AAB, m, r) for name, (m, r, _) in wanted.items()]
        with self.under_load(specs, [LoadSpec(name, rate_per_s=10) for name in wanted]):
            with self.rack_outage():
                for name, (_, _, expect) in wanted.items():
                    self.phase(f"{name} without rack {FAILED_RACK}", name, expect)
            for name in wanted:
                self.phase(f"{name} with all", name)
        self.judge((*NEEDS, SPREAD, "rejections", FLOOD))

    def _processes(self) -> dict[str, int]:
        """Return the PIDs of Kafka on nodes outside the failed rack, so that restarts are detected."""
        pids = {n.name: self.kafka.kafka_pid(n) for n in self.kafka.topology.nodes if n.site != FAILED_RACK}
        return {name: pid for name, pid in pids.items() if pid is not None}


class WithoutTest(RackScenario):
    """Stock Kafka, then patched Kafka on the same disks with its feature disabled and enabled, always with R=1."""

    OVERLAY = False

    def test_one_rack_required_is_as_without_the_feature(self) -> None:
        """With R=1 all results equal those of stock Kafka, and a stock client uses the same request versions with both.

        The same outage on stock Kafka and, on the same disks, on patched Kafka at level 0 and at level 1 of its
        feature.
        """
        specs = [spec("m2", AAB, 2), spec("m3", AAB, 3)]
        with self.under_load(specs, [LoadSpec("m2"), LoadSpec("m3")]):
            self._outage("stock")
        for node in self.kafka.topology.nodes:
            self.kafka.kill_kafka(node)
        self.kafka.classpath = Distribution.load().classpath()
        for node in self.kafka.topology.nodes:
            self.kafka.start_kafka(node)
        self.kafka.wait_unfenced(self.kafka.brokers())
        self.wait_isr(AAB)
        topics.elect_preferred(self.kafka.admin)
        topics.wait_settled(self.kafka.admin, specs)
        for level in (0, 1):
            if level:
                feature_level.change_level(self.kafka, "upgrade", level)
            assert feature_level.level(self.kafka) == level, f"the feature is not at level {level}"
            with self.under_load(specs, [LoadSpec("m2"), LoadSpec("m3")]):
                self._outage(f"patched, level {level}")
        self.judge((*NEEDS, "versions"))

    def _outage(self, kafka: str) -> None:
        """Run an outage of rack b; then record the version of each request that a stock client uses."""
        with self.rack_outage("m3"):
            self.phase(f"{kafka}, two of two", "m2")
            self.phase(f"{kafka}, two of three", "m3", NOT_ENOUGH_REPLICAS)
        self.phase(f"{kafka}, all", "m3")
        broker = self.kafka.brokers()[0]
        stock = Distribution.load().classpath(overlay=False)
        output = self.kafka.run_on(broker, shlex.join(tools.command(stock, "broker-api-versions", (), broker.address)))
        usable = {name: version for name, _, version in USABLE.findall(output)}
        versions = VersionsDetails(client="stock", brokers=kafka, baseline=kafka == "stock", versions=usable)
        self.history.add(versions, process=TEST)


def _plain_and_idempotent() -> list[LoadSpec]:
    # A longer timeout than that of the other one: after a timeout, an idempotent producer first has to start anew.
    return [LoadSpec("plain"), LoadSpec("idem", "idempotent", options=("--timeout-ms", "10000"))]
