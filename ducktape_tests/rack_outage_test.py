"""A rack outage, seen from outside: the gate refuses what a single rack would acknowledge."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ducktape.mark import matrix
from ducktape.mark.resource import cluster
from ducktape.tests.test import Test
from ducktape.tests.test_context import TestContext

from ducktape_tests.services.clients import Clients
from ducktape_tests.services.kafka import RackKafka
from pyhooks.build.distribution import Distribution
from pyhooks.checker import verdict
from pyhooks.checker.delivery import check_delivery
from pyhooks.checker.faults import check_faults
from pyhooks.checker.phases import OK, check_phases
from pyhooks.checker.seen import check_defaults
from pyhooks.cluster import topics, topology
from pyhooks.cluster.topics import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS, TopicSpec
from pyhooks.fault.kinds import cut_rack, kill_rack
from pyhooks.history import Event, History
from pyhooks.wait import wait_for
from pyhooks.workload.reader import read_all

FAULTS = {"kill": kill_rack, "cut": cut_rack}
NOT_ENOUGH_RACKS = "org.apache.kafka.common.errors.NotEnoughRacksException"
TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"
ATTEMPTS = 5
TOPIC = "aab"
# Two of three replicas in rack a: M=2 holds without rack b, R=2 does not.
REPLICAS = (1, 2, 3)
LOST_RACK = "b"
DELIVERY_TIMEOUT_MS = 8000
CONFIG_TIMEOUT_S = 30


class RackOutageTest(Test):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b goes and comes back."""

    def __init__(self, test_context: Any) -> None:
        super().__init__(test_context)
        wanted = topology.load(topology.find("az3-outside"))
        self.kafka = RackKafka(test_context, wanted, Distribution.load().classpath())
        self.clients = Clients(test_context)
        self.spec = TopicSpec(TOPIC, REPLICAS, {MIN_INSYNC_REPLICAS: "2", MIN_INSYNC_RACKS: "2"})

    def setUp(self) -> None:
        """Starts the cluster with one topic on replicas in racks a, a, b, with M=2 and R=2."""
        results = TestContext.results_dir(self.test_context, self.test_context.test_index)
        self.history = History(Path(results) / "history.jsonl")
        self.kafka.start()
        self.clients.start()
        topics.create(self.kafka.admin, [self.spec])
        self.kafka.wait_log(TOPIC, REPLICAS)

    @property
    def _bootstrap(self) -> str:
        # A client that starts during a cut would spend its patience on brokers that do not answer.
        return ",".join(node.address for node in self.kafka.brokers() if node.site != LOST_RACK)

    def _fault(self, kind: str) -> AbstractContextManager[None]:
        return FAULTS[kind](self.kafka, LOST_RACK, self.history)

    def _edge(self, name: str, expect: str, edge: str) -> None:
        leader = self.kafka.brokers("a")[0]
        size = self.kafka.log_bytes(leader, TOPIC)
        self.history.note("test", "phase", "info", name=name, topic=TOPIC, edge=edge, expect=expect, log_bytes=size)

    def _probe(self, *more: str, count: int = ATTEMPTS) -> tuple[Event, ...]:
        return self.clients.run(
            "produce",
            self.history,
            *("--mode", "probe", "--bootstrap", self._bootstrap, "--topics", TOPIC),
            *("--rate", "2", "--count", str(count)),
            *more,
        )

    def _await(self, expect: str) -> None:
        """Waits until a changed configuration shows in the outcome of single attempts, outside of any phase."""

        def shown() -> bool:
            events = self._probe(count=1)
            return any(expect in (event.outcome, event.data.get("exception")) for event in events)

        wait_for(shown, what=f"a produce attempt that ends with {expect}", timeout_s=CONFIG_TIMEOUT_S)

    def _judge(self) -> None:
        events = tuple(self.history.events())
        found = [
            check_faults(events),
            check_phases(events, attempts_min=ATTEMPTS),
            check_defaults(events, exception=TIMEOUT, delivery_timeout_ms=DELIVERY_TIMEOUT_MS),
            check_delivery(events),
        ]
        for one in found:
            self.logger.info("verdict of %s: %s %s", one.checker, one.valid, "; ".join(one.because))
        judged = verdict.join(found)
        assert judged.valid == "true", f"{judged.valid}: {'; '.join(judged.because)}"

    def _phase(self, name: str, expect: str) -> None:
        self._edge(name, expect, "begin")
        self._probe()
        self._edge(name, expect, "end")

    @cluster(num_nodes=9)
    @matrix(fault=["kill", "cut"])
    def test_refused_while_one_rack_is_left(self, fault: str) -> None:
        """A single rack's acknowledgement is refused by name, and nothing of it enters the log.

        setup: topic on replicas in racks a, a, b with min.insync.replicas=2 and min.insync.racks=2.
        drive: produce without retries while all racks are there; take rack b away and wait until the ISR is the two
            replicas of rack a; produce without retries, then with a producer's default settings; lower
            min.insync.racks to 1 and produce; restore it to 2 and produce; give rack b back and produce.
        validate: acknowledged, NotEnoughRacksException with the log's size unchanged, TimeoutException for the
            application with default settings, acknowledged, NotEnoughRacksException, acknowledged; at the end all
            acknowledged records are read and no refused one.
        """
        admin = self.kafka.admin
        self._phase("all racks", OK)
        with self._fault(fault):
            topics.wait_isr(admin, TOPIC, frozenset({1, 2}))
            self._phase("one rack left", NOT_ENOUGH_RACKS)
            self._probe("--defaults", "--delivery-timeout-ms", str(DELIVERY_TIMEOUT_MS), count=1)
            topics.alter(admin, TOPIC, {MIN_INSYNC_RACKS: "1"})
            self._await(OK)
            self._phase("lowered to 1", OK)
            topics.alter(admin, TOPIC, {MIN_INSYNC_RACKS: "2"})
            self._await(NOT_ENOUGH_RACKS)
            self._phase("restored to 2, rack still away", NOT_ENOUGH_RACKS)
        topics.wait_settled(admin, [self.spec])
        self._phase("rack back", OK)
        read_all(self._bootstrap, [TOPIC], self.history)
        self._judge()
