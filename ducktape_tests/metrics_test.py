"""The metrics of the gate through an outage, against the metadata log, and against what clients were refused."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ducktape.mark.resource import cluster

from ducktape_tests.drill import NOT_ENOUGH_RACKS, START_S, Drill, Load, must_hold, spec
from ducktape_tests.services.clients import Program
from pyhooks.checkers import gauges
from pyhooks.checkers.phases import OK
from pyhooks.core.wait import wait_for
from pyhooks.kafka import topics
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.requirement_changes import change

LOST = "b"
TURNS = 2
# for the first record, before which a client learns where its topic is; a refusal needs none of it
FIRST_MS = "20000"
SPECS = (
    # under its minimum of racks without rack b
    spec("under", (1, 2, 3), 2, 2),
    # at its minimum then, and above it before
    spec("at", (2, 3, 5), 2, 2),
    # at its minimum before, and under it then, by a leader in another rack
    spec("all", (5, 1, 3), 1, 3),
    # led by rack b, so that another broker tells of it meanwhile
    spec("moved", (3, 1, 5), 2, 2),
    # for which racks do not matter
    spec("free", (4, 3, 1), 2),
    # whose requirement changes meanwhile
    spec("changed", (2, 1, 4), 2, 2),
)
# what each of them answers without rack b
PROBED = {"under": NOT_ENOUGH_RACKS, "at": OK, "all": NOT_ENOUGH_RACKS}


class MetricsTest(Drill):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b goes and comes back."""

    def setUp(self) -> None:
        """Starts the cluster with its metrics to be asked for."""
        self.kafka.agent = str(Distribution.load().hooks)
        super().setUp()

    @cluster(num_nodes=9)
    def test_metrics_tell_the_truth(self) -> None:
        """Gauges of the gate show what was true 2 s before or later; the meter counts the refusals that clients saw.

        setup: topics on several replicas, led by several racks, with R from 1 to 3; a question for the metrics of
            each broker every second.
        drive: produce one record a request, each once; kill rack b; produce; lower R of one topic; heal; restore it.
        validate: each answer that took 0.5 s at most against what the metadata log says of the two seconds before; the
            meters of all brokers against the refusals; all checkers. How late each gauge was at most is written down.
        """
        # Nobody waits for an answer while rack b leaves: a broker reads on after a client has given up a connection,
        # and counts what that had sent on it, which nobody is told.
        with self._metered(), self.driven(SPECS, []):
            with self.clients.running("produce", [self._load()], self.history):
                for name in PROBED:
                    self.phase(f"all racks, {name}", name)
            with ExitStack() as until_the_end:
                with self.fault("kill", rack=LOST):
                    topics.wait_isr(self.kafka.admin, "under", frozenset({1, 2}))
                    for name in ("at", "all", "moved"):
                        topics.wait_isr(self.kafka.admin, name, frozenset({1, 2, 5} & set(_replicas(name))))
                    until_the_end.enter_context(self.clients.running("produce", [self._load()], self.history))
                    for turn in range(TURNS):
                        for name, expect in PROBED.items():
                            self.phase(f"without rack b, {name}, {turn}", name, expect)
                        if turn == 0:
                            change(self.kafka.admin, "changed", self.history, min_racks=1)
                for one in SPECS:
                    topics.wait_isr(self.kafka.admin, one.name, frozenset(one.replicas))
                topics.elect_preferred(self.kafka.admin)
                topics.wait_settled(self.kafka.admin, SPECS)
                change(self.kafka.admin, "changed", self.history, min_racks=2)
                for name in PROBED:
                    self.phase(f"rack b back, {name}", name)
        self.drain()
        self.kafka.metadata_log(self.kafka.topology.controllers[0], self.history)
        self.figures(**gauges.figures(list(self.history.events())))
        must_hold(self.verdicts(("delivery", "offsets", "promise", "progress", "refusals", "metrics", "meter")))

    def _load(self) -> list[str]:
        """Of a producer of one record a request, each once."""
        load = Load(",".join(PROBED), "probe", rate_per_s=3, more=("--name", "producer", "--timeout-ms", FIRST_MS))
        return load.arguments(self.kafka.topology.bootstrap, self.SECONDS)

    @contextmanager
    def _metered(self) -> Iterator[None]:
        """Asks all brokers for their metrics within the block, which begins when each has answered."""
        brokers, socket = self.kafka.brokers(), self.kafka.metrics_socket
        words = [["--broker", f"{node.node_id},{node.name},{node.site},{socket}"] for node in brokers]
        places = [self.kafka.place(node) for node in brokers]
        with self.clients.running("meter", words, self.history, places) as meters:
            self._answered(meters)
            yield
            self._answered(meters)

    def _answered(self, meters: Sequence[Program]) -> None:
        """Waits until each broker has answered a question that was asked from now on."""
        since_ns = time.monotonic_ns()
        waits = {node.node_id for node in self.kafka.brokers()}

        def all_have() -> bool:
            for event in (event for meter in meters for event in meter.fetch()):
                if event.outcome == "ok" and event.mono_ns > since_ns:
                    waits.discard(int(event.data["broker"]))
            return not waits

        wait_for(all_have, what=f"metrics of brokers {sorted(waits)}", timeout_s=START_S, interval_s=0.5)


def _replicas(name: str) -> tuple[int, ...]:
    return next(one.replicas for one in SPECS if one.name == name)
