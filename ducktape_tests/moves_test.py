"""Reassigned replicas, brokers that change racks, and moves of leadership, under load."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ducktape.mark.resource import cluster

from ducktape_tests.scenario import (
    NOT_ENOUGH_RACKS,
    NOT_ENOUGH_REPLICAS,
    PATIENT_MS,
    SPREAD,
    LoadSpec,
    RackScenario,
    spec,
)
from pyhooks.checkers import placement_reports
from pyhooks.checkers.phases import OK
from pyhooks.jvm.admin import Admin
from pyhooks.kafka import gate, reassignments, topics
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS
from pyhooks.kafka.topics import TopicSpec

# Two of three replicas in rack a.
AAB = (1, 2, 3)
LOST = "b"
# out of rack b, into it again, out of it, to one more rack, to a single replica, and back
MOVES = ((1, 2), (1, 3), (1, 2), (1, 2, 5), (5,), AAB)
# Number of partitions in too few racks in a controller's log; no number in the line means none.
REPORT = re.compile(r"(?:(\d+) partition\(s\) have|No partition has) replicas in too few racks")
BOTH = ("plain", "idem")
# Short timeouts: if a record waits while brokers change racks, the rack at its acknowledgement is unknown. After a
# record timed out, an idempotent producer may need as much time again (kip/found.md), in total no more than a change
# may take.
LOAD = (LoadSpec("plain"), LoadSpec("idem", "idempotent", more=("--timeout-ms", "2000")))
# Long timeouts: no record times out.
RIDING = (LoadSpec("plain"), LoadSpec("idem", "idempotent", patient_ms=PATIENT_MS))


class MovesTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside."""

    # -- brokers ------------------------------------------------------------------------------------------------------

    @cluster(num_nodes=9)
    def test_a_broker_restarts_in_another_rack(self) -> None:
        """R counts the current rack of a broker, not its previous one or that of its disk.

        setup: topics on replicas in racks a, a, b with M=2, R=2; one without retries, one idempotent.
        drive: produce; restart the broker of rack b in rack a, then the leader in rack c, then both in their original
            racks, each cleanly.
        validate: with all replicas in sync, each attempt of a probe is acknowledged or rejected as M, R and the current
            racks require; all checkers.
        """
        with self.driven([spec(name, AAB, 2, 2) for name in BOTH], LOAD):
            now = dict(self.racks)
            self._phase("all where they belong", AAB, AAB)
            for broker, rack in ((3, "a"), (1, "c"), (3, self.racks[3]), (1, self.racks[1])):
                self._restart(broker, rack)
                now[broker] = rack
                where = ", ".join(now[one] for one in AAB)
                self._phase(f"broker {broker} in rack {rack}, replicas in racks {where}", AAB, AAB, now)
                self.go_on()
            topics.elect_preferred(self.kafka.admin)
        self.judge(("delivery", "offsets", "promise", "progress", "refusals"))

    def _restart(self, broker: int, rack: str) -> None:
        """Restart a broker in a rack, and wait until it is in sync again."""
        (node,) = [node for node in self.kafka.brokers() if node.node_id == broker]
        self.kafka.stop_kafka(node)
        for one in self.specs:
            topics.wait_isr(self.kafka.admin, one.name, frozenset(one.replicas) - {broker})
        self.kafka.configure(node, {"broker.rack": rack})
        self.kafka.start_kafka(node)
        for one in self.specs:
            topics.wait_isr(self.kafka.admin, one.name, frozenset(one.replicas))

    # -- replicas -----------------------------------------------------------------------------------------------------

    @cluster(num_nodes=9)
    def test_replicas_are_moved_out_of_a_rack(self) -> None:
        """A reassignment to too few racks completes, is logged and stops writes; one to a further rack does not.

        setup: topics on replicas in racks a, a, b with M=2, R=2; one without retries, one idempotent.
        drive: produce; move the replica out of rack b, back, out again, to one more rack, all to a single replica, and
            all back; kill rack b, and move its replica to rack c meanwhile; heal, and move it back.
        validate: after each move, attempts are acknowledged or rejected as M and R, limited by the number of replicas,
            and the racks of the ISR require; controllers have logged each time how many partitions are in too few
            racks; all checkers.
        """
        with self.driven([spec(name, AAB, 2, 2) for name in BOTH], RIDING):
            self._phase("before", AAB, AAB)
            for turn, (former, placed) in enumerate(pairwise((AAB, *MOVES)), 1):
                self._move(former, placed)
                passes = self._phase(f"move {turn}, to {list(placed)}", placed, placed)
                self.go_on(patient=passes)
            with self.fault("kill", rack=LOST):
                topics.wait_isr(self.kafka.admin, "plain", frozenset({1, 2}))
                topics.wait_isr(self.kafka.admin, "idem", frozenset({1, 2}))
                self._phase("without rack b", AAB, (1, 2))
                self._move(AAB, (1, 2, 5))
                self._phase("out of rack b while it is away", (1, 2, 5), (1, 2, 5))
                self.go_on(patient=True)
            self._move((1, 2, 5), AAB)
            topics.elect_preferred(self.kafka.admin)
            self._phase("back in rack b", AAB, AAB)
            self._note_warnings()
        self.judge(("delivery", "offsets", "promise", SPREAD, "progress", "refusals", "warned"))

    def _move(self, before: Sequence[int], after: Sequence[int]) -> None:
        """Move all topics, wait until the moves are complete, and record them."""
        moves = {one.name: tuple(after) for one in self.specs}
        self.kafka.reassign(moves)
        reassignments.wait_placed(self.kafka.topology.bootstrap, moves)
        racks = {str(broker): rack for broker, rack in self.racks.items()}
        for name in moves:
            told: dict[str, Any] = {"topic": name, "before": list(before), "after": list(after), "racks": racks}
            self.history.note("test", placement_reports.OP, "info", **told)

    def _note_warnings(self) -> None:
        """Record the numbers of partitions in too few racks from the controllers' logs."""
        command = shlex.join(["cat", self.kafka.log])
        logs = {node.node_id: self.kafka.run_on(node, command) for node in self.kafka.topology.controllers}
        counts = {str(node): [int(count or 0) for count in REPORT.findall(text)] for node, text in logs.items()}
        self.history.note("test", placement_reports.LOGS, "info", counts=counts)

    # -- leadership ---------------------------------------------------------------------------------------------------

    @cluster(num_nodes=9)
    def test_leadership_moves_during_the_outage(self) -> None:
        """With R=2 and one rack left, no leader acknowledges a record, however late it learns that it leads.

        setup: topics on replicas in racks a, a, b with M=2: two with R=2, one of them idempotent, and one with R=1.
        drive: kill rack b; produce while the two replicas of rack a lead in turn, four times; heal; produce.
        validate: with R=2 rejected under each leader; with R=1 acknowledged, as a control; acknowledged after the heal;
            all checkers.
        """
        specs = [spec("plain", AAB, 2, 2), spec("idem", AAB, 2, 2), spec("free", AAB, 2, 1)]
        names = [one.name for one in specs]
        with self.driven(specs, [*RIDING, LoadSpec("free", "idempotent")]):
            with self.fault("kill", rack=LOST):
                for name in names:
                    topics.wait_isr(self.kafka.admin, name, frozenset({1, 2}))
                for turn, order in enumerate([(2, 1, 3), AAB] * 2, 1):
                    self._lead(order)
                    self._phase(f"broker {order[0]} leads in turn {turn}", AAB, (1, 2))
                self.go_on()
            topics.wait_settled(self.kafka.admin, specs)
            self._phase("rack back", AAB, AAB)
        self.judge(("delivery", "offsets", "promise", SPREAD, "progress", "refusals"))

    def _lead(self, order: Sequence[int]) -> None:
        """Make the first of the replicas lead all topics, whether or not the others run."""
        moves = {one.name: tuple(order) for one in self.specs}
        with Admin(self._living, timeout_s=60) as admin:
            admin.reassign(moves)
        reassignments.wait_placed(self.kafka.topology.bootstrap, moves, in_sync=False)
        topics.elect_preferred(self.kafka.admin)
        reassignments.wait_led(self.kafka.topology.bootstrap, list(moves), order[0])

    @property
    def _living(self) -> str:
        return ",".join(node.address for node in self.kafka.brokers() if self.kafka.kafka_pid(node) is not None)

    # -- expected results ---------------------------------------------------------------------------------------------

    def _phase(
        self, name: str, replicas: Sequence[int], isr: Sequence[int], racks: Mapping[int, str] | None = None
    ) -> bool:
        """Send single attempts to each topic; their expected result follows from M, R and the ISR.

        Returns:
            Whether all topics are expected to acknowledge.
        """
        said = {one.name: self._said(one, replicas, isr, racks) for one in self.specs}
        expect = {
            topic: OK if one.passes else NOT_ENOUGH_RACKS if one.enough_replicas else NOT_ENOUGH_REPLICAS
            for topic, one in said.items()
        }
        self.phases({topic: (f"{name}: {topic}", end) for topic, end in expect.items()})
        return all(one.passes for one in said.values())

    def _said(
        self, one: TopicSpec, replicas: Sequence[int], isr: Sequence[int], racks: Mapping[int, str] | None = None
    ) -> gate.Answer:
        """Return the gate's decision for a topic and an ISR, in the racks of the topology or in others."""
        need = {name: int(one.config[name]) for name in (MIN_INSYNC_REPLICAS, MIN_INSYNC_RACKS)}
        return gate.ask(
            isr,
            racks or self.racks,
            min_replicas=need[MIN_INSYNC_REPLICAS],
            min_racks=need[MIN_INSYNC_RACKS],
            replicas=len(replicas),
        )
