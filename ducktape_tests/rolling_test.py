"""Rolling upgrade from stock Kafka to the overlay and back, node by node, under the load of several clients."""

from __future__ import annotations

import re
import shlex
import time
from typing import Any

from ducktape_tests import feature_level
from ducktape_tests.scenario import AAB, NEEDS, NOT_ENOUGH_RACKS, LoadSpec, RackScenario, spec
from pyhooks.checkers import feature_levels
from pyhooks.checkers.phases import OK
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history import process_events
from pyhooks.history.events import TEST, LevelDetails, LevelRequest, RollDetails
from pyhooks.kafka import reassignments, topics
from pyhooks.kafka.cluster_metadata import MetadataClient
from pyhooks.kafka.features import RACKS_FEATURE
from pyhooks.lab import metadata_records
from pyhooks.lab.disks import DATA
from pyhooks.lab.topology import Node
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.known_errors import note_known_errors
from pyhooks.workload.requirement_changes import change_topic

# Without this broker the replicas are in one rack. It is restarted before those of rack a.
THIRD = 3
STOCK_CLIENT = paths.kafka_version()
TIMEOUT = ("--timeout-ms", "60000")
# for librdkafka: with a shorter timeout it duplicates records that were rejected for long
RDKAFKA_TIMEOUT = ("--timeout-ms", "120000")
STARTED = "Kafka Server started"
# log text of a stock broker at level 1, and of a stock controller that reads this level
REGISTRATION_REJECTED = "returned error UNSUPPORTED_VERSION"
# one hour by default, which would be the longest step of the downgrade
SNAPSHOTS = {"metadata.log.max.snapshot.interval.ms": "5000"}
START_S = 120.0
QUERY_S = 10.0
# a voter that has ended falls behind by two records a second
LAG = 4
EPOCH = re.compile(rf"{re.escape(RACKS_FEATURE)}\s.*FinalizedVersionLevel: 0\s.*Epoch: (\d+)")
CHECKPOINT = re.compile(r"(\d+)-\d+\.checkpoint")


class RollingTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside, formatted and started by stock Kafka."""

    OVERLAY = False
    SECONDS = 1200.0

    def test_stock_to_overlay_and_back(self) -> None:
        """No client loses a record or receives an unknown error, whatever versions run at the same time.

        Each broker, then each controller, restarts cleanly with the overlay. The feature and R=2 are enabled, and a
        broker without the overlay can't join. Then R=1, a downgrade of the feature, and a restart of each node without
        the overlay. At each stage R=2 and the feature are requested: the feature is rejected as long as one node lacks
        the overlay, R=2 as long as the feature is off, and the downgrade as long as a topic has R=2. Single attempts
        while only rack a is in sync are acknowledged with R=1 and rejected with R=2, for a stock client with an error
        that it knows.
        """
        self._rows: list[dict[str, Any]] = []
        self._seconds: dict[str, float] = {}
        self._software = {node.name: "stock" for node in self.kafka.topology.nodes}
        specs = [spec(name, AAB, 2) for name in ("stock", "patched", "rdkafka")]
        loads = [
            LoadSpec("stock", "idempotent", STOCK_CLIENT, 10, TIMEOUT),
            LoadSpec("patched", "idempotent", "patched", 10, TIMEOUT),
            LoadSpec("rdkafka", "idempotent", "confluent", 10, RDKAFKA_TIMEOUT),
        ]
        note_known_errors(self.history, [STOCK_CLIENT, "confluent"])
        with self.under_load(specs, loads):
            self._request_racks("all stock")
            self._roll_all("overlay")
            self._require_two_racks()
            self._downgrade()
            self._roll_all("stock")
            topics.elect_preferred(self.kafka.admin)
        self.figures(restart_s=self._seconds, mixed=self._rows)
        self.judge((*NEEDS, "known", "rejections", "levels"))

    # -- rolling restart ----------------------------------------------------------------------------------------------

    def _roll_all(self, software: str) -> None:
        """Restart all nodes with other software: brokers first, the leader last of them."""
        topics.elect_preferred(self.kafka.admin)
        reassignments.wait_led(self.kafka.topology.bootstrap, [topic.name for topic in self.specs], AAB[0])
        for kind, nodes in (("broker", self.kafka.brokers()[::-1]), ("controller", self.kafka.topology.controllers)):
            for number, node in enumerate(nodes, 1):
                self._roll(node, software)
                if number in (1, len(nodes)):
                    self._request_racks(f"{number} of {len(nodes)} {kind}s to {software}")
            self.keep_producing()

    def _roll(self, node: Node, software: str) -> None:
        """Restart a node cleanly with other software and wait until it works again."""
        start = time.monotonic()
        self.kafka.stop_kafka(node)
        if node.node_id == THIRD:
            # The leader is restarted last, so it still has the previous software.
            leads = self._leader_software()
            assert leads != software, f"the leader already runs {software}, so the mixed state was not tested"
            self._probe_one_rack(f"roll to {software}, leader runs {leads}")
        started = self._count(node, STARTED)
        self._start(node, software)
        wait_for(lambda: self._count(node, STARTED) > started, goal=f"{node.name} to start", timeout_s=START_S)
        if node.is_broker:
            self.kafka.wait_unfenced([node])
            self._all_in_sync()
        else:
            wait_for(lambda: self._follows(node), goal=f"{node.name} to follow the quorum", timeout_s=START_S)
        self._seconds[f"{node.name} to {software}"] = round(time.monotonic() - start, 1)

    def _start(self, node: Node, software: str) -> None:
        self.kafka.classpath = Distribution.load().classpath(overlay=software == "overlay")
        self.kafka.configure(node, SNAPSHOTS)
        self.kafka.start_kafka(node)
        self._software[node.name] = software
        self.history.add(RollDetails(node=node.name, software=software))

    def _all_in_sync(self) -> None:
        reassignments.wait_placed(self.kafka.topology.bootstrap, {topic.name: topic.replicas for topic in self.specs})

    def _follows(self, controller: Node) -> bool:
        """Return whether a controller currently follows the leader of the quorum."""
        try:
            lag = self.kafka.quorum(self.kafka.brokers()).lag(controller.node_id)
        except RackgateError:
            # The quorum currently has no leader.
            return False
        return lag is not None and lag in range(LAG + 1)

    def _count(self, node: Node, text: str) -> int:
        """Return how many lines of a node's log contain a text."""
        command = shlex.join(["grep", "-c", text, self.kafka.log])
        return int(self.kafka.run_on(node, f"{command} || true").strip() or 0)

    # -- behaviour of a mixed cluster ---------------------------------------------------------------------------------

    def _request_racks(self, stage: str) -> None:
        """Request R=2, and the feature if a node lacks the overlay; record the replies."""
        row: dict[str, Any] = {"stage": stage, "software": self._overlay_counts()}
        if "stock" in self._software.values():
            row["the feature"] = self._request_level(feature_levels.UPGRADE, 1)
        try:
            change_topic(self.kafka.admin, "patched", self.history, min_racks=2)
            row["R=2"] = "accepted"
        except topics.RejectedError as error:
            row["R=2"] = str(error)
        self._rows.append(row)

    def _request_level(self, how: LevelRequest, to: int) -> str:
        """Request a level of the feature, record the result in the history, and return the tool's output."""
        before = feature_level.level(self.kafka)
        output = feature_level.request_level(self.kafka, how, to)
        after = feature_level.level_after(self.kafka, output, to)
        stock_nodes = sum(software == "stock" for software in self._software.values())
        request = LevelDetails(how=how, to=to, before=before, after=after, stock_nodes=stock_nodes, output=output)
        self.history.add(request, process=TEST)
        return output

    def _probe_one_rack(self, stage: str, expect: str = OK) -> None:
        """Send single attempts while only the replicas of rack a are in sync."""
        self.wait_isr(set(AAB) - {THIRD})
        self.phase(f"rack a alone, {stage}", "patched", expect)
        if expect != OK:
            # A client that does not know the error, and does not retry.
            self.probe("stock", "--client", STOCK_CLIENT)
        self._rows.append(
            {"stage": stage, "software": self._overlay_counts(), "single attempts of rack a alone": expect}
        )

    def _overlay_counts(self) -> dict[str, int]:
        """Return how many brokers and controllers have the overlay."""
        nodes = {"brokers": self.kafka.brokers(), "controllers": self.kafka.topology.controllers}
        return {kind: sum(self._software[node.name] == "overlay" for node in group) for kind, group in nodes.items()}

    def _leader_software(self) -> str:
        """Return the software of the broker that leads."""
        metadata = MetadataClient(self.kafka.topology.bootstrap, each_s=QUERY_S).query(["patched"], 2 * QUERY_S)
        return self._software[self.kafka.broker(metadata.partitions["patched", 0].leader).name]

    # -- the feature --------------------------------------------------------------------------------------------------

    def _require_two_racks(self) -> None:
        """Enable the feature and R=2 on an all-overlay cluster, and check that a broker without overlay can't join."""
        self._request_level(feature_levels.UPGRADE, 1)
        for name in ("patched", "stock"):
            change_topic(self.kafka.admin, name, self.history, min_racks=2)
        node = self.kafka.broker(THIRD)
        self.kafka.stop_kafka(node)
        self._probe_one_rack("R=2", NOT_ENOUGH_RACKS)
        rejected = self._count(node, REGISTRATION_REJECTED)
        self._start(node, "stock")
        process_events.excuse(self.history, [THIRD], process_events.NOT_LET_IN)
        wait_for(
            lambda: self._count(node, REGISTRATION_REJECTED) > rejected,
            goal=f"a rejected registration of {node.name}",
            timeout_s=START_S,
        )
        self._probe_one_rack("R=2, and broker 3 starts without the overlay", NOT_ENOUGH_RACKS)
        self.kafka.kill_kafka(node)
        # A stock broker omits from its metadata snapshots what it does not know, including R=2, and writes one every
        # few seconds here. With the overlay it would load such a snapshot, and lead without the gate: it must fetch the
        # metadata again.
        self.kafka.run_in_folder(node, 'rm -rf -- "$1"', f"{DATA}/{metadata_records.TOPIC}")
        self._start(node, "overlay")
        self._all_in_sync()
        self.phase("R=2, broker 3 with the overlay", "patched")

    def _downgrade(self) -> None:
        """Disable the feature, and wait until its level is in no snapshot that a stock node would read."""
        row = {"stage": "R=2, downgrade requested", "software": self._overlay_counts(), "the feature": ""}
        row["the feature"] = self._request_level(feature_levels.DOWNGRADE, 0)
        self._rows.append(row)
        for name in ("patched", "stock"):
            change_topic(self.kafka.admin, name, self.history, min_racks=1)
        self._request_level(feature_levels.DOWNGRADE, 0)
        (epoch,) = EPOCH.findall(feature_level.features_tool(self.kafka, "describe"))
        for node in self.kafka.topology.nodes:
            wait_for(
                lambda node=node: self._snapshot(node) > int(epoch),  # type: ignore[misc]
                goal=f"a snapshot of {node.name} behind metadata offset {epoch}",
                timeout_s=60,
                interval_s=0.5,
            )

    def _snapshot(self, node: Node) -> int:
        """Return the metadata offset at which the last snapshot of a node ends; -1 without a snapshot."""
        names = self.kafka.run_on(node, f"ls {shlex.quote(self.kafka.data)}/{metadata_records.TOPIC}")
        return max(map(int, CHECKPOINT.findall(names)), default=-1)
