"""Reassigned replicas, brokers that change racks, and moves of leadership, under load."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise

from ducktape_tests.scenario import AAB, FAILED_RACK, NEEDS, PATIENT_MS, SPREAD, LoadSpec, RackScenario, spec
from pyhooks.history.events import TEST, MoveDetails, WarningsDetails
from pyhooks.jvm.admin import Admin
from pyhooks.kafka import reassignments, topics

# out of rack b, into it again, out of it, to one more rack, to a single replica, and back
MOVES = ((1, 2), (1, 3), (1, 2), (1, 2, 5), (5,), AAB)
# Number of partitions in too few racks in a controller's log; a line without a number means 0.
REPORT = re.compile(r"(?:(\d+) partition\(s\) have|No partition has) replicas in too few racks")
BOTH = ("plain", "idem")
# Short timeouts: if a record waits while brokers change racks, the rack at its acknowledgement is unknown. After a
# record timed out, an idempotent producer may need as much time again (kip/found.md), in total no more than a change
# may take.
LOAD = (LoadSpec("plain"), LoadSpec("idem", "idempotent", options=("--timeout-ms", "2000")))
# Long timeouts: no record times out.
LASTING_LOAD = (LoadSpec("plain"), LoadSpec("idem", "idempotent", patient_ms=PATIENT_MS))

RENAMED = (spec("gated", AAB, 2, 2), spec("free", AAB, 2, 1))
RENAMED_LOAD = (LoadSpec("gated"), LoadSpec("free"))


class MovesTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside."""

    # -- brokers ------------------------------------------------------------------------------------------------------

    def test_a_broker_restarts_in_another_rack(self) -> None:
        """R counts the current rack of a broker, not its previous one or that of its disk.

        The broker of rack b restarts cleanly in rack a, then the leader in rack c, then both in their original racks.
        """
        with self.under_load([spec(name, AAB, 2, 2) for name in BOTH], LOAD):
            racks = dict(self.racks)
            self._phase("original racks", AAB)
            for broker, rack in ((3, "a"), (1, "c"), (3, self.racks[3]), (1, self.racks[1])):
                self.restart_broker(broker, rack)
                racks[broker] = rack
                where = ", ".join(racks[broker_id] for broker_id in AAB)
                isrs = dict.fromkeys(BOTH, AAB)
                self.phases_by_isr(f"broker {broker} in rack {rack}, replicas in racks {where}", isrs, racks=racks)
                self.keep_producing()
            topics.elect_preferred(self.kafka.admin)
        self.judge(("delivery", "offsets", "promise", "progress", "rejections"))

    def test_an_id_returns_in_another_rack(self) -> None:
        """A broker id that returns on an empty disk in another rack counts for that rack.

        The broker of rack b is replaced by one of the same id in rack a, and later by one in rack b. A topic with R=1
        is the control.
        """
        with self.under_load(RENAMED, RENAMED_LOAD):
            self._phase("original racks", AAB)
            for rack in ("a", FAILED_RACK):
                self.restart_broker(3, rack, empty=True)
                self.phases_by_isr(f"id 3 in rack {rack}", self._all_in_sync(), racks={**self.racks, 3: rack})
                self.keep_producing()
            topics.elect_preferred(self.kafka.admin)
        self.judge((*NEEDS, "rejections"))

    def test_a_rack_is_renamed_in_an_outage(self) -> None:
        """A rack that is renamed broker by broker counts as two; M above its number of replicas prevents that.

        Rack b is killed. Then one of the two brokers of rack a restarts with another name of the rack: the topic with
        R=2 is acknowledged by one rack with two names. The topic with M=3, as operations require before a rename, is
        not. A topic with R=1 is the control.
        """
        specs = [*RENAMED, spec("raised", AAB, 3, 2)]
        loads = [*RENAMED_LOAD, LoadSpec("raised")]
        with self.under_load(specs, loads):
            self._phase("one name", AAB)
            with self.rack_outage():
                self._phase("without rack b, one name", (1, 2), replicas=3)
                self.restart_broker(2, "z", absent=frozenset({3}))
                isrs = dict.fromkeys((topic.name for topic in specs), (1, 2))
                self.phases_by_isr("without rack b, two names", isrs, racks={**self.racks, 2: "z"})
            self.phases_by_isr("two names", self._all_in_sync(), racks={**self.racks, 2: "z"})
            self.restart_broker(1, "z")
            topics.elect_preferred(self.kafka.admin)
            self.phases_by_isr("renamed", self._all_in_sync(), racks={**self.racks, 1: "z", 2: "z"})
        self.judge((*NEEDS, SPREAD, "rejections", "faults"))

    def _all_in_sync(self) -> dict[str, Sequence[int]]:
        return {topic.name: topic.replicas for topic in self.specs}

    # -- replicas -----------------------------------------------------------------------------------------------------

    def test_replicas_are_moved_out_of_a_rack(self) -> None:
        """A reassignment to too few racks completes, is logged and stops writes; one to a further rack does not.

        Also, rack b is killed and its replica is moved to rack c meanwhile. After each move, attempts have the result
        that M, R and the racks of the ISR require, and controllers have logged how many partitions are in too few
        racks.
        """
        with self.under_load([spec(name, AAB, 2, 2) for name in BOTH], LASTING_LOAD):
            self._phase("before", AAB)
            for turn, (former, placed) in enumerate(pairwise((AAB, *MOVES)), 1):
                self._move(former, placed)
                passes = self._phase(f"move {turn}, to {list(placed)}", placed)
                self.keep_producing(patient=passes)
            with self.fault("kill", rack=FAILED_RACK):
                self.wait_isr({1, 2})
                self._phase("without rack b", (1, 2), replicas=3)
                self._move(AAB, (1, 2, 5))
                self._phase("moved out of rack b during its outage", (1, 2, 5))
                self.keep_producing(patient=True)
            self._move((1, 2, 5), AAB)
            topics.elect_preferred(self.kafka.admin)
            self._phase("back in rack b", AAB)
            self._note_warnings()
        self.judge(("delivery", "offsets", "promise", SPREAD, "progress", "rejections", "warned"))

    def _move(self, before: Sequence[int], after: Sequence[int]) -> None:
        """Move all topics, wait until the moves are complete, and record them."""
        moves = {topic.name: tuple(after) for topic in self.specs}
        self.kafka.reassign(moves)
        reassignments.wait_placed(self.kafka.topology.bootstrap, moves)
        for name in moves:
            move = MoveDetails(topic=name, before=tuple(before), after=tuple(after), racks=self.racks)
            self.history.add(move, process=TEST)

    def _note_warnings(self) -> None:
        """Record the numbers of partitions in too few racks from the controllers' logs."""
        command = shlex.join(["cat", self.kafka.log])
        logs = {node.node_id: self.kafka.run_on(node, command) for node in self.kafka.topology.controllers}
        counts = {str(node): tuple(int(count or 0) for count in REPORT.findall(text)) for node, text in logs.items()}
        self.history.add(WarningsDetails(counts=counts), process=TEST)

    # -- leadership ---------------------------------------------------------------------------------------------------

    def test_leadership_moves_during_the_outage(self) -> None:
        """With R=2 and one rack left, no leader acknowledges a record, however late it learns that it leads.

        The two replicas of rack a lead in turn. A topic with R=1 is the control.
        """
        specs = [spec("plain", AAB, 2, 2), spec("idem", AAB, 2, 2), spec("free", AAB, 2, 1)]
        with self.under_load(specs, [*LASTING_LOAD, LoadSpec("free", "idempotent")]):
            with self.rack_outage():
                for turn, order in enumerate([(2, 1, 3), AAB] * 2, 1):
                    self._lead(order)
                    self._phase(f"broker {order[0]} leads in turn {turn}", (1, 2), replicas=3)
            self._phase("rack back", AAB)
        self.judge(("delivery", "offsets", "promise", SPREAD, "progress", "rejections"))

    def _lead(self, order: Sequence[int]) -> None:
        """Make the first of the replicas lead all topics, whether or not the others run."""
        moves = {topic.name: tuple(order) for topic in self.specs}
        running = (node for node in self.kafka.brokers() if self.kafka.kafka_pid(node) is not None)
        with Admin(",".join(node.address for node in running), timeout_s=60) as admin:
            admin.reassign(moves)
        reassignments.wait_placed(self.kafka.topology.bootstrap, moves, in_sync=False)
        topics.elect_preferred(self.kafka.admin)
        reassignments.wait_led(self.kafka.topology.bootstrap, list(moves), order[0])

    def _phase(self, name: str, isr: Sequence[int], replicas: int | None = None) -> bool:
        """Run a phase of each topic; all have the same ISR and number of replicas, by default that of the ISR."""
        isrs = dict.fromkeys((topic.name for topic in self.specs), isr)
        return self.phases_by_isr(name, isrs, replicas=replicas or len(isr))
