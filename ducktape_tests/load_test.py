"""Many partitions through outages of a rack, on stock Kafka and on the patched one, one after the other.

Takes long, and belongs to no other selection: ``partitions`` (10,000 by default), ``cycles`` and ``blocks`` come from
ducktape's ``--globals``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ducktape.mark.resource import cluster
from ducktape.tests.test_context import TestContext

from ducktape_tests.drill import START_S, Drill, Load, must_hold
from ducktape_tests.services.clients import Program
from pyhooks import process
from pyhooks.build.distribution import Distribution
from pyhooks.checker import slowdown
from pyhooks.checker.judging import judge
from pyhooks.checker.slowdown import BEFORE, OUTAGE, OVERLAY, STOCK
from pyhooks.cluster import many, topics
from pyhooks.cluster.many import Wide
from pyhooks.history import History

LOST = "b"
REMAIN = frozenset({1, 2, 5})
# what the gate is about: two replicas in rack a, which leads, one in rack b
GATED = ((1, 2, 3), (2, 1, 4))
# what goes on: racks a and c stay, one of which leads
OTHERS = ((1, 3, 5), (5, 2, 4), (2, 4, 5))
WIDE, NARROW, PROBED, DRIVEN = 20, 2, 5, 2
OTHER_PARTITIONS = 3
BLOCK_S = 10.0
SETTLED_S = 900.0
# the same client for both arms, so that nothing but the brokers differs
CLIENT = "4.3.1"
PATIENCE_MS = 600_000
# of the clients whose latency is asked: nothing of theirs ends early
FIRST_MS = "20000"
# Of those that ask when a topic refuses: a broker answers one request of a connection after the other, so a record
# that was sent before the ISR shrank holds up the refusal of the next until its time is over.
PROBE_MS = "2000"
# of the kernel's fields from the state letter on: time in the program, and in the kernel for it
UTIME, STIME = 11, 12


class LoadTest(Drill):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b goes and comes back, several times."""

    TOPOLOGY = "az3-load"
    SECONDS = 7200.0

    def __init__(self, test_context: Any) -> None:
        super().__init__(test_context)
        given = test_context.globals
        self.partitions = int(given.get("partitions", 10_000))
        self.cycles, self.blocks = int(given.get("cycles", 3)), int(given.get("blocks", 4))

    def setUp(self) -> None:
        """Starts no cluster: each arm has one of its own."""
        self.results = Path(TestContext.results_dir(self.test_context, self.test_context.test_index))
        self.history = History(self.results / "history.jsonl")
        self.clients.start()

    @cluster(num_nodes=9)
    def test_outage_of_many_partitions(self) -> None:
        """An outage that stops many partitions slows others no more than it does without the gate.

        setup: stock Kafka and the patched one, one after the other in an order that the seed draws, each on new
            disks: many partitions on replicas in racks a, a, b with M=2, and R=2 where there is R; some on a, b, c.
        drive: produce to some of both, and follow the others; blocks of time before an outage of rack b and in it,
            several times.
        validate: the slowdown of the others, in pairs of blocks; times to refuse and to recover, and the processors
            that each node used, are written down.
        """
        for arm in self.rng.sample([STOCK, OVERLAY], 2):
            self._begin(arm)
            self._go_through(arm)
            for node in self.kafka.topology.nodes:
                self.kafka.kill_kafka(node)
        events = list(self.history.events())
        self.figures(partitions=self.partitions, cycles=self.cycles, blocks=self.blocks, **slowdown.figures(events))
        found, _ = judge(events, ("faults", "slowdown"))
        (self.results / "verdicts.json").write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
        for one in found:
            self.logger.info("verdict of %s: %s %s", one.checker, one.valid, "; ".join([*one.because, *one.notes]))
        must_hold(found)

    def _begin(self, arm: str) -> None:
        """A new cluster with all topics."""
        self.kafka.classpath = Distribution.load().classpath(overlay=arm == OVERLAY)
        # what brokers cost is asked here, so they are compiled as anywhere else
        self.kafka.java = ()
        # what a client knows of the cluster before is of no use
        self.kafka.forget_admin()
        self.kafka.start()
        minima = {topics.MIN_INSYNC_REPLICAS: "2"} | ({topics.MIN_INSYNC_RACKS: "2"} if arm == OVERLAY else {})
        width = max(1, self.partitions // WIDE)
        gated = [Wide(f"gated-{at}", many.rotating(width, GATED), minima) for at in range(WIDE)]
        others = [Wide(f"other-{at}", many.rotating(OTHER_PARTITIONS, OTHERS), minima) for at in range(NARROW)]
        self.wide = [*gated, *others]
        self.others = [one.name for one in others]
        self.gated = [one.name for one in gated]
        many.create(self.kafka.admin, self.wide, SETTLED_S)
        self.kafka.wait_logs(self.wide, SETTLED_S)

    def _go_through(self, arm: str) -> None:
        bootstrap = self.kafka.topology.bootstrap
        loads = [
            Load(",".join(self.others), "plain", CLIENT, 20, ("--timeout-ms", FIRST_MS)),
            Load(",".join(self.gated[:PROBED]), "probe", CLIENT, 2, ("--name", "producer", "--timeout-ms", PROBE_MS)),
            Load(",".join(self.gated[-DRIVEN:]), "idempotent", CLIENT, 20, ("--timeout-ms", str(PATIENCE_MS))),
        ]
        words = [load.arguments(bootstrap, self.SECONDS) for load in loads]
        follower = ["--bootstrap", bootstrap, "--topics", ",".join(self.others)]
        with (
            self.clients.running("arrivals", [follower], self.history),
            self.clients.running("produce", words, self.history) as (others, probes, driven),
        ):
            self.producers = [others, probes, driven]
            self.go_on(timeout_s=START_S)
            for cycle in range(self.cycles):
                self._cycle(arm, cycle, others)
            self.producers = []

    def _cycle(self, arm: str, cycle: int, others: Program) -> None:
        """Blocks, an outage with blocks in it, and the heal."""
        # those that are refused have no answer until the heal
        self.producers = [others]
        with self._stage(arm, BEFORE, cycle):
            self._blocks(arm, BEFORE, cycle)
        with self._healing(arm, cycle), self.fault("kill", rack=LOST):
            with self._stage(arm, "lose", cycle):
                self._reach(arm, cycle, "lost", REMAIN)
            with self._stage(arm, OUTAGE, cycle):
                self._blocks(arm, OUTAGE, cycle)
            self._note(slowdown.STAGE, arm, "heal", cycle, edge="begin", **self._used())

    @contextmanager
    def _healing(self, arm: str, cycle: int) -> Iterator[None]:
        """From the heal until all is in sync again."""
        yield
        self._reach(arm, cycle, "back", None)
        self._note(slowdown.STAGE, arm, "heal", cycle, edge="end", **self._used())

    @contextmanager
    def _stage(self, arm: str, stage: str, cycle: int) -> Iterator[None]:
        self._note(slowdown.STAGE, arm, stage, cycle, edge="begin", **self._used())
        yield
        self._note(slowdown.STAGE, arm, stage, cycle, edge="end", **self._used())

    def _blocks(self, arm: str, stage: str, cycle: int) -> None:
        for number in range(self.blocks):
            told: dict[str, Any] = {"number": number, "topics": self.others}
            self._note(slowdown.BLOCK, arm, stage, cycle, edge="begin", **told)
            self.go_on(BLOCK_S)
            self._note(slowdown.BLOCK, arm, stage, cycle, edge="end", **told)

    def _reach(self, arm: str, cycle: int, what: str, brokers: frozenset[int] | None) -> None:
        """Waits until the ISRs of all partitions are what they come to, and notes when."""
        step = "heal" if brokers is None else "inject"
        since_ns = max(
            event.mono_ns
            for event in self.history.events()
            if event.process == "fault" and event.data.get("step") == step
        )
        many.wait_members(self.kafka.admin, self.wide, brokers, SETTLED_S)
        self._note(slowdown.REACHED, arm, what, cycle, what=what, since_ns=since_ns)

    def _note(self, op: str, arm: str, stage: str, cycle: int, **more: Any) -> None:
        self.history.note("test", op, "info", arm=arm, stage=stage, cycle=cycle, **more)

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
