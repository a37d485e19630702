"""Metrics of the gate in an outage, compared with the metadata log and with the rejections that clients received."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ducktape_tests.scenario import FAILED_RACK, NOT_ENOUGH_RACKS, START_S, LoadSpec, RackScenario, require_true, spec
from ducktape_tests.services.clients import Program, wait_events
from pyhooks.checkers import gauges
from pyhooks.checkers.phases import OK
from pyhooks.history.events import MetricsDetails
from pyhooks.kafka import topics
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.requirement_changes import change_topic

TURNS = 2
# for the first record, which waits for the metadata of its topic; a rejection does not need that long
FIRST_MS = "20000"
SPECS = (
    # below its minimum of racks without rack b
    spec("under", (1, 2, 3), 2, 2),
    # at its minimum without rack b, and above it with all racks
    spec("at", (2, 3, 5), 2, 2),
    # at its minimum with all racks, and below it without rack b; its leader is in another rack
    spec("all", (5, 1, 3), 1, 3),
    # led by rack b, so that another broker reports it during the outage
    spec("moved", (3, 1, 5), 2, 2),
    # not affected by racks
    spec("free", (4, 3, 1), 2),
    # its R changes during the outage
    spec("changed", (2, 1, 4), 2, 2),
)
# expected result of each without rack b
PROBED = {"under": NOT_ENOUGH_RACKS, "at": OK, "all": NOT_ENOUGH_RACKS}


class MetricsTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b fails and returns."""

    def setUp(self) -> None:
        """Start the cluster with the metrics agent."""
        self.kafka.agent = str(Distribution.load().hooks)
        super().setUp()

    def test_metrics_tell_the_truth(self) -> None:
        """Gauges of the gate lag by at most 2 s; the meter counts the rejections that clients received.

        The metrics of each broker are read every second in an outage of rack b, and when R of a topic changes. Each
        reading is compared with the last two seconds of the metadata log. The maximum lag of each gauge is recorded.
        """
        # No producer waits for a result while rack b leaves: a broker still reads requests from a connection that a
        # client has given up, and counts their rejections, which no client receives.
        with self._metered(), self.under_load(SPECS, []):
            with self.clients.running("producer", [self._load()], self.history):
                for name in PROBED:
                    self.phase(f"all racks, {name}", name)
            with ExitStack() as until_the_end:
                with self.fault("kill", rack=FAILED_RACK):
                    self.wait_isr({1, 2}, "under")
                    for name in ("at", "all", "moved"):
                        self.wait_isr({1, 2, 5} & set(_replicas(name)), name)
                    until_the_end.enter_context(self.clients.running("producer", [self._load()], self.history))
                    for turn in range(TURNS):
                        for name, expect in PROBED.items():
                            self.phase(f"without rack b, {name}, {turn}", name, expect)
                        if turn == 0:
                            change_topic(self.kafka.admin, "changed", self.history, min_racks=1)
                for topic in SPECS:
                    self.wait_isr(topic.replicas, topic.name)
                topics.elect_preferred(self.kafka.admin)
                topics.wait_settled(self.kafka.admin, SPECS)
                change_topic(self.kafka.admin, "changed", self.history, min_racks=2)
                for name in PROBED:
                    self.phase(f"rack b back, {name}", name)
        self.read_final_state()
        self.kafka.metadata_log(self.kafka.topology.controllers[0], self.history)
        self.figures(**gauges.figures(list(self.history.events())))
        require_true(self.verdicts(("delivery", "offsets", "promise", "progress", "rejections", "metrics", "meter")))

    def _load(self) -> list[str]:
        """Return the arguments of a producer with one record per request and no retries."""
        options = ("--name", "producer", "--timeout-ms", FIRST_MS)
        load = LoadSpec(",".join(PROBED), "probe", rate_per_s=3, options=options)
        return load.arguments(self.kafka.topology.bootstrap, self.SECONDS)

    @contextmanager
    def _metered(self) -> Iterator[None]:
        """Read the metrics of all brokers during the block, which starts when each broker has responded."""
        brokers, socket = self.kafka.brokers(), self.kafka.metrics_socket
        arguments = [["--broker", f"{node.node_id},{node.name},{node.site},{socket}"] for node in brokers]
        hosts = [self.kafka.client_host(node) for node in brokers]
        with self.clients.running("gate_meter", arguments, self.history, hosts) as meters:
            self._wait_readings(meters)
            yield
            self._wait_readings(meters)

    def _wait_readings(self, meters: Sequence[Program]) -> None:
        """Wait until each broker has responded to a request from now on."""
        since_ns = time.monotonic_ns()
        wait_events(
            meters,
            MetricsDetails,
            lambda _, event, response: response.broker if event.mono_ns > since_ns else None,
            [node.node_id for node in self.kafka.brokers()],
            goal="metrics of all brokers",
            timeout_s=START_S,
        )


def _replicas(name: str) -> tuple[int, ...]:
    return next(topic.replicas for topic in SPECS if topic.name == name)
