"""Every kind of fault on a ducktape cluster: each proves that it is effective, that it lasts and is healed."""

from __future__ import annotations

from typing import Any

from ducktape_tests.scenario import CRASHES, RackScenario, require_true
from pyhooks.checkers.judgement import judge
from pyhooks.lab import quorum_changes

RACK, BROKER = "b", 3
RACK_FAULTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("kill", {}),
    ("pause", {}),
    ("cut", {}),
    ("cut", {"peers": ["a"]}),
    ("slow", {"rtt_ms": 40.0}),
    ("wipe", {"controllers": True}),
)
BROKER_FAULTS: tuple[tuple[str, dict[str, Any]], ...] = (("cut", {}), ("slow", {"rtt_ms": 40.0}), ("wipe", {}))


class FaultsTest(RackScenario):
    """Five brokers in racks a, a, b, b, c with a controller in each rack; every kind of fault hits rack b."""

    TOPOLOGY = "az3"

    def test_every_fault_proves_itself(self) -> None:
        """Every fault of a rack with a voter and of a broker can be proved and healed.

        The quorum keeps its three voters; only the destroyed one has a new directory id.
        """
        others = self.kafka.brokers("a")
        before = quorum_changes.voters(self.kafka, others)
        for kind, settings in RACK_FAULTS:
            if not self.supports(kind, f"{kind} rack {RACK}"):
                continue
            with self.fault(kind, rack=RACK, **settings):
                self.logger.info("rack %s is under %s", RACK, kind)
            self.kafka.wait_unfenced(self.kafka.brokers())
        for kind, settings in BROKER_FAULTS:
            if not self.supports(kind, f"{kind} broker {BROKER}"):
                continue
            with self.fault(kind, broker=BROKER, **settings):
                self.logger.info("broker %s is under %s", BROKER, kind)
            self.kafka.wait_unfenced(self.kafka.brokers())
        after = quorum_changes.voters(self.kafka, others)
        lost = {node.node_id for node in self.kafka.topology.site(RACK).nodes if node.is_controller}
        assert set(before) == set(after) == {node.node_id for node in self.kafka.topology.controllers}
        assert {voter for voter in after if after[voter] != before[voter]} == lost
        # Without topics all other checkers have nothing to judge.
        self.kill_all()
        verdicts, _ = judge(list(self.history.events()), ("faults", CRASHES))
        self.save(verdicts)
        require_true(verdicts)
