"""Many partitions through outages of a rack: the cost, on stock Kafka and on the patched one, and what others feel.

Takes long, and belongs to no other selection: ``partitions`` (10,000 by default), ``cycles`` and ``rounds`` come from
ducktape's ``--globals``.

At the end of each arm all topics that somebody produced to are read, once and with read_uncommitted, since there are no
transactions. What other tests do besides is left out: nobody looks at the partitions twice a second, and no disks are
read, on which there are 30,000 logs. So ``promise``, ``progress``, ``refusals`` and ``recovery`` have nothing to judge.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ducktape.mark.resource import cluster
from ducktape.tests.test_context import TestContext

from ducktape_tests.drill import CRASHES, START_S, STEADY_S, Drill, Load, must_hold
from ducktape_tests.services.clients import Program
from pyhooks.checkers import many_partitions, slowdown
from pyhooks.checkers.judgement import judge
from pyhooks.checkers.many_partitions import OVERLAY
from pyhooks.checkers.record_view import ARM
from pyhooks.core import process
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event, History
from pyhooks.history.outcomes import TOO_FEW_RACKS
from pyhooks.kafka import bulk_topics, topics
from pyhooks.kafka.bulk_topics import Wide
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.final_reader import read_all
from pyhooks.workload.known_errors import note_known

LOST = "b"
REMAIN = frozenset({1, 2, 5})
# what the gate is about: two replicas in rack a, which leads, one in rack b
GATED = ((1, 2, 3), (2, 1, 4))
# what goes on: racks a and c stay, one of which leads
OTHERS = ((1, 3, 5), (5, 2, 4), (2, 4, 5))
WIDE, NARROW, PROBED, DRIVEN = 20, 2, 5, 2
OTHER_PARTITIONS = 3
BLOCK_S = 10.0
# a stage in which the use of processors is asked
STAGE_S = 40.0
SETTLED_S = 900.0
# Of all that is not probed: nothing but the brokers differs. Who probes knows the gate's errors.
CLIENT = "4.3.1"
PATIENCE_MS = 600_000
# Records a second and topic: of any, and of others and those that are driven where latency is asked, which keep two
# cores from being full.
BUSY_PER_S, EASY_PER_S, TRIED_PER_S = 20, 10, 2
# of the clients whose latency is asked: nothing of theirs ends early
FIRST_MS = "20000"
# Of those that ask when a topic refuses: a broker answers one request of a connection after the other, so a record
# that was sent before the ISR shrank holds up the refusal of the next until its time is over.
PROBE_MS = "2000"
# Who read the topics in the end, side by side: a partition that has little in it is 0.1 s of waiting.
READERS = 8
# of the kernel's fields from the state letter on: time in the program, and in the kernel for it
UTIME, STIME = 11, 12


class LoadTest(Drill):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b goes and comes back."""

    TOPOLOGY = "az3-load"
    SECONDS = 7200.0

    def __init__(self, test_context: Any) -> None:
        super().__init__(test_context)
        given = test_context.globals
        self.partitions = int(given.get("partitions", 10_000))
        # of a topic
        self.width = max(1, self.partitions // WIDE)
        self.waiting: list[str] = []
        self.cycles, self.rounds = int(given.get("cycles", 3)), int(given.get("rounds", 24))

    def setUp(self) -> None:
        """Starts no cluster: each arm has one of its own."""
        self.results = Path(TestContext.results_dir(self.test_context, self.test_context.test_index))
        self.history = self.kafka.notes = History(self.results / "history.jsonl")
        note_known(self.history, [CLIENT])
        self.clients.start()

    @cluster(num_nodes=9)
    def test_outage_of_many_partitions(self) -> None:
        """An outage stops many partitions with the gate, and none without it; both come back.

        setup: stock Kafka and the patched one, one after the other in an order that the seed draws, each on new
            disks: many partitions on replicas in racks a, a, b with M=2, and R=2 where there is R; some on a, b, c.
        drive: produce to some of both, and follow the others; an outage of rack b, several times; read what was
            produced to. Of the 20 topics of many partitions two are driven and five are probed, at one partition each;
            13 are idle, and are not read.
        validate: stops, delivery, offsets, known, crashes; times to refuse and to recover, and the processors that each
            node used, are written down.
        """
        for arm in self.rng.sample(many_partitions.ARMS, len(many_partitions.ARMS)):
            self._begin(arm)
            self.waiting = self.gated[-DRIVEN:]
            with self._loaded(BUSY_PER_S, BUSY_PER_S) as (others, _):
                for cycle in range(self.cycles):
                    self._cycle(arm, cycle, others)
            self._read()
            self.end_all()
        events = list(self.history.events())
        self.figures(partitions=self.partitions, cycles=self.cycles, **many_partitions.figures(events))
        self._judge(events, "stops")

    @cluster(num_nodes=9)
    def test_others_beside_refusals(self) -> None:
        """Refusing the records of many partitions slows other topics no more than taking them does.

        setup: the patched Kafka, with partitions as above.
        drive: produce to all topics, of those that are probed to one partition, and follow the others; in an outage of
            rack b rounds of three blocks in an order that the seed draws: R=2, R=1, and R=1 once more; read all topics.
        validate: slowdown, delivery, offsets, known, crashes.
        """
        self._begin(OVERLAY)
        self.waiting = self.gated[PROBED:]
        with self._loaded(EASY_PER_S, TRIED_PER_S) as (others, probes):
            self.producers = [others, probes]
            with self.fault("kill", rack=LOST):
                bulk_topics.wait_members(self.kafka.admin, self.wide, REMAIN, SETTLED_S)
                for number in range(self.rounds):
                    for arm in self.rng.sample(slowdown.ARMS, len(slowdown.ARMS)):
                        self._require(arm, probes)
                        self._block(arm, number)
            bulk_topics.wait_members(self.kafka.admin, self.wide, None, SETTLED_S)
        self._read()
        self.end_all()
        events = list(self.history.events())
        self.figures(partitions=self.partitions, rounds=self.rounds, **slowdown.figures(events))
        self._judge(events, "slowdown")

    def _read(self) -> None:
        """Reads the topics of the present cluster to which somebody produced; nobody does any more."""
        names = [*self.others, *self.probed, *self.waiting]
        read_all(self.kafka.topology.bootstrap, names, self.history, readers=READERS)

    def _judge(self, events: Sequence[Event], name: str) -> None:
        """What each test is about must hold, and what any history with these clients can be judged by."""
        found, _ = judge(events, ("faults", CRASHES, "delivery", "offsets", "known", name))
        self.keep(found)
        must_hold(found)

    def _begin(self, arm: str) -> None:
        """A new cluster with all topics, whose names are of this arm: what one has must not pass for the other's."""
        minima = {topics.MIN_INSYNC_REPLICAS: "2"} | ({topics.MIN_INSYNC_RACKS: "2"} if arm == OVERLAY else {})
        gated = [Wide(f"{arm}-gated-{at}", bulk_topics.rotating(self.width, GATED), minima) for at in range(WIDE)]
        others = [
            Wide(f"{arm}-other-{at}", bulk_topics.rotating(OTHER_PARTITIONS, OTHERS), minima) for at in range(NARROW)
        ]
        self.wide = [*gated, *others]
        self.others = [one.name for one in others]
        self.gated = [one.name for one in gated]
        self._note(ARM, arm, probed=self.probed)
        self.kafka.classpath = Distribution.load().classpath(overlay=arm == OVERLAY)
        # what brokers cost is asked here, so they are compiled as anywhere else
        self.kafka.java = ()
        # what a client knows of the cluster before is of no use
        self.kafka.forget_admin()
        self.kafka.start()
        self.came_up = True
        bulk_topics.create(self.kafka.admin, self.wide, SETTLED_S)
        self.kafka.wait_logs(self.wide, SETTLED_S)

    @contextmanager
    def _loaded(self, others_per_s: float, driven_per_s: float) -> Iterator[tuple[Program, Program]]:
        """Produces to others, probes some of the gated topics and drives some more, patiently.

        Args:
            others_per_s: records a second and topic of the others.
            driven_per_s: the same of those that are driven.

        Yields:
            The producer of the others, and the one that probes, when each driven partition has acknowledged something.
        """
        bootstrap = self.kafka.topology.bootstrap
        loads = [
            Load(",".join(self.others), "plain", CLIENT, others_per_s, ("--timeout-ms", FIRST_MS)),
            Load(",".join(self.probed), "probe", "patched", 2, ("--name", "producer", "--timeout-ms", PROBE_MS)),
            Load(",".join(self.waiting), "idempotent", CLIENT, driven_per_s, patient_ms=PATIENCE_MS),
        ]
        words = [load.arguments(bootstrap, self.SECONDS) for load in loads]
        follower = ["--bootstrap", bootstrap, "--topics", ",".join(self.others)]
        with (
            self.clients.running("arrivals", [follower], self.history),
            self.clients.running("produce", words, self.history) as (others, probes, driven),
        ):
            self.producers = [others, probes, driven]
            self.go_on(timeout_s=START_S)
            self._warm(driven, driven_per_s)
            yield others, probes
            self.producers = []

    def _warm(self, driven: Program, per_s: float) -> None:
        """Waits until each driven partition has acknowledged something.

        Of a producer that a partition does not know, it takes whatever batch comes first: if that is not the first of
        those that were refused, this one fails for as long as it is retried, and the test waits for it.
        """
        acked: set[tuple[str, int]] = set()

        def so() -> bool:
            for event in driven.fetch():
                if event.op == "produce" and event.outcome == "ok":
                    acked.add((str(event.data["topic"]), int(event.data["partition"])))
            return len(acked) == self.width * len(self.waiting)

        # it goes through the partitions in turn; what is read before this is not told again, so it has to do so twice
        timeout_s = START_S + 2 * self.width / per_s
        wait_for(so, what="a record in each driven partition", timeout_s=timeout_s, interval_s=0.5)

    @property
    def probed(self) -> list[str]:
        """Topics whose records are tried once."""
        return self.gated[:PROBED]

    # -- what an outage costs ------------------------------------------------------------------------------------------

    def _cycle(self, arm: str, cycle: int, others: Program) -> None:
        """A stage before an outage, one in it, and the heal."""
        # those that are refused have no answer until the heal
        self.producers = [others]
        with self._stage(arm, "before", cycle):
            self.go_on(STAGE_S)
        with self._healing(arm, cycle), self.fault("kill", rack=LOST):
            with self._stage(arm, "lose", cycle):
                self._reach(arm, cycle, "lost", REMAIN)
            with self._stage(arm, "outage", cycle):
                self.go_on(STAGE_S)
            self._note(many_partitions.STAGE, arm, stage="heal", cycle=cycle, edge="begin", **self._used())

    @contextmanager
    def _healing(self, arm: str, cycle: int) -> Iterator[None]:
        """From the heal until all is in sync again."""
        yield
        self._reach(arm, cycle, "back", None)
        self._note(many_partitions.STAGE, arm, stage="heal", cycle=cycle, edge="end", **self._used())

    @contextmanager
    def _stage(self, arm: str, stage: str, cycle: int) -> Iterator[None]:
        self._note(many_partitions.STAGE, arm, stage=stage, cycle=cycle, edge="begin", **self._used())
        yield
        self._note(many_partitions.STAGE, arm, stage=stage, cycle=cycle, edge="end", **self._used())

    def _reach(self, arm: str, cycle: int, what: str, brokers: frozenset[int] | None) -> None:
        """Waits until the ISRs of all partitions are what they come to, and notes when."""
        step = "heal" if brokers is None else "inject"
        since_ns = max(
            event.mono_ns
            for event in self.history.events()
            if event.process == "fault" and event.data.get("step") == step
        )
        bulk_topics.wait_members(self.kafka.admin, self.wide, brokers, SETTLED_S)
        self._note(many_partitions.REACHED, arm, cycle=cycle, what=what, since_ns=since_ns)

    def _used(self) -> dict[str, Any]:
        """What each node's Kafka has used of a processor, in ticks, and how many of them a second has."""
        ticks: dict[str, Sequence[int]] = {}
        for node in self.kafka.topology.nodes:
            pid = self.kafka.kafka_pid(node)
            if pid is not None:
                fields = process.parse_stat(self.kafka.run_on(node, f"cat /proc/{pid}/stat"))
                ticks[node.name] = (pid, int(fields[UTIME]) + int(fields[STIME]))
        hz = int(self.kafka.run_on(self.kafka.topology.nodes[0], "getconf CLK_TCK"))
        return {"ticks": ticks, "hz": hz}

    # -- what others feel ----------------------------------------------------------------------------------------------

    def _require(self, arm: str, probes: Program) -> None:
        """Sets R of all gated topics and waits until what is probed is refused, or taken, by all of them."""
        gate = arm == slowdown.GATE
        for topic in self.gated:
            topics.alter(self.kafka.admin, topic, {topics.MIN_INSYNC_RACKS: "2" if gate else "1"})
        since_ns = time.monotonic_ns()
        last: dict[str, bool] = {}

        def so() -> bool:
            for event in probes.fetch():
                if event.op == "produce" and int(event.data["sent_ns"]) >= since_ns:
                    last[str(event.data["topic"])] = (
                        event.data.get("exception") in TOO_FEW_RACKS if gate else event.outcome == "ok"
                    )
            return len(last) == PROBED and all(last.values())

        what = f"all of {PROBED} topics to {'refuse' if gate else 'take'} what is tried"
        wait_for(so, what=what, timeout_s=SETTLED_S, interval_s=0.5)
        # what was held back until now has been sent by then
        self.go_on(STEADY_S)

    def _block(self, arm: str, number: int) -> None:
        told: dict[str, Any] = {"round": number, "topics": self.others, "probed": self.probed, "driven": self.waiting}
        self._note(slowdown.BLOCK, arm, edge="begin", **told)
        self.go_on(BLOCK_S)
        self._note(slowdown.BLOCK, arm, edge="end", **told)

    def _note(self, op: str, arm: str, **more: Any) -> None:
        self.history.note("test", op, "info", arm=arm, **more)
